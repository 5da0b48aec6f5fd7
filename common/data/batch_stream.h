// One rank's share of the samples, in sub-batches. The next one is fetched in the background while the
// current one is computed.
#pragma once

#include <cstdint>
#include <future>

#include "common/data/data_loader.h"
#include "common/data/step_division.h"
#include "common/profile/timeline.h"

namespace stagegpt {

struct SubBatch {
  Batch batch;
  std::int64_t first_sample = 0;  // index within the step
};

// Each step takes the next samples() samples (see data_loader.h). The sub-batches of the ranks are
// disjoint and together cover the step. A position has the same meaning for every division.
class BatchStream {
 public:
  // `data` and `timeline` are borrowed. The timeline, if there is one, records when batches are fetched.
  BatchStream(const DataLoader& data, const StepDivision& division, Timeline* timeline = nullptr);

  // The next sub-batch. The order is: the first owned sub-batch of each micro-step, then the second of each.
  // Rethrows errors of fetching it.
  SubBatch next();
  const StepDivision& division() const { return division_; }
  std::int64_t seq_len() const { return data_.seq_len(); }
  // The samples that all ranks together have taken in complete steps. This is the state of the stream.
  std::int64_t position() const { return position_; }
  // Continues with the step at a position. The cost does not depend on the distance.
  void seek(std::int64_t position);

 private:
  void fetch();

  const DataLoader& data_;
  StepDivision division_;
  Timeline* timeline_;
  std::int64_t position_ = 0;
  std::int64_t pass_ = 0;  // index of the next sub-batch among this rank's of the step
  std::future<SubBatch> fetched_;
};

}  // namespace stagegpt
