#include "common/data/batch_stream.h"

#include "common/base/error.h"

namespace stagegpt {

BatchStream::BatchStream(const DataLoader& data, const StepDivision& division)
    : data_(data), division_(division) {
  fetch();
}

Part BatchStream::next() {
  Part part = fetched_.get();
  if (++part_ == division_.owned_shards * division_.micro_steps) {
    part_ = 0;
    position_ += division_.samples();
  }
  fetch();
  return part;
}

void BatchStream::seek(std::int64_t position) {
  check(position >= 0, "batch stream: position ", position);
  position_ = position;
  part_ = 0;
  fetch();
}

void BatchStream::fetch() {
  const std::int64_t shard = division_.first_shard + part_ / division_.micro_steps;
  const std::int64_t micro = part_ % division_.micro_steps;
  const std::int64_t sample = micro * division_.batch_size + shard * division_.part_size();
  fetched_ = std::async(std::launch::async, [this, sample, first = position_ + sample] {
    return Part{data_.shuffled(first, division_.part_size()), sample};
  });
}

}  // namespace stagegpt
