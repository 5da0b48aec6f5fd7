// Flash attention in bf16 for compute capability 9.0, formulas in attention.cuh: what its three kernels
// share. attention_wgmma_forward.cuh has out and lse, attention_wgmma_backward.cuh has dq, and dk and dv.
//
// Each of `kWarpgroups` warpgroups of a block has 64 rows of a head of its own (queries, or keys), and they
// walk together over tiles of 64 rows of two other matrices (keys and values, or queries and dout). One more
// warpgroup only starts copies: the rows of the others, and the tiles of the walk, into a ring of stages. A
// block does one piece of work after the other, so copies for the next one begin before this one ends. Rows
// of a head are in tiles of 64 columns, with zeros beyond the head.
//
// Every number is computed by one thread of one block in a fixed order: the same bits in every run, on every
// number of multiprocessors.
#pragma once

#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/wgmma.cuh"

namespace stagegpt::gpu {

__host__ __device__ constexpr std::int64_t padded_to_tiles(std::int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

// `tiles`: parts of a head's rows, each the work of a block at a time. Blocks take single tiles, those with
// the most steps first; or, if `paired`, two tiles of one head. All pairs have the same amount of work, and
// the second tile finds the head's keys in the cache.
struct WgmmaCall {
  int T, NH, HS, heads, tiles;
  bool paired;
  float scale, log2_scale;  // the latter times log2 e
  DropoutArgument dropout;
  unsigned dropped_words;  // a score is dropped if its random word is below this
  bool dropout_in_blocks;  // whether four neighbouring scores have the words of one block of Philox

  __device__ std::int64_t channels() const { return static_cast<std::int64_t>(NH) * HS; }
  const std::int32_t*& device_pointer() { return dropout.device_pointer(); }
  // Rows of a head in the statistics that the kernels of the backward share.
  __host__ __device__ int padded_rows() const { return static_cast<int>(padded_to_tiles(T)); }
};

// The pieces of work of this block, one after the other. Of a head's tiles, rank 0 has the most steps.
class Work {
 public:
  __device__ bool more(const WgmmaCall& call) const { return at_ / 2 < call.heads * per_head(call); }
  __device__ int head(const WgmmaCall& call) const {
    return call.paired ? at_ / 2 / per_head(call) : at_ / 2 % call.heads;
  }
  __device__ int rank(const WgmmaCall& call) const {
    if (!call.paired) return at_ / 2 / call.heads;
    const int rank = at_ / 2 % per_head(call);
    return is_second() ? call.tiles - 1 - rank : rank;
  }
  __device__ void next(const WgmmaCall& call) {
    const int blocks = static_cast<int>(gridDim.x), at = at_ / 2, rank = at % per_head(call);
    if (!call.paired) {  // every other round in reverse order, so that all blocks get as much work
      at_ += 2 * (2 * (blocks - at % blocks) - 1);
    } else if (!is_second() && rank != call.tiles - 1 - rank) {
      ++at_;
    } else {
      at_ = 2 * (at + blocks);
    }
  }

 private:
  __device__ static int per_head(const WgmmaCall& call) {
    return call.paired ? (call.tiles + 1) / 2 : call.tiles;
  }
  __device__ bool is_second() const { return at_ % 2 != 0; }

  // Twice the index of the pair or tile, and one more for a pair's second tile: in one register.
  int at_ = 2 * static_cast<int>(blockIdx.x);
};

// What a block works on: `steps` tiles of the walk, for its rows first, first + 1, … of a head.
struct RowsOfBlock {
  int head, first, steps;
};

// What a warpgroup works on: 64 rows, from `row` on.
struct RowsOfWarpgroup {
  int head, row;
};

// Where a head begins in part `part` of a tensor (B,T,parts,NH,HS).
__device__ inline std::int64_t head_begin(const WgmmaCall& call, int head, int part, int parts) {
  return static_cast<std::int64_t>(head / call.NH) * call.T * parts * call.channels() +
         part * call.channels() + head % call.NH * call.HS;
}

// Part `part` of a tensor (B,T,parts,NH,HS).
struct PartOfTensor {
  const TensorMap* map;
  int part;
};

// kOwn matrices of which each warpgroup has 64 rows, in kBuffers buffers. kBackwards: the walk is over the
// tiles with no later rows than the block, the last first; otherwise over those with no earlier ones, the
// first first. So the first tile that a warpgroup needs is that of its own rows, with the diagonal of the
// scores.
template <int kBlocks, int kWarpgroups_, int kOwn, int kBuffers, int kStages, bool kBackwards>
struct Walk {
  static constexpr int kWarpgroups = kWarpgroups_, kRows = kTileRows * kWarpgroups;
  static constexpr int kThreads = kWarpgroup * (kWarpgroups + 1);
  using Registers = WarpgroupRegisters<kWarpgroups>;

  using Tiles = SharedTile[kBlocks];
  using Stages = Ring<kStages>;
  struct Memory {
    Tiles own[kBuffers][kWarpgroups][kOwn], walked[kStages][2];
    SharedFloats<kTileRows> statistics[kStages][2];  // of the rows of a walked tile, if they are queries
    Barrier own_full[kBuffers][kWarpgroups], own_empty[kBuffers][kWarpgroups];
    Barrier full[kStages], empty[kStages];
  };

  __device__ static RowsOfBlock rows_of(const WgmmaCall& call, const Work& work) {
    const int head = work.head(call), rank = work.rank(call);
    const int first = kRows * (kBackwards ? call.tiles - 1 - rank : rank);
    const int end = kBackwards && first + kRows < call.T ? first + kRows : call.T;
    const int begin_tile = kBackwards ? 0 : first / kTileRows, end_tile = (end + kTileRows - 1) / kTileRows;
    return {head, first, end_tile - begin_tile};
  }
  __device__ static int walked_row(const RowsOfBlock& rows, int step) {
    return kBackwards ? kTileRows * (rows.steps - 1 - step) : rows.first + kTileRows * step;
  }
  // Steps before the first one that a warpgroup needs; `row` is its first row.
  __device__ static int skipped_steps(const WgmmaCall& call, const RowsOfBlock& rows, int row) {
    if (row >= call.T) return rows.steps;
    return kBackwards ? rows.steps - 1 - row / kTileRows : (row - rows.first) / kTileRows;
  }

  __device__ static RowsOfWarpgroup rows_at(const WgmmaCall& call, int place) {
    return {place / call.tiles, kRows * (place % call.tiles) + kTileRows * warpgroup_index()};
  }

  // Called by all threads, first.
  __device__ static void init(Memory& memory) {
    if (threadIdx.x == 0) {
      for (int w = 0; w < kBuffers * kWarpgroups; ++w) {
        memory.own_full[w / kWarpgroups][w % kWarpgroups].init(1);
        memory.own_empty[w / kWarpgroups][w % kWarpgroups].init(4);  // warps
      }
      for (int stage = 0; stage < kStages; ++stage) {
        memory.full[stage].init(1);
        memory.empty[stage].init(4 * kWarpgroups);
      }
      fence_barrier_init();
    }
    __syncthreads();
  }

  __device__ static void load(Tiles& to, const PartOfTensor& from, const WgmmaCall& call,
                              const RowsOfBlock& rows, int row, Barrier& barrier) {
    STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) {
      tma_load(to[i], *from.map, 64 * i, from.part * call.NH + rows.head % call.NH, row, rows.head / call.NH,
               barrier);
    }
  }

  // The work of the warpgroup that copies. `statistics`: two matrices of padded_rows() for each head, or
  // null.
  __device__ static void copy(Memory& memory, const WgmmaCall& call, const PartOfTensor (&own)[kOwn],
                              const PartOfTensor (&walked)[2], const float* statistics) {
    fewer_registers<Registers::kFew>();
    if (threadIdx.x != kWarpgroup * kWarpgroups) return;
    Ring<kBuffers> buffer;
    Stages ring;
    for (Work work; work.more(call); work.next(call), buffer.next()) {
      const RowsOfBlock rows = rows_of(call, work);
      for (int w = 0; w < kWarpgroups; ++w) {
        memory.own_empty[buffer.stage()][w].wait(buffer.parity() ^ 1);
        Barrier& full = memory.own_full[buffer.stage()][w];
        full.arrive_and_expect(kOwn * kBlocks * kTileBytes);
        STAGEGPT_UNROLL for (int i = 0; i < kOwn; ++i) {
          load(memory.own[buffer.stage()][w][i], own[i], call, rows, rows.first + kTileRows * w, full);
        }
      }
      for (int step = 0; step < rows.steps; ++step, ring.next()) {
        const int row = walked_row(rows, step);
        memory.empty[ring.stage()].wait(ring.parity() ^ 1);
        Barrier& full = memory.full[ring.stage()];
        constexpr int kFloats = 2 * kTileRows * static_cast<int>(sizeof(float));
        full.arrive_and_expect(2 * kBlocks * kTileBytes + (statistics != nullptr ? kFloats : 0));
        STAGEGPT_UNROLL for (int i = 0; i < 2; ++i) {
          load(memory.walked[ring.stage()][i], walked[i], call, rows, row, full);
          if (statistics == nullptr) continue;
          const std::int64_t at = (std::int64_t{i} * call.heads + rows.head) * call.padded_rows() + row;
          bulk_load(memory.statistics[ring.stage()][i], statistics + at, full);
        }
      }
    }
  }

  // The work of the other warpgroups: calls use(place, steps, own tiles, their barrier, ring) for each piece
  // of work in which the warpgroup has rows: rows_at(call, place), of which `place` takes one register. It
  // walks over so many steps, the first of which has the diagonal, each at the ring's stage, which it
  // releases.
  template <class Use>
  __device__ static void compute(Memory& memory, const WgmmaCall& call, const Use& use) {
    more_registers<Registers::kMany>();
    const int w = warpgroup_index();
    Ring<kBuffers> buffer;
    Stages ring;
    for (Work work; work.more(call); work.next(call), buffer.next()) {
      const RowsOfBlock rows = rows_of(call, work);
      const int row = rows.first + kTileRows * w, skipped = skipped_steps(call, rows, row);
      for (int step = 0; step < skipped; ++step, ring.next()) {
        memory.full[ring.stage()].wait(ring.parity());
        release(memory, ring.stage());
      }
      Barrier& full = memory.own_full[buffer.stage()][w];
      if (skipped < rows.steps) {
        use(rows.head * call.tiles + rows.first / kRows, rows.steps - skipped, memory.own[buffer.stage()][w],
            OwnBarrier{full, buffer.parity()}, ring);
      } else {
        full.wait(buffer.parity());
      }
      fence_proxy_async();  // the next copy comes after what use() has stored
      __syncwarp();
      if (lane_index() == 0) memory.own_empty[buffer.stage()][w].arrive();
    }
  }
  struct OwnBarrier {
    Barrier& barrier;
    unsigned parity;

    __device__ void wait() const { barrier.wait(parity); }
  };
  // This warp has finished with the tiles of a stage.
  __device__ static void release(Memory& memory, int stage) {
    __syncwarp();
    if (lane_index() == 0) memory.empty[stage].arrive();
  }
};

// ---- Products of tiles ----

// A group of products: c = a · bᵀ.
template <int kBlocks>
__device__ void multiply(Accumulator& c, const SharedTile (&a)[kBlocks], const SharedTile (&b)[kBlocks]) {
  STAGEGPT_UNROLL for (int k = 0; k < 4 * kBlocks; ++k) {
    wgmma(c, a[k / 4].columns(k % 4), b[k / 4].columns(k % 4), k > 0);
  }
  wgmma_commit();
}

// A group of products: c += p · b.
template <int kBlocks>
__device__ void add_product(Accumulator (&c)[kBlocks], Operand& p, const SharedTile (&b)[kBlocks]) {
  STAGEGPT_UNROLL for (int k = 0; k < 4; ++k) {
    STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) wgmma(c[i], p.part(k), b[i].rows(k), true);
  }
  wgmma_commit();
}

