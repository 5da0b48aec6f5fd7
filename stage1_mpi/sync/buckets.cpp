#include "stage1_mpi/sync/buckets.h"

#include <algorithm>

namespace stagegpt {

Buckets::Buckets(const ParameterTable& table, std::int64_t bytes) : bucket_of_(table.size()) {
  bool open = false;
  for (std::size_t i = table.size(); i-- > 0;) {
    const Parameter& row = table[i];
    const std::int64_t end = row.offset + row.arena_shape().numel();
    if (!open) buckets_.push_back({{end, end}, 0});
    Bucket& bucket = buckets_.back();
    bucket.range.begin = row.offset;
    if (row.trained) ++bucket.parameters;
    bucket_of_[i] = buckets_.size() - 1;
    open = bucket.range.size() * static_cast<std::int64_t>(sizeof(float)) < bytes;
  }
}

}  // namespace stagegpt
