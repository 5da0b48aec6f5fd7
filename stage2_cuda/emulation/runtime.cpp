// runtime.h for the emulated GPU.
#include "stage2_cuda/runtime.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/launch.h"
#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/emulation/streams.h"

namespace stagegpt::gpu {
namespace {

// A StreamHandle points to a SharedStream, an EventHandle to an Event.
using SharedStream = std::shared_ptr<emulation::Stream>;
struct Event {
  EventKind kind;
  std::optional<emulation::RecordedEvent> recorded = {};
};

struct CapturedWork {
  std::vector<std::function<void()>> items;
  DeviceWork work;  // captured
};
DeviceWork before_capture;  // what device_counts was

const SharedStream& stream_of(StreamHandle stream) { return *static_cast<SharedStream*>(stream); }
Event& event_of(EventHandle event) { return *static_cast<Event*>(event); }

constexpr std::size_t kPinnedAlignment = 4096;

std::chrono::steady_clock::time_point time_of(EventHandle event) {
  const auto& [kind, recorded] = event_of(event);
  check(kind == EventKind::time, "milliseconds_between: an event of kind order has no time");
  check(recorded && recorded->time(), "milliseconds_between: an event has not been reached yet");
  return *recorded->time();
}

// Submits work of the runtime, which reads and writes so many bytes of device memory.
template <class Work>
void submit_move(std::size_t read, std::size_t written, StreamHandle stream, Work work) {
  submit(stream, [=] {
    emulation::LaunchObserver* const observer = emulation::launch_observer;
    if (observer != nullptr) observer->moves(emulation::LaunchObserver::Mover::runtime, read, written);
    work();
  });
}

}  // namespace

int device_count() { return emulation::device_count(); }

DeviceInfo open_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count) {
    user_error("--device: ", index, ": this machine has ", count,
               count == 1 ? " emulated GPU" : " emulated GPUs",
               ", numbered from 0 (STAGEGPT_EMULATOR_DEVICES)");
  }
  return {.name = "emulated GPU",
          .id = concat("emulated ", index),
          .major = emulation::compute_capability() / 10,
          .minor = emulation::compute_capability() % 10,
          .multiprocessors = emulation::threads(),  // reads the environment, so that errors are reported now
          .memory_bytes = memory_info().total};
}

int compute_capability() { return emulation::compute_capability(); }
int multiprocessors() { return emulation::threads(); }

void* allocate(std::size_t bytes) {
  ++device_counts.allocations;
  return emulation::device_memory().allocate(bytes);
}

void deallocate(void* block) noexcept {
  emulation::finish_all_streams();
  emulation::device_memory().deallocate(block);
}

MemoryInfo memory_info() { return emulation::device_memory().info(); }

// nullptr for late streams: their pending work may still use a block that has been freed, and poisoned.
void* host_view(void* device) noexcept {
  return emulation::stream_time() != emulation::StreamTime::at_once ? nullptr
                                                                    : emulation::device_memory().view(device);
}

void* allocate_pinned(std::size_t bytes) {
  const std::size_t rounded = (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  return std::aligned_alloc(kPinnedAlignment, rounded);
}

void deallocate_pinned(void* block) noexcept {
  emulation::finish_all_streams();
  std::free(block);
}

StreamHandle make_stream() { return new SharedStream(emulation::make_stream()); }

void destroy_stream(StreamHandle stream) noexcept {
  emulation::finish_all_streams();
  delete static_cast<SharedStream*>(stream);
}

void submit(StreamHandle stream, std::function<void()> work) {
  stream == nullptr ? work() : stream_of(stream)->submit(std::move(work));
}

void synchronize(StreamHandle stream) {
  emulation::refuse_in_capture("synchronize");
  ++device_counts.waits;
  stream_of(stream)->finish();
}

void copy_to_device(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  ++device_counts.copies;
  memory.check_host_range(in, bytes, "copy_to_device");
  void* const to = memory.copied_range(out, bytes, "copy_to_device");
  submit_move(0, bytes, stream, [=] { std::memcpy(to, in, bytes); });
}

void copy_to_host(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  ++device_counts.copies;
  memory.check_host_range(out, bytes, "copy_to_host");
  const void* const from = memory.copied_range(in, bytes, "copy_to_host");
  submit_move(bytes, 0, stream, [=] { std::memcpy(out, from, bytes); });
}

void copy_on_device(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  ++device_counts.copies;
  void* const to = memory.copied_range(out, bytes, "copy_on_device");
  const void* const from = memory.copied_range(in, bytes, "copy_on_device");
  submit_move(bytes, bytes, stream, [=] { std::memmove(to, from, bytes); });
}

void set_zero(void* out, std::size_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  ++device_counts.fills;
  void* const to = emulation::device_memory().copied_range(out, bytes, "set_zero");
  submit_move(0, bytes, stream, [=] { std::memset(to, 0, bytes); });
}

EventHandle make_event(EventKind kind) { return new Event{kind}; }

void destroy_event(EventHandle event) noexcept { delete static_cast<Event*>(event); }

void record(EventHandle event, StreamHandle stream) {
  emulation::refuse_in_capture("record");
  event_of(event).recorded.emplace(stream_of(stream));
}

void wait_for(EventHandle event) {
  emulation::refuse_in_capture("wait_for");
  ++device_counts.waits;
  if (auto& recorded = event_of(event).recorded) recorded->reach();
}

void wait_for(StreamHandle stream, EventHandle event) {
  emulation::refuse_in_capture("wait_for");
  if (const auto& recorded = event_of(event).recorded) {
    stream_of(stream)->submit([reached = *recorded]() mutable { reached.reach_for_stream(); });
  }
}

bool is_done(EventHandle event) {
  emulation::refuse_in_capture("is_done");
  auto& recorded = event_of(event).recorded;
  return !recorded || recorded->is_reached();
}

float milliseconds_between(EventHandle begin, EventHandle end) {
  return std::chrono::duration<float, std::milli>(time_of(end) - time_of(begin)).count();
}

void begin_capture(StreamHandle stream) {
  stream_of(stream)->begin_capture();
  before_capture = device_counts.work();
}

GraphHandle end_capture(StreamHandle stream) {
  const DeviceWork work = device_counts.work() - before_capture;
  device_counts.take_back(work);
  return new CapturedWork{stream_of(stream)->end_capture(), work};
}

void abandon_capture(StreamHandle stream) noexcept { destroy_graph(end_capture(stream)); }

void launch_graph(GraphHandle graph, StreamHandle stream) {
  emulation::refuse_in_capture("launch_graph");
  const auto& [items, work] = *static_cast<CapturedWork*>(graph);
  device_counts.launched_graph(work);
  for (const std::function<void()>& item : items) submit(stream, item);
}

void destroy_graph(GraphHandle graph) noexcept { delete static_cast<CapturedWork*>(graph); }

}  // namespace stagegpt::gpu
