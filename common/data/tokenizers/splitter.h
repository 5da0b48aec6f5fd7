// Text to pieces, each of which a tokenizer turns into tokens on its own ("pre-tokenisation").
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace stagegpt {

// A piece is a match of a regular expression (PCRE2, compiled to machine code), and the pieces of a text
// joined are the text. Each run of bytes that are not UTF-8 is a piece, and text ends before and begins after
// it. A piece of more than kMaxPiece bytes is cut there, which bounds the memory and time that one costs.
class Splitter {
 public:
  static constexpr std::size_t kMaxPiece = std::size_t{1} << 20;

  // GPT-2's: contractions; letters, numbers, or other characters, each with a space in front; white space.
  static const Splitter& gpt2();
  // Words (letters, marks, numbers); any other character alone.
  static const Splitter& words();

  // Pieces of `text`, which must outlive the cursor, from left to right.
  class Cursor {
   public:
    Cursor(const Splitter& splitter, std::string_view text);
    ~Cursor();
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;

    // False at the end.
    bool next(std::string_view& piece);

   private:
    std::size_t match_end() const;
    std::size_t invalid_end() const;

    const Splitter& splitter_;
    std::string_view text_;
    std::size_t at_ = 0, valid_end_ = 0;  // text_[at_, valid_end_) is UTF-8
    void* match_data_;
  };

  // See Tokenizer::safe_cut. There is one in 2 * kMaxPiece + 64 bytes.
  std::size_t safe_cut(std::string_view text) const;
  // The expression, for programs that know no PCRE2: see tokenizer.json.
  const std::string& pattern() const { return pattern_; }

 private:
  explicit Splitter(const std::string& pattern);

  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace stagegpt
