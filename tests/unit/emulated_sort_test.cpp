// The order in which tokens are sorted by id, against the C++ library's stable sort, in every thread order.
#include <algorithm>
#include <numeric>

#include "stage2_cuda/kernels/sort_tokens.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

class SortTokens : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, SortTokens, kOrders, order_name);

// Of `range` ids, spread over 0 to rows - 1.
std::vector<std::int32_t> spread_ids(std::int64_t n, std::int32_t rows, std::int32_t range) {
  std::vector<std::int32_t> ids = random_ids(1, 0, n, range);
  for (std::int32_t& id : ids) {
    id = range == 1 ? rows - 1 : static_cast<std::int32_t>(std::int64_t{id} * (rows - 1) / (range - 1));
  }
  return ids;
}

std::vector<std::int32_t> sorted_order(const std::vector<std::int32_t>& ids, std::int32_t rows) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const DeviceArray<std::int32_t> device(ids),
      scratch(static_cast<std::size_t>(gpu::SortTiles(n).scratch_size(n)));
  const std::int32_t* order = gpu::sort_tokens(nullptr, device.data(), n, rows, scratch.data());
  std::vector<std::int32_t> host(ids.size());
  gpu::copy_to_host(host.data(), order, host.size() * sizeof(std::int32_t), nullptr);
  return host;
}

void expect_sorted(std::int64_t n, std::int32_t rows, std::int32_t range) {
  const std::vector<std::int32_t> ids = spread_ids(n, rows, range);
  std::vector<std::int32_t> expected(ids.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::ranges::stable_sort(expected, {}, [&](std::int32_t token) { return ids[token]; });
  EXPECT_EQ(sorted_order(ids, rows), expected) << n << " tokens, " << range << " of " << rows << " ids";
}

TEST_P(SortTokens, is_stable_with_ids_of_one_two_and_three_digits) {
  for (const std::int64_t n : {1, 31, 33, 1024, 1025, 2300}) {
    for (const std::int32_t rows : {1, 2, 256, 257, 65536, 70001}) {
      for (const std::int32_t range : {1, std::min(3, rows), rows}) expect_sorted(n, rows, range);
    }
  }
}

// More than 64 tiles of 1,024 tokens.
TEST_P(SortTokens, divides_many_tokens_among_64_tiles) {
  constexpr std::int64_t kTokens = 66000;
  EXPECT_EQ(gpu::SortTiles(kTokens).count, 52);
  EXPECT_EQ(gpu::SortTiles(1 << 20).count, 64);
  expect_sorted(kTokens, 200, 200);
}

}  // namespace
}  // namespace stagegpt::test
