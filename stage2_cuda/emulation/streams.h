// Streams and events of the emulated GPU.
//
// Work is done when it is submitted or, with STAGEGPT_EMULATOR_STREAMS=late, when the host waits for it. The
// latter reveals code that reads a result without waiting, or frees memory that a copy still reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

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
  // Does all work; an exception is thrown by the next finish().
  void finish_quietly() noexcept;

 private:
  bool late_;
  std::exception_ptr error_;  // not reported yet
  std::uint64_t done_ = 0;
  std::deque<std::function<void()>> waiting_;
};

// The point of a stream where an event was recorded.
class RecordedEvent {
 public:
  explicit RecordedEvent(const std::shared_ptr<Stream>& stream);
  void reach() { stream_->finish(position_); }
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

std::shared_ptr<Stream> make_stream();
// Called before memory is freed, which late work may still use.
void finish_all_streams() noexcept;

}  // namespace stagegpt::gpu::emulation
