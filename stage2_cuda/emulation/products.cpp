#include "stage2_cuda/emulation/products.h"

#include <limits>
#include <numeric>
#include <utility>

#include "common/tensor/half_floats.h"
#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/tiles.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kRows = 16, kTerms = 16;  // of a warp's product

bool same(const TilePart& a, const TilePart& b) { return a.tile == b.tile && a.k == b.k && a.rows == b.rows; }
bool same(const Product& a, const Product& b) {
  return same(a.a_part, b.a_part) && same(a.b, b.b) && a.columns == b.columns &&
         a.accumulate == b.accumulate && same_place(a.where, b.where);
}

// Element (`term`, `at`) of an operand, `at` being a row of the left or a column of the right one.
float number(const TilePart& part, std::size_t term, std::size_t at) {
  const std::size_t k = part.k * kTerms + term, i = at % kTileColumns;
  std::uint16_t bits = 0;
  std::memcpy(&bits,
              part.tile + at / kTileColumns * kSwizzledBytes + (part.rows ? swizzled(k, i) : swizzled(i, k)),
              sizeof bits);
  return float_of_bf16(bits);
}

using LeftRows = float[kRows][kTerms];

// A lane's part of the left operand.
void take_fragment(LeftRows& a, const FragmentA& fragment, unsigned lane) {
  for (unsigned i = 0; i < 4; ++i) {
    float* const pair = &a[lane / 4 + i % 2 * 8][2 * (lane % 4) + i / 2 * 8];
    pair[0] = float_of_bf16(static_cast<std::uint16_t>(fragment.pair[i]));
    pair[1] = float_of_bf16(static_cast<std::uint16_t>(fragment.pair[i] >> 16));
  }
}

// c += a·b, or c = a·b, in the 64 columns from `first` on. c(lane): a lane's elements of these columns.
template <class OfLane>
void multiply(const LeftRows& a, const Product& product, unsigned first, const OfLane& c) {
  float b[kTerms][kTileColumns], sums[kRows][kTileColumns];
  const auto for_elements = [&](const auto& use) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      for (unsigned i = 0; i < kTileColumns / 2; ++i)
        use(c(lane)[i], sums[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + 2 * (lane % 4) + i % 2]);
    }
  };
  for_elements([&](float element, float& sum) { sum = product.accumulate ? element : 0; });
  for (std::size_t k = 0; k < kTerms; ++k) {
    for (std::size_t column = 0; column < kTileColumns; ++column)
      b[k][column] = number(product.b, k, first + column);
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t k = 0; k < kTerms; ++k) {
      for (std::size_t column = 0; column < kTileColumns; ++column)
        sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for_elements([](float& element, float sum) { element = sum; });
}

// The tiles of the right operand.
template <class Use>
void for_right_tiles(const Product& product, const Use& use) {
  for (std::size_t i = 0; i < product.columns / kTileColumns; ++i) use(product.b.tile + i * kSwizzledBytes);
}

}  // namespace

void ProductRegisters::touch(const char* what) {
  if (in_flight != 0) fail(what, " while a product that uses these registers is under way");
  if (!waited) fail(what, " after a product that no wgmma_wait of these registers has ended");
  fenced = false;
}

void Products::begin(const Product& product) {
  const auto check = [&](const ProductRegisters& registers, const char* what) {
    if (!registers.fenced) {
      fail("wgmma in ", to_string(product.where), ": its ", what,
           " has been used or changed since the last wgmma_fence that names it");
    }
  };
  check(*product.c, "accumulator");
  if (product.a_registers != nullptr) check(*product.a_registers, "left operand");
  Tiles& tiles = current_block->tiles();
  if (product.a_registers == nullptr) tiles.begin_product(product.a_part.tile, product.where);
  for_right_tiles(product, [&](const std::byte* tile) { tiles.begin_product(tile, product.where); });
  ++product.c->in_flight;
  product.c->waited = false;
  if (product.a_registers != nullptr) {
    ++product.a_registers->in_flight;
    product.a_registers->waited = false;
  }
  of_thread_[current_thread->number].products.push_back(product);
  used_ = true;
}

void Products::commit() {
  used_ = true;
  OfThread& self = of_thread_[current_thread->number];
  self.groups.push_back(self.products.size() -
                        std::accumulate(self.groups.begin(), self.groups.end(), std::size_t{0}));
}

void Products::wait(unsigned groups, Where where) {
  unsigned keep = groups;
  current_block->together("wgmma_wait", &keep, compute, where);
}

