#include "common/data/batch_stream.h"

#include "common/error.h"

namespace stagegpt {

BatchStream::BatchStream(const DataLoader& data, std::int64_t batch_size, int rank, int ranks)
    : data_(data), batch_size_(batch_size), first_(batch_size / ranks * rank), share_(batch_size / ranks) {
  if (const std::int64_t below = share_ * ranks; below != batch_size) {
    user_error("--batch-size: ", batch_size, " does not divide among ", ranks, " ranks; ",
               below > 0 ? concat(below, " or ") : "", below + ranks, " would");
  }
  fetch();
}

Batch BatchStream::next() {
  Batch batch = fetched_.get();
  position_ += batch_size_;
  fetch();
  return batch;
}

void BatchStream::seek(std::int64_t position) {
  check(position >= 0, "batch stream: position ", position);
  position_ = position;
  fetch();
}

void BatchStream::fetch() {
  fetched_ = std::async(std::launch::async,
                        [this, first = position_ + first_] { return data_.shuffled(first, share_); });
}

}  // namespace stagegpt
