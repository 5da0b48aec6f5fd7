#include "stage2_cuda/emulation/streams.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/emulation/settings.h"

namespace stagegpt::gpu::emulation {
namespace {

std::vector<std::weak_ptr<Stream>>& all_streams() {
  static std::vector<std::weak_ptr<Stream>> streams;
  return streams;
}

bool captures = false;  // one of the streams

// Sets a flag, and restores it.
struct Working {
  bool& flag;
  bool before = std::exchange(flag, true);
  ~Working() { flag = before; }
};

}  // namespace

Stream::Stream() : late_(stream_time() != StreamTime::at_once) {}

void Stream::submit(std::function<void()> work) {
  if (captured_) return captured_->push_back(std::move(work));
  waiting_.push_back(std::move(work));
  if (!late_) finish();
}

void Stream::finish(std::uint64_t count) {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  while (done_ < count) {
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    ++done_;
    const Working working{working_};
    work();
  }
}

void Stream::run_ahead() {
  if (!working_) finish();
}

void Stream::begin_capture() {
  refuse_in_capture("begin_capture");
  captured_.emplace();
  captures = true;
}

std::vector<std::function<void()>> Stream::end_capture() {
  captures = false;
  return std::exchange(captured_, std::nullopt).value();
}

void refuse_in_capture(const char* call) {
  if (captures) throw std::runtime_error(concat(call, ": a GPU refuses this call while a graph is captured"));
}

void Stream::finish_quietly() noexcept {
  try {
    finish();
  } catch (...) {
    error_ = std::current_exception();
  }
}

RecordedEvent::RecordedEvent(const std::shared_ptr<Stream>& stream)
    : stream_(stream), time_(std::make_shared<std::optional<std::chrono::steady_clock::time_point>>()) {
  stream->submit([time = time_] { *time = std::chrono::steady_clock::now(); });
  position_ = stream->submitted();
}

void RecordedEvent::reach_for_stream() {
  reach();
  if (stream_time() == StreamTime::ahead) stream_->run_ahead();
}

bool RecordedEvent::is_reached() {
  if (!*time_ && std::exchange(asked_, true)) reach();
  return time_->has_value();
}

std::shared_ptr<Stream> make_stream() {
  auto stream = std::make_shared<Stream>();
  std::erase_if(all_streams(), [](const auto& other) { return other.expired(); });
  all_streams().push_back(stream);
  return stream;
}

void finish_all_streams() noexcept {
  for (const auto& weak : all_streams()) {
    if (const auto stream = weak.lock()) stream->finish_quietly();
  }
}

}  // namespace stagegpt::gpu::emulation
