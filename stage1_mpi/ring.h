// Ring all-reduce, reduce-scatter and all-gather: each rank sends to the next rank and receives from the
// previous one.
//
// The tensor is cut into N slices, one per rank. In step s < N-1, rank r sends slice r-1-s, and adds the
// slice that it receives to slice r-2-s. After N-1 steps, slice r of rank r is the sum (reduce-scatter). In
// N-1 more steps g, the sums are passed around: rank r sends slice r-g and receives slice r-g-1 (all-gather).
// Slices are sent in chunks. A chunk fits into the second-level cache, so it is added while it is still
// there. A window of chunks is in flight, and MPI moves them only when it is called: a rank that computes
// between its calls of progress() has the window's bytes for each call. So a bucket's window is a whole
// slice. A longer slice is that of a whole arena, which is waited for, and a few chunks are enough.
//
// Each rank sends 2(N-1)/N of the tensor, which is the minimum. Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations", 2009.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <vector>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"

namespace stagegpt {

enum class RingKind : std::uint8_t { reduce_scatter, all_gather, all_reduce };

struct RingPlace {
  MPI_Comm comm;
  int tag;  // unique, so that the messages of concurrent operations are not mixed up
  int rank, size;
};

class Ring final : public Pending {
 public:
  // Starts an operation on a tensor: f32, or of any dtype for an all-gather. The backend must have no
  // unfinished work on it.
  Ring(RingPlace place, Backend& backend, RingKind kind, const Tensor& tensor);

  void wait() override;
  bool progress() override;

 private:
  static constexpr std::int64_t kChunk = 1 << 16;  // elements
  static constexpr std::int64_t kLongSlice = 64;   // chunks
  static constexpr std::int64_t kInFlight = 4;     // chunks of a longer slice

  // A chunk of a slice.
  Tensor part(std::int64_t slice, std::int64_t chunk) const;
  std::int64_t slice_begin(std::int64_t slice) const { return tensor_.numel() * slice / place_.size; }
  bool adds(std::int64_t item) const { return item / chunks_ + first_step_ < place_.size - 1; }
  Tensor sent(std::int64_t item) const;
  Tensor received(std::int64_t item) const;
  Tensor buffer(std::int64_t item, std::int64_t size) const;
  void start(std::int64_t item);
  void finish(std::int64_t item);
  // Waits for the oldest item, or tests it without waiting. Returns whether it is done.
  bool advance(bool wait);

  RingPlace place_;
  Backend& backend_;
  Tensor tensor_;
  std::int64_t first_step_, chunks_, items_;  // an item is one chunk in one step
  std::int64_t window_;                       // items in flight
  Tensor buffers_;                            // (window_, kChunk), received chunks before they are added
  std::int64_t started_ = 0, done_ = 0;
  std::vector<std::array<MPI_Request, 2>> requests_;  // of item i at i % window_
};

}  // namespace stagegpt
