#include "common/app/data_flags.h"

#include "common/base/error.h"

namespace stagegpt {

void TokenizerFlags::add(CommandLine& command_line) {
  command_line.choice("--tokenizer", choice_.kind, {"char", "word", "bpe", "gpt2"},
                      "tokenizer (default: bpe, or the one in --tokenizer-path)");
  command_line.text("--tokenizer-path", choice_.path,
                    "existing tokenizer: tokenizer.json, GPT-2's two files, llm.c's file, or a directory "
                    "that contains one of these");
  command_line.integer("--vocab-size", choice_.vocab_size, 1, 1 << 24,
                       concat("size of the vocabulary that is learnt from the text (default: bpe: a token "
                              "for every 600 bytes, between ",
                              kSmallestDefaultVocabSize, " and ", kLargestDefaultVocabSize,
                              "; word: every word, at most ", kLargestDefaultVocabSize, ")"));
  command_line.toggle("--parse-special-tokens", parse_special_,
                      "read the names of special tokens in the text, such as <|endoftext|>, as tokens");
  command_line.toggle("--any-bytes", any_bytes_, kAnyBytesHelp);
}

}  // namespace stagegpt
