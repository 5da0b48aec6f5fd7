#include "common/app/profile_flags.h"

#include <algorithm>

namespace stagegpt {
namespace {

constexpr const char* kFlag = "--profile-steps";
constexpr std::int64_t kMaxNumber = 1'000'000'000;

// "2:4".
StepRange parse_range(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) user_error(kFlag, ": expected FIRST:LAST, such as 2:4, not '", text, "'");
  const StepRange range{parse_integer(kFlag, text.substr(0, colon), 1, kMaxNumber),
                        parse_integer(kFlag, text.substr(colon + 1), 1, kMaxNumber)};
  if (range.first > range.last) user_error(kFlag, ": expected FIRST <= LAST, not '", text, "'");
  return range;
}

}  // namespace

void ProfileFlags::add(CommandLine& command_line, const char* unit, StepRange usual) {
  unit_ = unit;
  range_ = usual;
  command_line.text("--profile", file_,
                    concat("write a timeline of some ", unit, "s to this file, for https://ui.perfetto.dev"));
  command_line.text(kFlag, steps_,
                    concat("FIRST:LAST, the ", unit, "s in that timeline, counted from 1 (default: ",
                           usual.first, ':', usual.last, ')'));
}

void ProfileFlags::resolve(const StepRange& all, Stage& stage) {
  if (!file_) {
    if (steps_) user_error(kFlag, ": is for --profile");
    return;
  }
  if (stage.counts())
    user_error("--profile: cannot be combined with --emulator-report, which measures no time");
  if (all.first > all.last) user_error("--profile: no ", unit_, " is left to do in this call");
  if (steps_) range_ = parse_range(*steps_);
  if (steps_ && (range_.first < all.first || range_.last > all.last)) {
    user_error(kFlag, ": expected ", unit_, "s of this call, which does ", all.first, " to ", all.last,
               ", not '", *steps_, "'");
  }
  const std::int64_t before = steps_ ? 0 : all.first - 1;  // the usual range counts the steps of the call
  range_ = {std::min(range_.first + before, all.last), std::min(range_.last + before, all.last)};
  if (stage.group().is_root()) require_profile_file(*file_);
}

std::unique_ptr<Timeline> ProfileFlags::make_timeline() const {
  return file_ ? std::make_unique<Timeline>() : nullptr;
}

std::unique_ptr<Profile> ProfileFlags::make_profile(Timeline* timeline, RankGroup& group,
                                                    Backend& backend) const {
  if (!file_) return nullptr;
  return std::make_unique<Profile>(*timeline, group, backend, ProfileConfig{*file_, range_, unit_});
}

}  // namespace stagegpt
