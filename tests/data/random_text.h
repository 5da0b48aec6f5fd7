// Generators of text for property tests.
#pragma once

#include <rapidcheck.h>

#include <string>
#include <vector>

namespace stagegpt::test {

// Arbitrary bytes, which need not be UTF-8.
inline rc::Gen<std::string> any_bytes() {
  return rc::gen::container<std::string>(rc::gen::arbitrary<char>());
}

// Random sequences of parts of texts: words, white space of all kinds, contractions, punctuation, other
// scripts, and, unless `utf8` is set, invalid UTF-8.
inline rc::Gen<std::string> any_text(bool utf8) {
  std::vector<std::string> parts = {"a",        "the",
                                    "Then",     " ",
                                    "  ",       "\n",
                                    "\n\n",     "\t",
                                    "\r\n",     "'",
                                    "'s",       "'ll",
                                    "'l",       "don't",
                                    "1",        "2026",
                                    ".",        "...",
                                    "?!",       "<|endoftext|>",
                                    "<|endo",   "[UNK]",
                                    "_",        "é",
                                    "e\u0301",  "ж",
                                    "中文",     "。",
                                    "\u3000",   "\u00a0",
                                    "\u0085",   "\u180e",
                                    "\u2028",   "😀",
                                    "👩\u200d🚀", "٣",
                                    "क्षि",      std::string(1, '\0')};
  if (!utf8) parts.insert(parts.end(), {"\xff", "\x80", "\xe2\x82", "\xf0\x9f", "\xc3", "\xed\xa0\x80"});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(parts)),
                      [](const std::vector<std::string>& chosen) {
                        std::string text;
                        for (const std::string& part : chosen) text += part;
                        return text;
                      });
}

}  // namespace stagegpt::test
