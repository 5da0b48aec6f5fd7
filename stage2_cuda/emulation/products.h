// Products of a warpgroup (wgmma, compute capability 9.0): started by each thread, computed by each warp when
// it waits for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stage2_cuda/emulation/thread.h"
#include "stage2_cuda/warp_matrix.h"

namespace stagegpt::gpu::emulation {

constexpr unsigned kWarpgroupWarps = 4;

// Registers of a thread that products use. `fenced`: not touched since the last wgmma_fence of them.
struct ProductRegisters {
  bool fenced = false;
  unsigned in_flight = 0;  // products under way that use them
  bool waited = true;      // for the results, by a wgmma_wait that names them

  // Throws KernelError if a product that uses them is under way.
  void touch(const char* what);
};

// A thread's elements of an accumulator of 64 rows.
struct AccumulatorRegisters : ProductRegisters {
  AccumulatorRegisters(float* elements, unsigned columns_) : value(elements), columns(columns_) {}

  float* const value;  // while products are under way: before them
  const unsigned columns;
};

// Part of a tile, or of several tiles one behind the other: columns or rows 16k to 16k + 15.
struct TilePart {
  const std::byte* tile = nullptr;
  unsigned k = 0;
  bool rows = false;
};

// c = a·b or c += a·b. The left operand is a part of a tile or, if `a_registers` is set, `a`.
struct Product {
  AccumulatorRegisters* c = nullptr;
  ProductRegisters* a_registers = nullptr;
  FragmentA a = {};
  TilePart a_part = {}, b = {};
  unsigned columns = 0;  // of b and c
  bool accumulate = false;
  Where where;
};

// All functions are called by the running thread and throw KernelError.
class Products {
 public:
  void begin(const Product& product);
  void commit();
  // Computes the products of all groups but the last `groups`.
  void wait(unsigned groups, Where where);
  void check_none(const Thread& thread) const;
  // At the end of the block, by its last thread: no warp lacks a step of its warpgroup.
  void check_steps() const;
  // Before the next block.
  void forget_all();
  // The registers' lifetime ends.
  void give_up(const ProductRegisters* registers) noexcept;

 private:
  struct OfThread {
    std::vector<Product> products;
    std::vector<std::size_t> groups;  // products in each; the rest are not committed
  };
  // What all warps of a warpgroup do in the same order: `product` is empty for a wait.
  struct Step {
    Product product;
    std::size_t kept_groups = 0;

    std::string name() const;
  };
  struct OfWarpgroup {
    std::vector<Step> steps;  // of the warp that is first
    std::array<std::size_t, kWarpgroupWarps> of_warp = {};
  };
  static void compute(void* const (&lanes)[kWarpSize]);
  void compute(unsigned warp, std::size_t index);
  void step(unsigned warp, const Step& step);

  std::array<OfThread, kMaxBlockThreads> of_thread_;
  std::array<OfWarpgroup, kMaxBlockThreads / (kWarpgroupWarps * kWarpSize)> of_warpgroup_;
  bool used_ = false;
};

}  // namespace stagegpt::gpu::emulation
