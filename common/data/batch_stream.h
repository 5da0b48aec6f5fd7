// One rank's share of the samples, sub-batch after sub-batch, each fetched while the one before is computed.
#pragma once

#include <cstdint>
#include <future>

#include "common/data/data_loader.h"
#include "common/data/step_division.h"

namespace stagegpt {

struct SubBatch {
  Batch batch;
  std::int64_t first_sample = 0;  // counted within the step
};

// Each step takes the next samples() samples (see data_loader.h). The ranks' shares are disjoint and together
// complete, and a position means the same for every division.
class BatchStream {
 public:
  // `data` is borrowed.
  BatchStream(const DataLoader& data, const StepDivision& division);

  // The first owned sub-batch of each micro-step in turn, then the second of each. Throws what fetching it
  // threw.
  SubBatch next();
  std::int64_t seq_len() const { return data_.seq_len(); }
  // Samples that all ranks together have taken in whole steps: the state of the stream.
  std::int64_t position() const { return position_; }
  // Goes on with the step at a position, in no time whatever its distance.
  void seek(std::int64_t position);

 private:
  void fetch();

  const DataLoader& data_;
  StepDivision division_;
  std::int64_t position_ = 0;
  std::int64_t pass_ = 0;  // of this rank in the step at position_, whose sub-batch is fetched
  std::future<SubBatch> fetched_;
};

}  // namespace stagegpt
