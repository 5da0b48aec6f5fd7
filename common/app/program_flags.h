// Flags that several programs have.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/stage.h"
#include "common/data/make_tokenizer.h"
#include "common/model/gpt2.h"
#include "common/profile/profile.h"

namespace stagegpt {

// --profile and --profile-steps.
class ProfileFlags {
 public:
  // `unit` is what is counted, "step" or "token"; `usual` the range without --profile-steps.
  void add(CommandLine& command_line, const char* unit, StepRange usual);

  bool is_given() const { return file_.has_value(); }
  // Throws UserError for a range that is malformed or not among `all`, the steps of this call, and, on rank
  // 0, for a file that cannot be written. It cannot be combined with a stage that counts. The usual range is
  // cut to `all`.
  void resolve(const StepRange& all, Stage& stage);
  // The rest is for flags that have been resolved. Both are null without --profile.
  std::unique_ptr<Timeline> make_timeline() const;
  std::unique_ptr<Profile> make_profile(Timeline* timeline, RankGroup& group, Backend& backend) const;

 private:
  std::optional<std::string> file_, steps_;
  const char* unit_ = "";
  StepRange range_;
};

inline constexpr const char* kAnyBytesHelp =
    "do not refuse files that are no UTF-8 text (for the tokenizers bpe and gpt2)";

// How text becomes tokens.
class TokenizerFlags {
 public:
  void add(CommandLine& command_line);

  // Replaces what was chosen by the tokenizer in a file, as --tokenizer-path does. Messages about it name
  // `flag`.
  void load(const std::filesystem::path& path, const std::string& flag) {
    choice_ = {.kind = {}, .path = path, .vocab_size = {}, .path_flag = flag};
  }
  const TokenizerChoice& choice() const { return choice_; }
  SpecialTokens special() const {
    return parse_special_ ? SpecialTokens::recognised : SpecialTokens::as_text;
  }
  bool any_bytes() const { return any_bytes_; }

 private:
  TokenizerChoice choice_;
  bool parse_special_ = false, any_bytes_ = false;
};

// --weights: the precision in which generation keeps the matrices of a model.
class WeightsFlag {
 public:
  void add(CommandLine& command_line, const std::string& help);
  const std::string& name() const { return name_; }  // as given
  // The name of the precision of matrices(): "f32", "bf16" or "int8".
  std::string name_on(const Machine& machine) const;
  // Where activations are bf16, matrices are too. Throws AgreedUserError if the backend cannot read them.
  DType matrices(const Machine& machine) const;
  // Brings the matrices of a model in f32 to this precision, and gives the memory that is free then back.
  void narrow(Gpt2& model, const Machine& machine) const;

 private:
  std::string name_ = "f32";
};

}  // namespace stagegpt
