// Records what this process does and when, for a timeline of a few steps (docs/profiling.md): ops, phases,
// messages, background threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/backend/op.h"
#include "common/tensor/shape.h"

namespace stagegpt {

enum class SpanKind : std::uint8_t {
  step,        // a training step or a generated token
  phase,       // a part of a step, as RankGroup::enter() names it
  op,          // on the host: the op itself, or its launches on a device
  message,     // the host in a call of a communicator or a group
  collective,  // a message in progress, whatever the host does meanwhile
  data,        // a background thread that fetches a batch
  checkpoint,  // the background thread that reads a checkpoint back
  device       // an op on the device
};

// A span of time. Times are nanoseconds of this process's steady clock.
struct TimelineSpan {
  static constexpr std::size_t kMaxShapes = 6;

  const char* name = "";  // lives as long as the program
  SpanKind kind = SpanKind::op;
  std::int64_t begin = 0, end = 0;
  Work work = {};         // bytes of a message: those of this rank's tensor
  std::int64_t step = 0;  // number of a step, from 1; otherwise 0
  int peer = -1;          // the other rank of a message between two; -1 for all ranks
  int ranks = 0;          // that can take part, if these are not all
  std::array<Shape, kMaxShapes> shapes = {};
  std::size_t n_shapes = 0;
};

// Shows what is being recorded to another profiler, as NVTX ranges to Nsight Systems. The ranges of a thread
// are nested: end() ends the last one that the calling thread has begun.
class LiveRanges {
 public:
  virtual ~LiveRanges() = default;
  virtual void begin(const char* name) = 0;
  virtual void end() = 0;
};

// Steps or tokens to record, from 1, both included.
struct StepRange {
  std::int64_t first = 1, last = 1;
};

// Thread-safe, but for the phases, which belong to the main thread. While it records, it allocates no memory.
class Timeline {
 public:
  static constexpr std::size_t kCapacity = std::size_t{1} << 17;  // spans

  static std::int64_t now();  // of the clock of all spans

  // Forgets all spans, and reserves memory. Call while nothing is recorded.
  void clear();
  // Begins or ends recording. A span is kept if both its begin and its end are recorded.
  void record(bool recording);
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  // Adds a span that has ended. Ignored if nothing is recorded; counted as lost if the memory is full.
  void add(const TimelineSpan& span);
  // Ends the current phase, and begins another one unless `name`, a string literal, is empty.
  void enter(const char* name);

  // Steps, phases, ops and calls of communication that are recorded from now on are also shown by `ranges`,
  // which may be null.
  void show(LiveRanges* ranges) { ranges_ = ranges; }
  void begin_range(const char* name) {
    if (ranges_ != nullptr) ranges_->begin(name);
  }
  void end_range() {
    if (ranges_ != nullptr) ranges_->end();
  }

  // In order of their ends. Call while nothing is recorded.
  const std::vector<TimelineSpan>& spans() const { return spans_; }
  std::int64_t lost() const { return lost_; }

 private:
  std::atomic<bool> recording_ = false;
  std::mutex mutex_;
  std::vector<TimelineSpan> spans_;
  std::int64_t lost_ = 0;
  LiveRanges* ranges_ = nullptr;
  TimelineSpan phase_ = {.kind = SpanKind::phase};  // the current one, if it has a name
};

// Records the time from its construction to its destruction. Without a timeline it does nothing.
class Recorded {
 public:
  Recorded(Timeline* timeline, const char* name, SpanKind kind, double bytes = 0, int peer = -1,
           int ranks = 0)
      : timeline_(timeline != nullptr && timeline->recording() ? timeline : nullptr) {
    if (timeline_ == nullptr) return;
    span_.name = name;
    span_.kind = kind;
    span_.work.bytes = bytes;
    span_.peer = peer;
    span_.ranks = ranks;
    timeline_->begin_range(name);
    span_.begin = Timeline::now();
  }
  ~Recorded() {
    if (timeline_ == nullptr) return;
    span_.end = Timeline::now();
    timeline_->end_range();
    timeline_->add(span_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  Timeline* timeline_;
  TimelineSpan span_;
};

}  // namespace stagegpt
