#include "common/app/data_flags.h"

#include "common/base/error.h"

namespace stagegpt {

void TokenizerFlags::add(CommandLine& command_line) {
  command_line.choice("--tokenizer", choice_.kind, {"char", "word", "bpe", "gpt2"},
                      "tokenizer (default: bpe, or what --tokenizer-path holds)");
  command_line.text(
      "--tokenizer-path", choice_.path,
      "one that exists: tokenizer.json, GPT-2's two files, llm.c's file, or a directory of these");
  command_line.integer(
      "--vocab-size", choice_.vocab_size, 1, 1 << 24,
      concat("tokens of a vocabulary made from the text (default: bpe one for each 600 bytes, ",
             kSmallestDefaultVocabSize, " to ", kLargestDefaultVocabSize,
             "; word every word, at most as many)"));
  command_line.toggle("--parse-special-tokens", parse_special_,
                      "in the text, take the names of special tokens (<|endoftext|>) for the tokens");
}

}  // namespace stagegpt