template <int kBlocks>
__device__ void set_zero(Accumulator (&c)[kBlocks]) {
  STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) set_zero(c[i]);
}

// Writes c, times a factor for each of the thread's two rows, to rows first, first + 1, … of a head that
// begins at `to`, with `ld` elements from row to row. Passes through tiles which the warpgroup has finished
// with, of which each warp uses its rows.
template <int kBlocks>
__device__ void write_rows(Bf16* to, std::int64_t ld, bool accumulate, const Accumulator (&c)[kBlocks],
                           float factor, float factor_8, SharedTile (&through)[kBlocks], int first,
                           const WgmmaCall& call) {
  STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) {
    STAGEGPT_UNROLL for (int e = 0; e < 32; e += 2) {
      const float f = e / 2 % 2 == 0 ? factor : factor_8;
      through[i].store_pair(accumulator_row(e), accumulator_column(e),
                            rounded_pair(c[i][e] * f, c[i][e + 1] * f));
    }
  }
  __syncwarp();
  const int lane = lane_index(), column = 8 * (lane % 8);
  STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) {
    STAGEGPT_UNROLL for (int r = 0; r < 16; r += 4) {
      const int row = accumulator_warp_row() + r + lane / 8;
      if (first + row >= call.T || 64 * i + column >= call.HS) continue;
      const std::int64_t at = (first + row) * ld + 64 * i + column;
      const Bf16x8 value = through[i].load8(row, column);
      if (!accumulate) {
        store8(to, at, value);
        continue;
      }
      Floats<8> sum = load<8>(static_cast<const Bf16*>(to), at);
      const Floats<8> more = floats_of(value);
      STAGEGPT_UNROLL for (int j = 0; j < 8; ++j) sum.v[j] += more.v[j];
      store<8>(to, at, sum);
    }
  }
}

