// hopper.h for the emulator.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "stage2_cuda/emulation/launch.h"
#include "stage2_cuda/emulation/products.h"
#include "stage2_cuda/emulation/tiles.h"

#define STAGEGPT_SHARED_STRUCT(type, name)                                                                   \
  static constexpr ::stagegpt::gpu::emulation::SharedDeclaration stagegpt_##name##_declaration{#name, 4, 0}; \
  type& name = *static_cast<type*>(::stagegpt::gpu::emulation::current_block->tiles().memory(                \
      stagegpt_##name##_declaration, sizeof(type)))

namespace stagegpt::gpu {

// ---- Barriers ----

class Barrier {
 public:
  using Where = std::source_location;

  void init(int arrivals, Where where = Where::current()) {
    emulation::current_block->barriers().init(state_, arrivals, where);
  }
  void arrive(Where where = Where::current()) {
    emulation::current_block->barriers().arrive(state_, 0, "Barrier::arrive", where);
  }
  void arrive_and_expect(int bytes, Where where = Where::current()) {
    emulation::current_block->barriers().arrive(state_, bytes, "Barrier::arrive_and_expect", where);
  }
  void wait(unsigned parity, Where where = Where::current()) {
    emulation::current_block->barriers().wait(state_, parity, where);
  }
  std::uint64_t& state() { return state_; }

 private:
  std::uint64_t state_;
};

inline void fence_proxy_async() { emulation::current_block->tiles().fence(); }
inline void fence_barrier_init() { emulation::current_block->barriers().fence_init(); }
inline void named_barrier(int id, int threads, std::source_location where = std::source_location::current()) {
  emulation::current_block->barriers().named(id, threads, where);
}
template <int N>
void more_registers() {}
template <int N>
void fewer_registers() {}

// ---- Tiles, and copies to them ----

class alignas(kTileAlignment) SharedTile {
 public:
  void store_pair(int row, int column, Bf16Pair pair) { store(row, column, pair); }
  Bf16x8 load8(int row, int column) const {
    const std::byte* const from = bytes_ + at(row, column);
    emulation::current_block->tiles().read(this, from, sizeof(Bf16x8));
    Bf16x8 value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  void store8(int row, int column, Bf16x8 eight) { store(row, column, eight); }
  emulation::TilePart columns(int k) const { return {bytes_, static_cast<unsigned>(k), false}; }
  emulation::TilePart rows(int k) const { return {bytes_, static_cast<unsigned>(k), true}; }
  std::byte* bytes() { return bytes_; }

 private:
  static std::size_t at(int row, int column) {
    return emulation::swizzled(static_cast<std::size_t>(row), static_cast<std::size_t>(column));
  }
  template <class Value>
  void store(int row, int column, const Value& value) {
    std::byte* const to = bytes_ + at(row, column);
    emulation::current_block->tiles().write(this, to, sizeof value);
    std::memcpy(to, &value, sizeof value);
  }

  std::byte bytes_[kTileBytes];
};

template <int N>
struct WideTile {
  SharedTile part[N];

  emulation::TilePart columns(int k) const { return part[0].columns(k); }
  emulation::TilePart rows(int k) const { return part[0].rows(k); }
};

inline FragmentA ldmatrix_x4(const SharedTile& tile, int row, int column,
                             std::source_location where = std::source_location::current()) {
  const auto words = std::bit_cast<emulation::MatrixRow>(tile.load8(row, column));
  return emulation::exchange_rows("ldmatrix_x4", words, false, where);
}

struct Float2 {
  float x, y;
};

template <int N>
class alignas(128) SharedFloats {
 public:
  float operator[](int i) const {
    emulation::current_block->tiles().read(this, values_ + i, sizeof(float));
    return values_[i];
  }
  Float2 pair(int i) const { return {(*this)[i], (*this)[i + 1]}; }
  float* values() { return values_; }

 private:
  float values_[N];
};

struct TensorMap {
  const Bf16* data;
  std::array<std::int64_t, 4> extents;  // columns, slots, T, B

  const Bf16*& device_pointer() { return data; }
};
// Throws KernelError for what cuTensorMapEncodeTiled refuses.
TensorMap make_tensor_map(const Bf16* data, const std::array<std::int64_t, 4>& extents);

void tma_load(SharedTile& to, const TensorMap& map, int column, int slot, int t, int b, Barrier& barrier,
              std::source_location where = std::source_location::current());

namespace emulation {
void bulk_load(void* to, const float* from, std::size_t bytes, Barrier& barrier, Where where);
}

template <int N>
void bulk_load(SharedFloats<N>& to, const float* from, Barrier& barrier,
               std::source_location where = std::source_location::current()) {
  emulation::bulk_load(to.values(), from, N * sizeof(float), barrier, where);
}

// ---- Products ----

template <int N>
class AccumulatorOf : private emulation::AccumulatorRegisters {
 public:
  static constexpr int kElements = N / 2;  // of a thread

  AccumulatorOf() : AccumulatorRegisters(values_, N) { std::fill_n(values_, kElements, NAN); }
  ~AccumulatorOf() {
    if (in_flight != 0) emulation::current_block->products().give_up(this);
  }
  AccumulatorOf(const AccumulatorOf&) = delete;
  AccumulatorOf& operator=(const AccumulatorOf&) = delete;

  float& operator[](int i) {
    touch("uses an accumulator");
    return values_[i];
  }
  float operator[](int i) const { return const_cast<AccumulatorOf&>(*this)[i]; }
  emulation::AccumulatorRegisters& registers() { return *this; }

 private:
  float values_[kElements];
};
using Accumulator = AccumulatorOf<64>;

class Operand : private emulation::ProductRegisters {
 public:
  struct Part {
    Operand& operand;
    FragmentA fragment;
  };

  Operand() = default;
  ~Operand() {
    if (in_flight != 0) emulation::current_block->products().give_up(this);
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  void round(const Accumulator& a) {
    touch("changes an operand");
    for (int i = 0; i < 16; ++i)
      parts_[static_cast<std::size_t>(i / 4)].pair[i % 4] = rounded_pair(a[2 * i], a[2 * i + 1]);
  }
  // Also while a product reads the operand.
  Bf16Pair pair(int k, int i) const { return parts_[static_cast<std::size_t>(k)].pair[i]; }
  Part part(int k) { return {*this, parts_[static_cast<std::size_t>(k)]}; }
  emulation::ProductRegisters& registers() { return *this; }

 private:
  std::array<FragmentA, 4> parts_ = {};
};

namespace emulation {

inline constexpr int kMostAccumulators = 2;  // in an array that wgmma_fence and wgmma_wait name

template <class Registers, class Use>
void for_registers(Registers& registers, const Use& use) {
  use(registers.registers());
}
template <class Registers, int N, class Use>
void for_registers(Registers (&registers)[N], const Use& use) {
  static_assert(N <= kMostAccumulators);
  for (Registers& each : registers) use(each.registers());
}

// An argument of wgmma_wait, with the place of the call.
struct Awaited {
  Awaited() = default;
  template <class Registers>
  Awaited(Registers& registers, Where place = Where::current()) : where(place) {
    for_registers(registers, [&](ProductRegisters& each) { all[count++] = &each; });
  }
  void end() const;  // after the wait

  std::array<ProductRegisters*, kMostAccumulators> all = {};
  std::size_t count = 0;
  Where where;
};

}  // namespace emulation

template <class... Registers>
void wgmma_fence(Registers&... registers) {
  (emulation::for_registers(registers, [](emulation::ProductRegisters& each) { each.fenced = true; }), ...);
}
inline void wgmma_commit() { emulation::current_block->products().commit(); }

template <int N>
void wgmma_wait(const emulation::Awaited& a, const emulation::Awaited& b = {},
                const emulation::Awaited& c = {}, const emulation::Awaited& d = {}) {
  emulation::current_block->products().wait(N, a.where);
  for (const emulation::Awaited* each : {&a, &b, &c, &d}) each->end();
}
template <int N>
void wgmma_wait(std::source_location where = std::source_location::current()) {
  emulation::current_block->products().wait(N, where);
}

template <int N>
void wgmma(AccumulatorOf<N>& c, const emulation::TilePart& a, const emulation::TilePart& b, bool accumulate,
           std::source_location where = std::source_location::current()) {
  emulation::current_block->products().begin({.c = &c.registers(),
                                              .a_part = a,
                                              .b = b,
                                              .columns = c.registers().columns,
                                              .accumulate = accumulate,
                                              .where = where});
}
inline void wgmma(Accumulator& c, const Operand::Part& a, const emulation::TilePart& b, bool accumulate,
                  std::source_location where = std::source_location::current()) {
  emulation::current_block->products().begin({.c = &c.registers(),
                                              .a_registers = &a.operand.registers(),
                                              .a = a.fragment,
                                              .b = b,
                                              .columns = c.registers().columns,
                                              .accumulate = accumulate,
                                              .where = where});
}

}  // namespace stagegpt::gpu
