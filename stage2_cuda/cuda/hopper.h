// hopper.h for nvcc.
#pragma once

#include <cstdint>

#include "stage2_cuda/cuda/launch.h"
#include "stage2_cuda/cuda/tensor_map.h"

#define STAGEGPT_SHARED_STRUCT(type, name)                                 \
  extern __shared__ __align__(16) unsigned char stagegpt_dynamic_shared[]; \
  type& name = *reinterpret_cast<type*>(::stagegpt::gpu::aligned_tiles(stagegpt_dynamic_shared))

namespace stagegpt::gpu {

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ inline unsigned char* aligned_tiles(unsigned char* memory) {
  return memory + (kTileAlignment - shared_address(memory) % kTileAlignment) % kTileAlignment;
}
// ---- Barriers ----

class Barrier {
 public:
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(address()) : "memory");
  }
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(address()), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(unsigned parity) {
    while (!has_ended(parity)) {
    }
  }
  __device__ unsigned address() const { return shared_address(this); }

 private:
  // Suspends the thread for a while if the phase has not ended.
  __device__ bool has_ended(unsigned parity) const {
    unsigned ended;
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(address()), "r"(parity)
        : "memory");
    return ended != 0;
  }

  std::uint64_t state_;
};

__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  fence_proxy_async();
}
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
template <int N>
__device__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}
template <int N>
__device__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}

// ---- Tiles, and copies to them ----

// An operand of wgmma in shared memory (PTX ISA, "Matrix descriptor format"): the address, 128-byte swizzle,
// and two distances: from eight rows to the next eight, and from one tile to the next, for an operand whose
// rows run through several tiles.
struct TileDescriptor {
  std::uint64_t bits;

  __device__ explicit TileDescriptor(unsigned address)
      : bits(std::uint64_t{1} << 62 | std::uint64_t{1024 >> 4} << 32 |
             static_cast<std::uint64_t>(kTileBytes >> 4) << 16 | (address & 0x3ffff) >> 4) {}
};
// Whether rows of the tile are those of the right operand, or columns of the left one.
struct TileColumns : TileDescriptor {
  static constexpr int kTransposed = 0;
};
struct TileRows : TileDescriptor {
  static constexpr int kTransposed = 1;
};

class alignas(kTileAlignment) SharedTile {
 public:
  __device__ void store_pair(int row, int column, Bf16Pair pair) {
    *reinterpret_cast<Bf16Pair*>(bytes_ + at(row, column)) = pair;
  }
  __device__ Bf16x8 load8(int row, int column) const {
    return gpu::load8(reinterpret_cast<const Bf16*>(bytes_ + at(row, column)), 0);
  }
  __device__ void store8(int row, int column, Bf16x8 eight) {
    gpu::store8(reinterpret_cast<Bf16*>(bytes_ + at(row, column)), 0, eight);
  }
  __device__ const Bf16* row_of_matrix(int row, int column) const {
    return reinterpret_cast<const Bf16*>(bytes_ + at(row, column));
  }
  __device__ TileColumns columns(int k) const { return {TileDescriptor(shared_address(bytes_) + 32 * k)}; }
  __device__ TileRows rows(int k) const { return {TileDescriptor(shared_address(bytes_) + 2048 * k)}; }
  __device__ unsigned address() const { return shared_address(bytes_); }

 private:
  __device__ static int at(int row, int column) {
    return 128 * row + 16 * ((column >> 3) ^ (row & 7)) + 2 * (column & 7);
  }

  unsigned char bytes_[kTileBytes];
};
static_assert(sizeof(SharedTile) == kTileBytes);

template <int N>
struct WideTile {
  SharedTile part[N];

  __device__ TileColumns columns(int k) const { return part[0].columns(k); }
  __device__ TileRows rows(int k) const { return part[0].rows(k); }
};

__device__ inline FragmentA ldmatrix_x4(const SharedTile& tile, int row, int column) {
  return ldmatrix_x4(tile.row_of_matrix(row, column), 0);
}

using Float2 = float2;

template <int N>
class alignas(128) SharedFloats {
 public:
  __device__ float operator[](int i) const { return values_[i]; }
  __device__ Float2 pair(int i) const { return *reinterpret_cast<const float2*>(values_ + i); }
  __device__ unsigned address() const { return shared_address(values_); }

 private:
  float values_[N];
};

__device__ inline void tma_load(SharedTile& to, const TensorMap& map, int column, int slot, int t, int b,
                                Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];"
      :
      : "r"(to.address()), "l"(&map), "r"(barrier.address()), "r"(column), "r"(slot), "r"(t), "r"(b)
      : "memory");
}

