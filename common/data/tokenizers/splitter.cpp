#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/data/tokenizers/splitter.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

#include "common/base/error.h"
#include "common/data/utf8.h"

namespace stagegpt {
namespace {

// Character classes are listed explicitly where regular-expression libraries differ. White space is Unicode's
// White_Space, because PCRE2's \s also matches U+180E. Letters, numbers and marks include those of Unicode 15
// and 16, which older versions of PCRE2 lack. So any version of PCRE2 splits as Hugging Face's tokenizers and
// tiktoken do.
constexpr const char* kWhiteSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kLetters =
    R"(\p{L}\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
    R"(\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kNumbers =
    R"(\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59})"
    R"(\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";
constexpr const char* kMarks =
    R"(\p{M}\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2})"
    R"(\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2}\x{113e1}\x{113e2}\x{11f00}\x{11f01}\x{11f03})"
    R"(\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f})"
    R"(\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}\x{1e5ef})";

// GPT-2's expression is  's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Possessive quantifiers (++) match the same text but do not backtrack. White space must backtrack by one
// character if other text follows; that character then becomes part of the next piece.
std::string gpt2_pattern() {
  return concat("'(?:[sdmt]|ll|ve|re)", "| ?[", kLetters, "]++", "| ?[", kNumbers, "]++",  //
                "| ?[^", kWhiteSpace, kLetters, kNumbers, "]++",                           //
                "|[", kWhiteSpace, "]+(?![^", kWhiteSpace, "])", "|[", kWhiteSpace, "]+");
}

std::string word_pattern() { return concat("[", kLetters, kMarks, kNumbers, "]++", R"(|[\s\S])"); }

// How many bytes after a match can influence it: one character after white space, two after an apostrophe,
// each of at most 4 bytes and possibly incomplete; plus a margin.
constexpr std::size_t kLookahead = 16;

pcre2_code* code_of(const std::shared_ptr<void>& code) { return static_cast<pcre2_code*>(code.get()); }

// Whether kWhiteSpace matches it.
bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// Whether the last character of `text` is white space.
bool ends_in_white_space(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
    const std::string_view last = text.substr(text.size() - length);
    if (utf8_length(last, 0) == length) return is_white_space(utf8_code_point(last));
  }
  return false;
}

}  // namespace

Splitter::Splitter(const std::string& pattern) : pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error, &offset, nullptr);
  check(code != nullptr, "splitter: PCRE2 error ", error, " at ", offset, " of ", pattern);
  code_ = {code, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); }};
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if JIT is not available, PCRE2 interprets the pattern
}

const Splitter& Splitter::gpt2() {
  static const Splitter splitter(gpt2_pattern());
  return splitter;
}

const Splitter& Splitter::words() {
  static const Splitter splitter(word_pattern());
  return splitter;
}

Splitter::Cursor::Cursor(const Splitter& splitter, std::string_view text)
    : splitter_(splitter),
      text_(text),
      valid_end_(utf8_prefix(text)),
      match_data_(pcre2_match_data_create(1, nullptr)) {
  if (match_data_ == nullptr) throw std::bad_alloc();
}

Splitter::Cursor::~Cursor() { pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_)); }

bool Splitter::Cursor::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  std::size_t end = 0;
  if (at_ < valid_end_) {
    end = match_end();
  } else {
    end = invalid_end();
    valid_end_ = end + utf8_prefix(text_.substr(end));
  }
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

std::size_t Splitter::Cursor::match_end() const {
  std::string_view rest = text_.substr(at_, valid_end_ - at_);
  if (rest.size() > kMaxPiece + kLookahead)
    rest = rest.substr(0, utf8_boundary(rest, kMaxPiece + kLookahead));
  auto* data = static_cast<pcre2_match_data*>(match_data_);
  const int matches = pcre2_match(code_of(splitter_.code_), reinterpret_cast<PCRE2_SPTR>(rest.data()),
                                  rest.size(), 0, PCRE2_NO_UTF_CHECK, data, nullptr);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
  check(matches == 1 && range[0] == 0 && range[1] > 0, "splitter: PCRE2 returns ", matches);
  return at_ + (range[1] <= kMaxPiece ? range[1] : utf8_boundary(rest, kMaxPiece));
}

std::size_t Splitter::Cursor::invalid_end() const {
  std::size_t end = at_ + 1;
  while (end < text_.size() && end - at_ < kMaxPiece && utf8_length(text_, end) == 0) ++end;
  return end;
}

std::size_t Splitter::safe_cut(std::string_view text) const {
  // The text can be cut before white space that follows other text: no piece contains such a boundary, and no
  // expression looks ahead over it.
  for (std::size_t cut = text.empty() ? 0 : text.size() - 1; cut > 0; --cut) {
    if (is_white_space(static_cast<unsigned char>(text[cut])) &&
        static_cast<unsigned char>(text[cut]) < 0x80 && !ends_in_white_space(text.substr(0, cut))) {
      return cut;
    }
  }
  // There is no such boundary. Cut after the last piece that later text cannot change. A piece of white space
  // depends on the text after it, so the cut is not after white space, unless the piece was cut because of
  // its length.
  std::size_t cut = 0, end = 0;
  Cursor cursor(*this, text);
  for (std::string_view piece; cursor.next(piece);) {
    end += piece.size();
    if (end + kLookahead > text.size()) break;
    const bool cut_for_length = piece.size() + kLookahead > kMaxPiece;
    if (cut_for_length || !ends_in_white_space(piece)) cut = end;
  }
  return cut;
}

}  // namespace stagegpt