void Products::compute(void* const (&lanes)[kWarpSize]) {
  Products& all = current_block->products();
  const unsigned warp = current_thread->warp;
  const OfThread& first = all.of_thread_[warp * kWarpSize];
  const std::size_t keep = *static_cast<const unsigned*>(lanes[0]);
  const std::size_t ended = first.groups.size() - std::min(keep, first.groups.size());
  const std::size_t count = std::accumulate(
      first.groups.begin(), first.groups.begin() + static_cast<std::ptrdiff_t>(ended), std::size_t{0});
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (all.of_thread_[warp * kWarpSize + lane].groups != first.groups)
      fail("wgmma_wait: lane ", lane, " has other groups of products than lane 0");
  }
  all.step(warp, {.product = {}, .kept_groups = keep});
  for (std::size_t i = 0; i < count; ++i) all.compute(warp, i);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    OfThread& self = all.of_thread_[warp * kWarpSize + lane];
    self.products.erase(self.products.begin(), self.products.begin() + static_cast<std::ptrdiff_t>(count));
    self.groups.erase(self.groups.begin(), self.groups.begin() + static_cast<std::ptrdiff_t>(ended));
  }
}

void Products::step(unsigned warp, const Step& step) {
  used_ = true;
  OfWarpgroup& group = of_warpgroup_[warp / kWarpgroupWarps];
  std::size_t& at = group.of_warp[warp % kWarpgroupWarps];
  if (at == group.steps.size()) group.steps.push_back(step);
  const Step& first = group.steps[at++];
  if (!same(step.product, first.product) || step.kept_groups != first.kept_groups)
    fail("this warp ", step.name(), ", where another warp of its warpgroup ", first.name());
}

std::string Products::Step::name() const {
  if (product.b.tile == nullptr) return concat("calls wgmma_wait<", kept_groups, '>');
  const auto offset = reinterpret_cast<const char*>(product.b.tile) -
                      static_cast<const char*>(current_block->shared().begin());
  return concat("starts wgmma in ", to_string(product.where), " with part ", product.b.k,
                " of the tile at byte ", offset, " on the right");
}

void Products::check_steps() const {
  for (std::size_t i = 0; used_ && i < of_warpgroup_.size(); ++i) {
    const auto& [steps, of_warp] = of_warpgroup_[i];
    for (std::size_t warp = 0; warp < kWarpgroupWarps; ++warp) {
      if (of_warp[warp] == steps.size()) continue;
      fail("at the end, warp ", kWarpgroupWarps * i + warp, " has done ", of_warp[warp], " of the ",
           steps.size(), " steps of its warpgroup; in the next, another warp ", steps[of_warp[warp]].name());
    }
  }
}

// In f32. Each element adds its 16 products in order; a GPU's order is not documented.
void Products::compute(unsigned warp, std::size_t index) {
  const auto of_lane = [&](unsigned lane) -> Product& {
    return of_thread_[warp * kWarpSize + lane].products[index];
  };
  const Product& product = of_lane(0);
  step(warp, {.product = product});
  if (launch_observer != nullptr) launch_observer->count_call("wgmma", product.where, kWarpSize);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const Product& self = of_lane(lane);
    if (!same(self, product))
      fail("wgmma in ", to_string(self.where), ": lane ", lane, " starts another product than lane 0");
    if (self.c == nullptr || (product.a_registers != nullptr) != (self.a_registers != nullptr))
      fail("wgmma in ", to_string(self.where), ": registers were given up before wgmma_wait");
  }
  LeftRows a;
  for (unsigned lane = 0; lane < kWarpSize && product.a_registers != nullptr; ++lane)
    take_fragment(a, of_lane(lane).a, lane);
  for (std::size_t row = 0; row < kRows && product.a_registers == nullptr; ++row) {
    for (std::size_t k = 0; k < kTerms; ++k)
      a[row][k] = number(product.a_part, k, warp % kWarpgroupWarps * kRows + row);
  }
  for (unsigned first = 0; first < product.columns; first += kTileColumns) {
    const auto c = [&](unsigned lane) { return of_lane(lane).c->value + first / 2; };
    multiply(a, product, first, c);
  }
  Tiles& tiles = current_block->tiles();
  if (product.a_registers == nullptr) tiles.end_product(product.a_part.tile, warp);
  for_right_tiles(product, [&](const std::byte* tile) { tiles.end_product(tile, warp); });
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const Product& self = of_lane(lane);
    --self.c->in_flight;
    if (self.a_registers != nullptr) --self.a_registers->in_flight;
  }
}

void Products::check_none(const Thread& thread) const {
  if (!of_thread_[thread.number].products.empty())
    current_block->fail(thread, "exits before wgmma_wait, with products under way");
}

void Products::forget_all() {
  if (!std::exchange(used_, false)) return;
  for (OfThread& self : of_thread_) {
    self.products.clear();
    self.groups.clear();
  }
  of_warpgroup_ = {};
}

void Products::give_up(const ProductRegisters* registers) noexcept {
  for (Product& product : of_thread_[current_thread->number].products) {
    if (product.c == registers) product.c = nullptr;
    if (product.a_registers == registers) product.c = nullptr;
  }
}

}  // namespace stagegpt::gpu::emulation
