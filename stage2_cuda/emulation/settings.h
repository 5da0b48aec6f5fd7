// How kernels are emulated: what the environment says (docs/emulator.md), until a program says otherwise.
#pragma once

#include <cstdint>

namespace stagegpt::gpu::emulation {

enum class Order { forward, reverse, random };

// Which thread of a block goes on where several could: the first, the last, or one drawn at random, anew each
// time. What is drawn depends on the seed, on how many launches there were since the order was set, and on
// the block.
struct ThreadOrder {
  Order order = Order::forward;
  std::uint64_t seed = 0;
};

// The first call of each of these reads the environment, and throws UserError when that is malformed.
ThreadOrder thread_order();
void set_thread_order(ThreadOrder order);
// Counts launches for the random order.
std::uint64_t next_launch();

// Each OS thread has up to 1024 stacks with their guard pages, and Linux allows a program 65530 mappings.
inline constexpr int kMostThreads = 16;
// How many OS threads run blocks side by side; at first as many as OpenMP would use, at most kMostThreads.
int threads();
void set_threads(int count);

// Whether streams that are made from now on do their work as late as they may (streams.h).
bool late_streams();
void set_late_streams(bool late);

// How many GPUs the ranks of a node find, as STAGEGPT_EMULATOR_DEVICES says, or 8.
int device_count();

}  // namespace stagegpt::gpu::emulation