template <int N>
__device__ void bulk_load(SharedFloats<N>& to, const float* from, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(to.address()), "l"(__cvta_generic_to_global(from)),
                 "r"(static_cast<unsigned>(N * sizeof(float))), "r"(barrier.address())
               : "memory");
}

// ---- Products ----

template <int N>
class AccumulatorOf {
 public:
  static constexpr int kElements = N / 2;  // of a thread

  __device__ float& operator[](int i) { return v_[i]; }
  __device__ float operator[](int i) const { return v_[i]; }
  // The compiler does not move what uses the registers across this place.
  __device__ void pin() {
    STAGEGPT_UNROLL for (int i = 0; i < kElements; ++i) asm volatile("" : "+f"(v_[i]) : : "memory");
  }

 private:
  float v_[kElements];
};
using Accumulator = AccumulatorOf<64>;

class Operand {
 public:
  __device__ void round(const Accumulator& a) {
    STAGEGPT_UNROLL for (int k = 0; k < 4; ++k) {
      STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) {
        parts_[k].pair[i] = rounded_pair(a[8 * k + 2 * i], a[8 * k + 2 * i + 1]);
      }
    }
  }
  __device__ Bf16Pair pair(int k, int i) const { return parts_[k].pair[i]; }
  __device__ const FragmentA& part(int k) const { return parts_[k]; }

  // The compiler does not move what uses the registers across this place.
  __device__ void pin() {
    STAGEGPT_UNROLL for (int i = 0; i < 16;
                         ++i) asm volatile("" : "+r"(parts_[i / 4].pair[i % 4]) : : "memory");
  }

 private:
  FragmentA parts_[4];
};

template <class Registers>
__device__ void pin(Registers& registers) {
  registers.pin();
}
template <class Registers, int N>
__device__ void pin(Registers (&registers)[N]) {
  STAGEGPT_UNROLL for (int i = 0; i < N; ++i) registers[i].pin();
}

template <class... Registers>
__device__ void wgmma_fence(Registers&... registers) {
  (pin(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int N, class... Registers>
__device__ void wgmma_wait(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
  (pin(registers), ...);
}

// Registers i, i + 1, … of an accumulator, as operands of an instruction, and their names in it.
#define STAGEGPT_8(c, i)                                                                      \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define STAGEGPT_32(c, i) STAGEGPT_8(c, i), STAGEGPT_8(c, i + 8), STAGEGPT_8(c, i + 16), STAGEGPT_8(c, i + 24)
#define STAGEGPT_NAMES_32                                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
  "%28,%29,%30,%31"
#define STAGEGPT_NAMES_64                                                                                    \
  STAGEGPT_NAMES_32                                                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57" \
  ",%58,%59,%60,%61,%62,%63"
#define STAGEGPT_NAMES_128                                                                                   \
  STAGEGPT_NAMES_64                                                                                          \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89" \
  ",%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"     \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define STAGEGPT_WGMMA(columns, names) \
  " wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" names "}, "

template <class Right>
__device__ void wgmma(Accumulator& c, TileColumns a, Right b, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n" STAGEGPT_WGMMA(
                   "64", STAGEGPT_NAMES_32) "%32, %33, p, 1, 1, 0, %35;\n}"
               : STAGEGPT_32(c, 0)
               : "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate)), "n"(Right::kTransposed));
}
template <class Right>
__device__ void wgmma(Accumulator& c, const FragmentA& a, Right b, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n" STAGEGPT_WGMMA(
                   "64", STAGEGPT_NAMES_32) "{%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
               : STAGEGPT_32(c, 0)
               : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "l"(b.bits),
                 "r"(static_cast<int>(accumulate)), "n"(Right::kTransposed));
}

template <class Left, class Right>
__device__ void wgmma(AccumulatorOf<128>& c, Left a, Right b, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n" STAGEGPT_WGMMA(
                   "128", STAGEGPT_NAMES_64) "%64, %65, p, 1, 1, %67, %68;\n}"
               : STAGEGPT_32(c, 0), STAGEGPT_32(c, 32)
               : "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate)), "n"(Left::kTransposed),
                 "n"(Right::kTransposed));
}
template <class Left, class Right>
__device__ void wgmma(AccumulatorOf<256>& c, Left a, Right b, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n" STAGEGPT_WGMMA(
                   "256", STAGEGPT_NAMES_128) "%128, %129, p, 1, 1, %131, %132;\n}"
               : STAGEGPT_32(c, 0), STAGEGPT_32(c, 32), STAGEGPT_32(c, 64), STAGEGPT_32(c, 96)
               : "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate)), "n"(Left::kTransposed),
                 "n"(Right::kTransposed));
}

}  // namespace stagegpt::gpu
