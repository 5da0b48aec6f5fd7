// An interface for the part of the CUDA runtime that stage 2 uses. It has two implementations:
// cuda/runtime.cpp for a GPU, emulation/runtime.cpp for the emulator. Functions throw std::runtime_error with
// the cause, and UserError if the machine has no usable GPU.
#pragma once

#include <cstddef>
#include <string>

namespace stagegpt::gpu {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"; "emulated GPU"
  std::string id;            // identifies this device, independently of its index in a process
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
};

// Number of devices that this process can open; at least 1.
int device_count();
// Selects device `index` for all functions below. Throws UserError, with the remedy, if there is no driver or
// no such device, or if this program was not compiled for the device's architecture.
DeviceInfo open_device(int index);

// Properties of the device that was opened last: ten times its compute capability, and its multiprocessors.
int compute_capability();
int multiprocessors();

// ---- Memory ----
void* allocate(std::size_t bytes);  // device memory, aligned to 256 bytes; nullptr if out of memory
void deallocate(void* block) noexcept;
struct MemoryInfo {
  std::size_t free = 0, total = 0;
};
MemoryInfo memory_info();
// The address at which the host can access device memory: under emulation, another mapping of the same
// memory, used for poisoning; nullptr on a GPU.
void* host_view(void* device) noexcept;
// Page-locked host memory, for asynchronous copies; nullptr when there is none left.
void* allocate_pinned(std::size_t bytes);
void deallocate_pinned(void* block) noexcept;

// ---- Streams: asynchronous work, in order ----
using StreamHandle = void*;
StreamHandle make_stream();
void destroy_stream(StreamHandle stream) noexcept;
// Waits for all work of the stream. Throws if an error occurred in it.
void synchronize(StreamHandle stream);
// Copies are asynchronous: host memory must be pinned, and must not change until the copy is complete.
void copy_to_device(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void copy_to_host(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void copy_on_device(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void set_zero(void* out, std::size_t bytes, StreamHandle stream);

// ---- Events: points in a stream ----
using EventHandle = void*;
enum class EventKind { order, time };  // only the second kind has a time; recording it costs more
EventHandle make_event(EventKind kind);
void destroy_event(EventHandle event) noexcept;
void record(EventHandle event, StreamHandle stream);
void wait_for(EventHandle event);                                // on the host
void wait_for(StreamHandle stream, EventHandle event);           // makes later work of the stream wait
bool is_done(EventHandle event);                                 // reached, or never recorded
float milliseconds_between(EventHandle begin, EventHandle end);  // both of kind time, and reached

// ---- Graphs: work of a stream that is recorded once, and done as often as it is launched ----
// Between begin_capture() and the end of the capture, work that is submitted to the stream is recorded and
// not done: kernels, copies, set_zero(). The host may not wait for anything, and may use no events. A copy
// reads host memory whenever the graph is done. end_capture() throws OutOfMemory (caching_allocator.h) if the
// device has no room for the graph.
using GraphHandle = void*;
void begin_capture(StreamHandle stream);
GraphHandle end_capture(StreamHandle stream);
void abandon_capture(StreamHandle stream) noexcept;  // after an error
void launch_graph(GraphHandle graph, StreamHandle stream);
void destroy_graph(GraphHandle graph) noexcept;  // which is not being done

}  // namespace stagegpt::gpu
