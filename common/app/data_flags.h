// The flags that say how text becomes tokens.
#pragma once

#include "common/app/command_line.h"
#include "common/data/make_tokenizer.h"

namespace stagegpt {

inline constexpr const char* kAnyBytesHelp =
    "do not refuse files that are no UTF-8 text (for the tokenizers bpe and gpt2)";

class TokenizerFlags {
 public:
  void add(CommandLine& command_line);

  // Replaces what was chosen by the tokenizer in a file, as --tokenizer-path does.
  void load(const std::filesystem::path& path) { choice_ = {.kind = {}, .path = path, .vocab_size = {}}; }
  const TokenizerChoice& choice() const { return choice_; }
  SpecialTokens special() const {
    return parse_special_ ? SpecialTokens::recognised : SpecialTokens::as_text;
  }
  bool any_bytes() const { return any_bytes_; }

 private:
  TokenizerChoice choice_;
  bool parse_special_ = false, any_bytes_ = false;
};

}  // namespace stagegpt
