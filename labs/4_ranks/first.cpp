// The first check of lab 4 (HANDOUT.md, step 3): divisible_ranges, without MPI.
#include <cstdio>
#include <exception>

#include "stage1_mpi/sync/buckets.cpp"

int main() {
  // 10 units of 64·3 elements, of which two have 1,536 bytes, and three a little more than 2,000.
  constexpr std::int64_t unit = 64 * 3;
  for (const auto& [bytes, units] : {std::pair{1536, 2}, {2000, 3}, {1, 1}, {1 << 20, 10}}) {
    try {
      std::int64_t end = 10 * unit;
      for (const stagegpt::ArenaRange& range : stagegpt::divisible_ranges(10 * unit, 3, bytes)) {
        const std::int64_t begin = std::max<std::int64_t>(0, end - units * unit);
        if (range.begin != begin || range.end != end) {
          std::printf("%d bytes: a range is [%lld, %lld), not [%lld, %lld)\n", bytes,
                      static_cast<long long>(range.begin), static_cast<long long>(range.end),
                      static_cast<long long>(begin), static_cast<long long>(end));
          return 1;
        }
        end = begin;
      }
      if (end != 0)
        return std::printf("%d bytes: no range has the elements before %lld\n", bytes,
                           static_cast<long long>(end)),
               1;
    } catch (const std::exception& error) {
      return std::puts(error.what()), 1;
    }
  }
  std::puts("right: divisible_ranges");
}
