// A ring over the ranks, written by hand: each sends to the next and receives from the one before.
//
// The tensor is cut into N slices, one a rank. In step s < N-1 rank r sends slice r-1-s and adds what comes
// to slice r-2-s: after N-1 steps slice r of rank r is the sum. In N-1 more steps the sums go round: rank r
// sends slice r-g and receives slice r-g-1. Slices travel in chunks, some of them under way at once, that fit
// a processor's second-level cache: what comes is added while it is still there.
//
// Each rank sends 2(N-1)/N of the tensor, which is the least there can be. Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"

namespace stagegpt {

enum class RingKind : std::uint8_t { reduce_scatter, all_gather, all_reduce };

struct RingPlace {
  MPI_Comm comm;
  int tag;  // of its own, so that passes do not mix
  int rank, size;
};

class Ring final : public Pending {
 public:
  // Starts a pass over an f32 tensor, whose backend has nothing under way.
  Ring(RingPlace place, Backend& backend, RingKind kind, const Tensor& tensor);

  void wait() override;
  bool progress() override;

 private:
  static constexpr std::int64_t kChunk = 1 << 16;  // elements
  static constexpr std::int64_t kUnderWay = 4;     // chunks

  // The part of a slice that a chunk is.
  Tensor part(std::int64_t slice, std::int64_t chunk) const;
  std::int64_t slice_begin(std::int64_t slice) const { return tensor_.numel() * slice / place_.size; }
  bool adds(std::int64_t item) const { return item / chunks_ + first_step_ < place_.size - 1; }
  Tensor sent(std::int64_t item) const;
  Tensor received(std::int64_t item) const;
  Tensor buffer(std::int64_t item, std::int64_t size) const;
  void start(std::int64_t item);
  void finish(std::int64_t item);
  // Waits for the oldest item, or tries; whether it is done.
  bool advance(bool wait);

  RingPlace place_;
  Backend& backend_;
  Tensor tensor_;
  Tensor buffers_;                            // (kUnderWay, kChunk) of what has come and is to be added
  std::int64_t first_step_, chunks_, items_;  // an item is one chunk in one step
  std::int64_t started_ = 0, done_ = 0;
  std::array<std::array<MPI_Request, 2>, kUnderWay> requests_;
};

}  // namespace stagegpt
