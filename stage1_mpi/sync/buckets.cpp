#include "stage1_mpi/sync/buckets.h"

#include <algorithm>

namespace stagegpt {
namespace {

constexpr std::int64_t kElementBytes = sizeof(float);

std::int64_t end_of(const Parameter& row) { return row.offset + row.arena_shape().numel(); }

// From the end of the arena to its beginning.
std::vector<ArenaRange> ranges_of_whole_parameters(const ParameterTable& table, std::int64_t bytes) {
  std::vector<ArenaRange> ranges;
  bool open = false;
  for (std::size_t i = table.size(); i-- > 0;) {
    if (!open) ranges.push_back({end_of(table[i]), end_of(table[i])});
    ranges.back().begin = table[i].offset;
    open = ranges.back().size() * kElementBytes < bytes;
  }
  return ranges;
}

}  // namespace

Buckets::Buckets(const ParameterTable& table, std::int64_t bytes)
    : Buckets(table, ranges_of_whole_parameters(table, bytes)) {}

Buckets::Buckets(const ParameterTable& table, const std::vector<ArenaRange>& ranges) {
  for (const ArenaRange& range : ranges) buckets_.push_back({range, 0});
  for (const Parameter& row : table.rows()) {
    const auto starts_below_its_end = [&](const Bucket& bucket) { return bucket.range.begin < end_of(row); };
    const auto ends_at_its_beginning = [&](const Bucket& bucket) { return bucket.range.end <= row.offset; };
    const auto first = std::ranges::find_if(buckets_, starts_below_its_end);
    const auto end = std::find_if(first, buckets_.end(), ends_at_its_beginning);
    check(first != end, "buckets: none has elements of ", row.name);
    if (row.trained) std::for_each(first, end, [](Bucket& bucket) { ++bucket.parameters; });
    of_.emplace_back(first - buckets_.begin(), end - 1 - buckets_.begin());
  }
}

std::vector<ArenaRange> divisible_ranges(std::int64_t arena_size, int ranks, std::int64_t bytes) {
  const std::int64_t unit = ParameterTable::kAlignment * ranks;
  check(arena_size % unit == 0, "an arena of ", arena_size, " elements among ", ranks, " ranks");
  const std::int64_t units = std::max<std::int64_t>(1, (bytes / kElementBytes + unit - 1) / unit);
  std::vector<ArenaRange> ranges;
  for (std::int64_t end = arena_size; end > 0; end = ranges.back().begin)
    ranges.push_back({std::max<std::int64_t>(0, end - units * unit), end});
  return ranges;
}

BucketOrder::BucketOrder(Buckets buckets) : buckets_(std::move(buckets)) { begin_step(); }

void BucketOrder::begin_step() {
  started_ = 0;
  missing_.clear();
  for (const Bucket& bucket : buckets_.all()) missing_.push_back(bucket.parameters);
}

std::vector<ArenaRange> BucketOrder::ready(int i) {
  for (std::size_t b = buckets_.first_of(i); b <= buckets_.last_of(i); ++b) --missing_[b];
  std::vector<ArenaRange> complete;
  while (started_ < missing_.size() && missing_[started_] == 0)
    complete.push_back(buckets_.all()[started_++].range);
  return complete;
}

std::vector<ArenaRange> BucketOrder::finish() {
  std::vector<ArenaRange> left;
  while (started_ < missing_.size()) left.push_back(buckets_.all()[started_++].range);
  begin_step();
  return left;
}

}  // namespace stagegpt
