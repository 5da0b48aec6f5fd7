// Streams and events of the emulated GPU.
//
// Work is done when it is submitted or, with STAGEGPT_EMULATOR_STREAMS=late, when the host waits for it. The
// latter reveals code that reads a result without waiting, or frees memory that a copy still reads. With
// `ahead` a stream that another one waits for does all of its work then: this reveals work that should wait
// for the other stream too, and overwrites what that one has yet to read.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace stagegpt::gpu::emulation {

// A queue of work, which is done in order. Exceptions of the work are thrown where it is done. Streams and
// events are used by one thread only.
class Stream {
 public:
  Stream();
  void submit(std::function<void()> work);
  std::uint64_t submitted() const { return done_ + waiting_.size(); }
  // Does the first `count` items of work submitted since construction.
  void finish(std::uint64_t count);
  void finish() { finish(submitted()); }
  // Does all work, unless it is in the middle of one item.
  void run_ahead();
  // Between the two, submitted work is recorded instead.
  void begin_capture();
  std::vector<std::function<void()>> end_capture();
  // Does all work; an exception is thrown by the next finish().
  void finish_quietly() noexcept;

 private:
  bool late_;
  std::exception_ptr error_;  // not reported yet
  std::uint64_t done_ = 0;
  bool working_ = false;
  std::deque<std::function<void()>> waiting_;
  std::optional<std::vector<std::function<void()>>> captured_;
};

// The point of a stream where an event was recorded.
class RecordedEvent {
 public:
  explicit RecordedEvent(const std::shared_ptr<Stream>& stream);
  void reach() { stream_->finish(position_); }
  void reach_for_stream();  // another one, which waits
  // A late stream proceeds at the second call only.
  bool is_reached();
  // When the event was reached; empty before.
  std::optional<std::chrono::steady_clock::time_point> time() const { return *time_; }

 private:
  std::shared_ptr<Stream> stream_;
  std::uint64_t position_;
  std::shared_ptr<std::optional<std::chrono::steady_clock::time_point>> time_;
  bool asked_ = false;
};

// Throws std::runtime_error while a stream is being captured: then a GPU refuses the call.
void refuse_in_capture(const char* call);

std::shared_ptr<Stream> make_stream();
// Called before memory is freed, which late work may still use.
void finish_all_streams() noexcept;

}  // namespace stagegpt::gpu::emulation
