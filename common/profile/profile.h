// The profile of some steps: a timeline of all ranks in one file (docs/profiling.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/backend/op_observer.h"
#include "common/comm/rank_group.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// The difference between the clocks of two ranks, for a timeline that shows all ranks.
//
// A rank notes its time t0, sends a message to rank 0, gets its time T back, and notes t1. Rank 0 read its
// clock between t0 and t1, so its clock minus this rank's is T - (t0 + t1)/2, with an error of at most (t1 -
// t0)/2. Of several round trips the shortest one counts. Cristian, "Probabilistic clock synchronization",
// 1989.

// In nanoseconds. At time `at` of this rank's clock, rank 0's clock minus this rank's is `offset` ± `error`.
struct ClockOffset {
  std::int64_t at = 0, offset = 0, error = 0;
};

// Collective call. On rank 0 the result is 0 ± 0. `now` returns the time of this rank's clock.
ClockOffset measure_clock_offset(RankGroup& group, const std::function<std::int64_t()>& now);

// Rank 0's time at time `t` of this rank's clock. The offset is interpolated between two measurements,
// because clocks of different nodes may run at slightly different rates.
std::int64_t time_of_root(std::int64_t t, const ClockOffset& first, const ClockOffset& last);

// Records the ops of a backend in a timeline. Unlike Profiler, it does not wait for an op to finish.
//
// Where a device computes, the span of an op on the host is that of its launches. A second span, in the row
// of the device, is measured by two marks in the device's stream (WorkTimer): the time from the end of the
// work before the op to the end of the op. The first mark of a step, which an idle device reaches at once,
// gives both clocks a common time.
class OpTimeline final : public OpObserver {
 public:
  // Records the ops until finish(). `timer` is null if the backend has no device; otherwise the constructor
  // waits for the device.
  OpTimeline(Backend& backend, Timeline& timeline, WorkTimer* timer);
  void around(const OpCall& op, const std::function<void()>& kernel) override;
  // Waits for the device, and records the spans of its row.
  void finish();

 private:
  Timeline& timeline_;
  WorkTimer* timer_;
  std::int64_t first_mark_ = 0;         // the host's time
  std::vector<TimelineSpan> launched_;  // ops on the device, in their order
};

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
