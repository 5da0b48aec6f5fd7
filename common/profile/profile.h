// The profile of some steps: a timeline of all ranks in one file (docs/profiling.md).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/rank_group.h"
#include "common/profile/clock_offset.h"
#include "common/profile/op_timeline.h"

namespace stagegpt {

struct ProfileConfig {
  std::filesystem::path file;
  StepRange steps;
  const char* unit = "step";  // the name of a step's span: "step" or "token"
};

// All calls are collective.
class Profile {
 public:
  // The arguments must outlive the profile.
  Profile(Timeline& timeline, RankGroup& group, Backend& backend, ProfileConfig config)
      : timeline_(timeline), group_(group), backend_(backend), config_(std::move(config)) {}

  // Does step `number`, which counts from 1, and records it if it is one of the profile's.
  void step(std::int64_t number, const std::function<void()>& body);
  // Whether the last step of the profile has been recorded, and not been written.
  bool is_complete() const { return last_step_ == config_.steps.last && !written_; }
  // Rank 0 writes what has been recorded, unless this has been done or there is nothing. Throws
  // std::runtime_error on all ranks if the file cannot be written.
  void write();
  // For the user, after write(): where the profile is, or that no step was recorded.
  std::string description() const;

 private:
  void begin();

  Timeline& timeline_;
  RankGroup& group_;
  Backend& backend_;
  ProfileConfig config_;
  ClockOffset clock_at_begin_;
  std::int64_t last_step_ = 0;  // that has been recorded; 0: none
  bool written_ = false;
  std::int64_t lost_ = 0;  // spans, of all ranks
  std::unique_ptr<WorkTimer> device_timer_;
};

// Does a step, which `profile` records if it is not null and the step is one of its steps; after the last one
// of these it is written.
void profiled(Profile* profile, std::int64_t number, const std::function<void()>& body);

// Throws UserError, naming --profile, if such a file cannot be written.
void require_profile_file(const std::filesystem::path& file);

}  // namespace stagegpt
