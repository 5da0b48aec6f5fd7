// Pre-tokenisation: splits a text into pieces. A tokenizer encodes each piece separately.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace stagegpt {

// A piece is a match of a regular expression (PCRE2, compiled to machine code). The concatenation of all
// pieces is the text. Each run of bytes that are not UTF-8 is a piece of its own. A longer piece is cut at
// kMaxPiece bytes, which bounds the memory and time for one piece.
class Splitter {
 public:
  static constexpr std::size_t kMaxPiece = std::size_t{1} << 20;

  // GPT-2's expression: contractions; letters, numbers or other characters, with an optional space before
  // them; white space.
  static const Splitter& gpt2();
  // Words (letters, marks, numbers); each other character is a piece.
  static const Splitter& words();

  // Iterates over the pieces of `text` from left to right. `text` must outlive the cursor.
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

  // See Tokenizer::safe_cut. A text of 2 * kMaxPiece + 64 bytes or more always has one.
  std::size_t safe_cut(std::string_view text) const;
  // The expression as other libraries read it; it is written to tokenizer.json.
  const std::string& pattern() const { return pattern_; }

 private:
  explicit Splitter(const std::string& pattern);

  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace stagegpt
