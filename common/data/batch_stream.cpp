#include "common/data/batch_stream.h"

#include "common/base/error.h"

namespace stagegpt {

BatchStream::BatchStream(const DataLoader& data, const StepDivision& division, Timeline* timeline)
    : data_(data), division_(division), timeline_(timeline) {
  fetch();
}

SubBatch BatchStream::next() {
  SubBatch sub_batch = fetched_.get();
  if (++pass_ == division_.passes()) {
    pass_ = 0;
    position_ += division_.samples();
  }
  fetch();
  return sub_batch;
}

void BatchStream::seek(std::int64_t position) {
  check(position >= 0, "batch stream: position ", position);
  position_ = position;
  pass_ = 0;
  fetch();
}

void BatchStream::fetch() {
  const std::int64_t index = division_.first_sub_batch + pass_ / division_.micro_steps;
  const std::int64_t micro = pass_ % division_.micro_steps;
  const std::int64_t sample = micro * division_.batch_size + index * division_.sub_batch_size();
  fetched_ = std::async(std::launch::async, [this, sample, first = position_ + sample] {
    const Recorded span(timeline_, "fetch", SpanKind::data);
    return SubBatch{data_.shuffled(first, division_.sub_batch_size()), sample};
  });
}

}  // namespace stagegpt