// ---- Host ----

// The call for kernels of a walk, and its grid.
template <class W>
WgmmaCall wgmma_call(const AttentionSize& s, const Dropout& dropout) {
  const auto heads = static_cast<int>(s.B * s.NH), tiles = static_cast<int>(parts(s.T, W::kRows));
  // Pairs, unless the last round of blocks leaves more than a tenth of the multiprocessors' time unused.
  const std::int64_t pairs = std::int64_t{heads} * ((tiles + 1) / 2), all = multiprocessors();
  const bool paired = 10 * pairs >= 9 * all * parts(pairs, all);
  const DropoutArgument argument(dropout);
  const auto dropped =  // p may be rounded to 1
      static_cast<unsigned>(std::min(std::ceil(double{static_cast<float>(dropout.p)} * 0x1p24), 0x1p24 - 1));
  return {static_cast<int>(s.T),
          static_cast<int>(s.NH),
          static_cast<int>(s.HS),
          heads,
          tiles,
          paired,
          s.scale,
          s.scale * kLog2E,
          argument,
          dropped << 8,  // numbers have 24 bits: philox.h
          argument.in_blocks() && s.T % 4 == 0};
}
inline dim3 wgmma_grid(const WgmmaCall& call) {
  const std::int64_t work = std::int64_t{call.heads} * (call.paired ? (call.tiles + 1) / 2 : call.tiles);
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(work, multiprocessors())));
}

// A tensor (B,T,parts,NH,HS).
inline TensorMap tensor_map(const Bf16* data, int parts_, const AttentionSize& s) {
  return make_tensor_map(data, {s.HS, parts_ * s.NH, s.T, s.B});
}

}  // namespace stagegpt::gpu
