// Settings of the emulator: initially from the environment (docs/emulator.md); a program can change them.
#pragma once

#include <cstdint>

namespace stagegpt::gpu::emulation {

enum class Order { forward, reverse, random };

// Which of a block's ready threads runs next: the first, the last, or a random one. The random numbers depend
// on the seed, the number of launches since the order was set, and the block.
struct ThreadOrder {
  Order order = Order::forward;
  std::uint64_t seed = 0;
};

// The first call of any of these functions reads the environment, and throws UserError if it is malformed.
ThreadOrder thread_order();
void set_thread_order(ThreadOrder order);
// Returns the index of the next launch, for the random order.
std::uint64_t next_launch();

// Each OS thread has up to 1024 stacks with their guard pages, and Linux allows a program 65530 mappings.
inline constexpr int kMostThreads = 16;
// Number of OS threads that run blocks; initially OpenMP's number of threads, at most kMostThreads.
int threads();
void set_threads(int count);

// When new streams do their work: when it is submitted; when it is waited for; or, if it is another stream
// that waits, with all work that has been submitted after it (streams.h).
enum class StreamTime { at_once, late, ahead };
StreamTime stream_time();
void set_stream_time(StreamTime time);

// Ten times the compute capability of the device: STAGEGPT_EMULATOR_CAPABILITY (7.5, 8.0 or 9.0), or 80.
int compute_capability();
void set_compute_capability(int capability);

// Number of emulated GPUs of a node: STAGEGPT_EMULATOR_DEVICES, or 8.
int device_count();

}  // namespace stagegpt::gpu::emulation
