// The flags --profile and --profile-steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/stage.h"
#include "common/profile/profile.h"

namespace stagegpt {

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

}  // namespace stagegpt
