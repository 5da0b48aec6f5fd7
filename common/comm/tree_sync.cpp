#include "common/comm/tree_sync.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/sums.h"

namespace stagegpt {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements: small enough to be added while they are in the cache
constexpr std::int64_t kInFlight = 4;     // chunks: latency occurs once, not for each chunk

Tensor part(const Tensor& arena, const ArenaRange& range) { return arena.slice(range.begin, {range.size()}); }

// Empty if the tensor has no chunk i.
Tensor chunk_of(const Tensor& tensor, std::int64_t i) {
  const std::int64_t begin = std::min(tensor.numel(), i * kChunk);
  return tensor.slice(begin, {std::min(kChunk, tensor.numel() - begin)});
}

}  // namespace

std::vector<TreeSync::Level> TreeSync::levels(std::int64_t arena_size) const {
  const int rank = communicator_.rank(), size = communicator_.size();
  check(std::has_single_bit(static_cast<unsigned>(size)), "tree: ", size, " ranks");
  const std::int64_t block = backend_.norm_block();
  std::vector<Level> levels;
  ArenaRange range{0, arena_size};
  for (int distance = 1; distance < size; distance *= 2) {
    const std::int64_t blocks = backend_.norm_blocks(range.size());
    const std::int64_t middle = std::min(range.end, range.begin + (blocks + 1) / 2 * block);
    const ArenaRange lower{range.begin, middle}, upper{middle, range.end};
    const bool keeps_upper = (rank & distance) != 0;
    levels.push_back({rank ^ distance, keeps_upper ? upper : lower, keeps_upper ? lower : upper});
    range = levels.back().own;
  }
  return levels;
}

ArenaParts TreeSync::owned(std::int64_t arena_size) const {
  const std::vector<Level> all = levels(arena_size);
  return {all.empty() ? ArenaRange{0, arena_size} : all.back().own};
}

void TreeSync::finish(Parameters& parameters) {
  const Tensor& grads = parameters.grads();
  arena_size_ = grads.numel();
  if (communicator_.size() == 1) return;
  clock_.start(grads);
  for (const Level& level : levels(grads.numel()))
    exchange_and_add(part(grads, level.other), part(grads, level.own), level.partner);
  clock_.stop();
}

void TreeSync::exchange_and_add(const Tensor& out, const Tensor& sum, int partner) {
  const std::int64_t longest = std::max(out.numel(), sum.numel()), chunks = (longest + kChunk - 1) / kChunk;
  const std::int64_t width = std::min(kChunk, sum.numel());
  const Tensor buffers = backend_.allocate(sum.dtype(), {std::min(kInFlight, chunks), width});
  const auto buffer = [&](std::int64_t i) {
    return buffers.slice(i % kInFlight * width, chunk_of(sum, i).shape());
  };
  std::array<std::unique_ptr<Pending>, kInFlight> pending;
  const auto start = [&](std::int64_t i) {
    pending[static_cast<std::size_t>(i % kInFlight)] =
        communicator_.start_exchange(chunk_of(out, i), buffer(i), partner);
  };
  for (std::int64_t i = 0; i < std::min(kInFlight, chunks); ++i) start(i);
  for (std::int64_t i = 0; i < chunks; ++i) {
    pending[static_cast<std::size_t>(i % kInFlight)]->wait();
    const Tensor own = chunk_of(sum, i);
    if (own.numel() > 0) backend_.run(Add{own, own, buffer(i)});
    if (i + kInFlight < chunks) start(i + kInFlight);
  }
}

std::vector<TreeSync::Level> TreeSync::levels_of_blocks(std::int64_t arena_size) const {
  const auto blocks = [&](const ArenaRange& range) {
    return ArenaRange{backend_.norm_blocks(range.begin), backend_.norm_blocks(range.end)};
  };
  std::vector<Level> all = levels(arena_size);
  for (Level& level : all) level = {level.partner, blocks(level.own), blocks(level.other)};
  return all;
}

void TreeSync::gather(const Tensor& arena, const std::vector<Level>& levels) {
  wait();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level)
    communicator_.exchange(part(arena, level->own), part(arena, level->other), level->partner);
}

void TreeSync::sum_squared_norms(const Tensor& sum, const Tensor& parts) {
  const std::vector<Level> levels = levels_of_blocks(arena_size_);
  const Tensor all = backend_.allocate(DType::f64, {backend_.norm_blocks(arena_size_)});
  backend_.copy(levels.empty() ? all : part(all, levels.back().own), parts);
  gather(all, levels);
  backend_.run(AddNormBlocks{sum, all});
}

}  // namespace stagegpt
