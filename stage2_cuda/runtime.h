// The part of the CUDA runtime that stage 2 uses, in our own words, so that it has two implementations:
// cuda/runtime.cpp on a GPU, emulation/runtime.cpp on the host. Functions throw std::runtime_error with the
// cause, UserError where the machine has no GPU to run on.
#pragma once

#include <cstddef>
#include <string>

namespace stagegpt::gpu {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"; "emulated GPU"
  std::string id;            // of this one, whatever number a process knows it by
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
};

// Devices that this process may open; at least one.
int device_count();
// Makes device `index` the one that everything below is about. What is missing on this machine (a driver, a
// device, the device's architecture in this program) is told with what would help.
DeviceInfo open_device(int index);

// ---- Memory ----
void* allocate(std::size_t bytes);  // on the device, aligned to 256 bytes; nullptr when there is none left
void deallocate(void* block) noexcept;
struct MemoryInfo {
  std::size_t free = 0, total = 0;
};
MemoryInfo memory_info();
// Where the host may follow a device address: nullptr on a GPU. Under emulation another mapping of the same
// memory, for those who poison it.
void* host_view(void* device) noexcept;
// Memory of the host that copies to and from the device can use while the host goes on; nullptr when there is
// none left.
void* allocate_pinned(std::size_t bytes);
void deallocate_pinned(void* block) noexcept;

// ---- Streams: work in order, while the host goes on ----
using StreamHandle = void*;
StreamHandle make_stream();
void destroy_stream(StreamHandle stream) noexcept;
// Waits for all work of the stream, and tells of errors that happened in it.
void synchronize(StreamHandle stream);
// Host memory is pinned, and stays as it is until the copy is done.
void copy_to_device(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void copy_to_host(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void copy_on_device(void* out, const void* in, std::size_t bytes, StreamHandle stream);
void set_zero(void* out, std::size_t bytes, StreamHandle stream);

// ---- Events: points in a stream ----
using EventHandle = void*;
enum class EventKind { order, time };  // only the second kind can be asked for times; recording it costs more
EventHandle make_event(EventKind kind);
void destroy_event(EventHandle event) noexcept;
void record(EventHandle event, StreamHandle stream);
void wait_for(EventHandle event);                                // on the host
void wait_for(StreamHandle stream, EventHandle event);           // what the stream gets from now on waits
bool is_done(EventHandle event);                                 // reached, or never recorded
float milliseconds_between(EventHandle begin, EventHandle end);  // of kind time, recorded, and waited for

}  // namespace stagegpt::gpu
