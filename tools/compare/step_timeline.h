// One training step of a contestant, read from a profile of several steps (docs/profiling.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare/trial.h"

namespace stagegpt::compare {

// Times are milliseconds; `begin` counts from the start of the step on the first rank that starts it.
struct StepSpan {
  enum class Kind {
    phase,
    op,          // on the host: the op, or its launches on a device
    message,     // the host starts or advances a message
    wait,        // the host waits until a message is complete
    background,  // the device, or another thread of the rank
  };
  std::string name;
  Kind kind = Kind::op;
  double begin = 0, ms = 0;

  double end() const { return begin + ms; }
};

struct RankTimeline {
  struct Row {
    std::string name;
    std::vector<StepSpan> spans;
  };
  std::vector<StepSpan> phases;
  std::vector<StepSpan> host;      // ops and calls of communication; none is inside another one
  std::vector<StepSpan> messages;  // times in which at least one message is under way
  std::vector<Row> rows;           // the device and other threads, as far as they have spans in this step

  PhaseMs phase_ms() const;
  double waiting_ms() const;
  double message_ms() const;
  // The part of message_ms() that is inside backward.
  double overlap_ms() const;
};

struct StepTimeline {
  std::int64_t step = 0;      // the one of median length, counted as in metrics.jsonl
  std::int64_t recorded = 0;  // of so many steps
  double ms = 0;              // from the first rank's begin to the last rank's end
  double clock_error_ms = 0;  // the largest of all ranks
  std::vector<RankTimeline> ranks;
};

// Reads a file of --profile. For an even number of steps, it takes the longer one of the middle two. Throws
// UserError, which names the file, if it is not a profile of training steps.
StepTimeline read_step_timeline(const std::filesystem::path& profile);

}  // namespace stagegpt::compare
