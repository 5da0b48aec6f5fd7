// The flags that say how text becomes tokens.
#pragma once

#include "common/app/command_line.h"
#include "common/data/make_tokenizer.h"

namespace stagegpt {

class TokenizerFlags {
 public:
  void add(CommandLine& command_line);

  const TokenizerChoice& choice() const { return choice_; }
  SpecialTokens special() const {
    return parse_special_ ? SpecialTokens::recognised : SpecialTokens::as_text;
  }

 private:
  TokenizerChoice choice_;
  bool parse_special_ = false;
};

}  // namespace stagegpt
