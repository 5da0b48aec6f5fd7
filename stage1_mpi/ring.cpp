#include "stage1_mpi/ring.h"

#include <algorithm>

#include "common/backend/ops/elementwise.h"
#include "stage1_mpi/mpi_check.h"

namespace stagegpt {

Ring::Ring(RingPlace place, Backend& backend, RingKind kind, const Tensor& tensor)
    : place_(place), backend_(backend), tensor_(tensor) {
  const bool copies = kind == RingKind::all_gather;
  check(copies || tensor.dtype() == DType::f32, "ring: expected f32, not ", tensor.dtype());
  const std::int64_t rounds = place.size - 1;
  const std::int64_t longest = (tensor.numel() + place.size - 1) / place.size;
  chunks_ = std::max<std::int64_t>(1, (longest + kChunk - 1) / kChunk);
  first_step_ = copies ? rounds : 0;
  items_ = (kind == RingKind::all_reduce ? 2 * rounds : rounds) * chunks_;
  // A chunk can be sent on only after it has been received, so at most the chunks of one step are in flight.
  window_ = chunks_ > kLongSlice ? kInFlight : chunks_;
  if (!copies && items_ > 0) buffers_ = backend.allocate(DType::f32, {window_, std::min(kChunk, longest)});
  requests_.resize(static_cast<std::size_t>(window_));
  while (started_ < std::min(window_, items_)) start(started_++);
}

Tensor Ring::part(std::int64_t slice, std::int64_t chunk) const {
  slice = (slice % place_.size + place_.size) % place_.size;
  const std::int64_t begin = slice_begin(slice), size = slice_begin(slice + 1) - begin;
  const std::int64_t skipped = std::min(size, chunk * kChunk);
  return tensor_.slice(begin + skipped, {std::min(kChunk, size - skipped)});
}

Tensor Ring::sent(std::int64_t item) const {
  const std::int64_t step = item / chunks_ + first_step_, rounds = place_.size - 1;
  return part(step < rounds ? place_.rank - 1 - step : place_.rank - (step - rounds), item % chunks_);
}

Tensor Ring::received(std::int64_t item) const {
  const std::int64_t step = item / chunks_ + first_step_, rounds = place_.size - 1;
  return part(step < rounds ? place_.rank - 2 - step : place_.rank - (step - rounds) - 1, item % chunks_);
}

Tensor Ring::buffer(std::int64_t item, std::int64_t size) const {
  return buffers_.slice(item % window_ * buffers_.shape()[1], {size});
}

void Ring::start(std::int64_t item) {
  const int next = (place_.rank + 1) % place_.size, before = (place_.rank + place_.size - 1) % place_.size;
  const Tensor out = sent(item), in = received(item);
  const Tensor target = adds(item) ? buffer(item, in.numel()) : in;
  const MPI_Datatype type = mpi_type(tensor_.dtype());
  auto& [receive, send] = requests_[static_cast<std::size_t>(item % window_)];
  check_mpi(
      MPI_Irecv(target.raw(), static_cast<int>(in.numel()), type, before, place_.tag, place_.comm, &receive),
      "MPI_Irecv");
  check_mpi(MPI_Isend(out.raw(), static_cast<int>(out.numel()), type, next, place_.tag, place_.comm, &send),
            "MPI_Isend");
}

void Ring::finish(std::int64_t item) {
  if (!adds(item)) return;
  const Tensor in = received(item);
  if (in.numel() > 0) {
    backend_.run(Add{in, in, buffer(item, in.numel())});
    backend_.synchronize();  // before MPI sends the sum and receives into the buffer again
  }
  if (item + 1 == items_ || !adds(item + 1)) buffers_ = Tensor();
}

bool Ring::advance(bool wait) {
  auto& requests = requests_[static_cast<std::size_t>(done_ % window_)];
  int all = 1;
  if (wait) {
    check_mpi(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  } else {
    check_mpi(MPI_Testall(2, requests.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
  }
  if (!all) return false;
  finish(done_++);
  if (started_ < items_) start(started_++);
  return true;
}

void Ring::wait() {
  while (done_ < items_) advance(true);
}

bool Ring::progress() {
  while (done_ < items_ && advance(false)) {
  }
  return done_ == items_;
}

}  // namespace stagegpt
