// Streams and events of the emulated GPU.
//
// Work is done as soon as it is submitted or, with STAGEGPT_EMULATOR_STREAMS=late, not before somebody waits
// for it: whoever reads a result without waiting, or lets go of what a copy still reads, finds that out.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

namespace stagegpt::gpu::emulation {

// Work in order. What it throws is thrown where it is done. One thread uses streams and events.
class Stream {
 public:
  Stream();
  void submit(std::function<void()> work);
  std::uint64_t submitted() const { return done_ + waiting_.size(); }
  // Does what has been submitted, up to the given number since the beginning.
  void finish(std::uint64_t count);
  void finish() { finish(submitted()); }
  // The same; what it throws is thrown by the next finish().
  void finish_quietly() noexcept;

 private:
  bool late_;
  std::exception_ptr error_;  // that nobody has been told of
  std::uint64_t done_ = 0;
  std::deque<std::function<void()>> waiting_;
};

// The point of a stream where an event was recorded.
class RecordedEvent {
 public:
  explicit RecordedEvent(const std::shared_ptr<Stream>& stream);
  void reach() { stream_->finish(position_); }
  // Late streams go on only when somebody asks for the second time.
  bool is_reached();
  // When it was; empty before.
  std::optional<std::chrono::steady_clock::time_point> time() const { return *time_; }

 private:
  std::shared_ptr<Stream> stream_;
  std::uint64_t position_;
  std::shared_ptr<std::optional<std::chrono::steady_clock::time_point>> time_;
  bool asked_ = false;
};

std::shared_ptr<Stream> make_stream();
// As whoever frees memory does: late work may still use it.
void finish_all_streams() noexcept;

}  // namespace stagegpt::gpu::emulation
