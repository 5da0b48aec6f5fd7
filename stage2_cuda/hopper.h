// What kernels for compute capability 9.0 use besides launch.h. Threads work in warpgroups of four warps.
//
//   STAGEGPT_SHARED_STRUCT(Memory, memory)    all dynamic shared memory of the launch, as a struct of the
//                                             types below; the launch gives shared_bytes_of<Memory>()
//   SharedTile                                64 rows of 64 bf16, 8 KiB, in the 128-byte swizzle: at column
//                                             8c of row r are the 16 bytes that a plain matrix has at column
//                                             8·(c ^ r % 8)
//     tile.store_pair(row, column, pair)      two bf16; the column is even
//     tile.load8(row, column)                 eight bf16; the column is a multiple of eight
//     tile.store8(row, column, eight)
//     ldmatrix_x4(tile, row, column)          as in launch.h: each lane gives a row of eight bf16
//   WideTile<N>                               wide.part[i], N tiles, one behind the other: they are 64 rows
//                                             of 64·N columns, or 64·N rows of 64 columns
//   SharedFloats<N>                           floats[i]; floats.pair(i): two, i is even
//   Barrier                                   an mbarrier: counts arrivals and bytes, in phases. A phase ends
//                                             with the last of `arrivals` arrivals and of the expected bytes
//     barrier.init(arrivals)                  by one thread, then fence_barrier_init() and __syncthreads()
//     barrier.arrive()
//     barrier.arrive_and_expect(bytes)        arrives, and lets the phase wait for so many bytes of copies,
//                                             which are started afterwards
//     barrier.wait(parity)                    until the phase of this parity has ended: the first phase has
//                                             parity 0. Before it ends, a wait for parity 1 returns at once
//   TensorMap, tma_load(tile, map, column, slot, t, b, barrier)
//                                             starts a copy of 64 rows t, t + 1, … and 64 columns of a tensor
//                                             (B,T,slots,columns); the tile gets zeros outside. Counts 8 KiB,
//                                             zeros included. A kernel's parameter is a `const
//                                             __grid_constant__ TensorMap`, made by make_tensor_map(): the
//                                             address and the rows in bytes are multiples of 16
//   bulk_load(floats, from, barrier)          starts a copy of N floats, 16-byte aligned
//   fence_proxy_async()                       between this thread's stores to a tile and a copy to it or a
//                                             product that reads it, which a barrier orders after the fence
//   named_barrier(id, threads)                a barrier of some warps of the block; ids 1 to 15
//   more_registers<N>(), fewer_registers<N>() give each thread of the warpgroup N registers
//
// Products, called by all threads of a warpgroup, in the same order:
//
//   AccumulatorOf<N>                          64×N floats, N = 64, 128 or 256; Accumulator has 64. Lane l of
//                                             warp w of the warpgroup has, as element 4j + 2r + e, row
//                                             16w + l/4 + 8r, column 8j + 2·(l % 4) + e
//   Operand                                   64×64 bf16, in registers
//     operand.round(accumulator)              element by element
//     operand.pair(k, i)                      elements 8k + 2i and 8k + 2i + 1 of the accumulator, rounded
//   wgmma(c, a, b, accumulate)                starts c = a·b, or c += a·b, a 64×16, b 16×64. a:
//                                             tile.columns(k), columns 16k to 16k + 15, or operand.part(k);
//                                             b: tile.columns(k), transposed, or tile.rows(k)
//   wgmma(wide_c, a, b, accumulate)           the same for b 16×N, N = 128 or 256, of a WideTile. a:
//                                             tile.columns(k), or tile.rows(k), transposed
//   wgmma_fence(registers…)                   what was written to these accumulators and operands before is
//                                             used by products that are started afterwards
//   wgmma_commit()                            the products since the last commit are a group
//   wgmma_wait<N>(registers…)                 until at most the last N groups are under way. Only then these
//                                             accumulators may be read, these operands changed
//
// The emulator runs them with the meaning above. It lets copies land as early or as late as possible, by its
// thread order, and computes products in wgmma_wait. It finds: a deadlock, with what the barrier lacks; more
// bytes copied than expected, more arrivals than counted; a barrier that is not initialised, or not fenced,
// or whose maker this thread has not met; a tile or floats that are used before this thread has waited for
// the copy (a wrong parity), or while a later copy is under way; a copy or a store to what a product reads,
// or to what another warp has used with no barrier of any kind in between; a missing fence_proxy_async,
// wgmma_fence or wgmma_wait; registers that are used while a product is under way; lanes of a warp, or warps
// of a warpgroup, that start different products or do not wait for the same; stores and loads by several
// lanes of a warp without __syncwarp. It does not find what fewer_registers() costs, nor a race of a lane
// that has not itself waited at a Barrier at which another lane of its warp has.
#pragma once

#include <cstddef>

namespace stagegpt::gpu {

// Tiles are aligned to the eight rows after which the swizzle repeats.
inline constexpr unsigned kTileAlignment = 1024;
inline constexpr int kTileBytes = 64 * 64 * 2;

// The dynamic shared memory of a launch for a STAGEGPT_SHARED_STRUCT, in bytes.
template <class Memory>
constexpr std::size_t shared_bytes_of() {
  return sizeof(Memory) + kTileAlignment;
}

}  // namespace stagegpt::gpu

#if defined(__CUDACC__)
#include "stage2_cuda/cuda/hopper.h"
#else
#include "stage2_cuda/emulation/hopper.h"
#endif
