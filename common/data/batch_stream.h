// One rank's share of the samples, batch after batch, fetched while the step before is computed.
#pragma once

#include <cstdint>
#include <future>

#include "common/data/data_loader.h"

namespace stagegpt {

// Each batch takes the next `batch_size` samples (see data_loader.h); rank r of R has the r-th R-th of them.
// So the ranks' shares are disjoint and together complete, and a position means the same for every number of
// ranks.
class BatchStream {
 public:
  // `data` is borrowed. Throws UserError when batch_size does not divide among the ranks.
  BatchStream(const DataLoader& data, std::int64_t batch_size, int rank, int ranks);

  // The share of the next batch. Throws what fetching it threw.
  Batch next();
  std::int64_t seq_len() const { return data_.seq_len(); }
  // Samples that all ranks together have taken: the state of the stream.
  std::int64_t position() const { return position_; }
  // Goes on from a position, in no time whatever its distance.
  void seek(std::int64_t position);

 private:
  void fetch();

  const DataLoader& data_;
  std::int64_t batch_size_, first_, share_;  // samples of a batch: all, those before this rank's, this rank's
  std::int64_t position_ = 0;
  std::future<Batch> fetched_;  // the batch at position_
};

}  // namespace stagegpt
