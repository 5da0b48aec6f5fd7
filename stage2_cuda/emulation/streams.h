// Streams and events of the emulated GPU.
//
// Work is done as soon as it is submitted or, with STAGEGPT_EMULATOR_STREAMS=late, not before somebody waits
// for it: whoever reads a result without waiting, or lets go of what a copy still reads, finds that out.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace stagegpt::gpu::emulation {

// Work in order. What it throws is thrown where it is done.
class Stream {
 public:
  Stream();
  void submit(std::function<void()> work);
  std::uint64_t submitted() const { return done_ + waiting_.size(); }
  // Does what has been submitted, up to the given number since the beginning.
  void finish(std::uint64_t count);
  void finish() { finish(submitted()); }

 private:
  bool late_;
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

// Streams that are there, by handle; freeing memory waits for all of them.
std::shared_ptr<Stream> make_stream();
void finish_all_streams();

}  // namespace stagegpt::gpu::emulation
