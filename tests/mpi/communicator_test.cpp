// Communication of tensors between ranks: host tensors and, through the host, device tensors; with the
// hand-written ring and with the MPI library.
#include "common/comm/communicator.h"

#include <gtest/gtest.h>

#include "common/comm/agreement.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements in a chunk of the ring

class CommunicatorOfRanks : public testing::TestWithParam<CommunicatorUnderTest> {
 protected:
  // Whole numbers that differ between ranks, and whose sums over ranks are exact.
  static float element(int rank, std::int64_t i) {
    return static_cast<float>((i * 37 % 1009 + 1) * (rank + 1));
  }
  static float sum(std::int64_t i) {
    const int n = ranks().size();
    return static_cast<float>((i * 37 % 1009 + 1) * (n * (n + 1) / 2));
  }
  Tensor own_elements(std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = element(ranks().rank(), i);
    return to_device<float>(*backend_, {n}, values);
  }
  // Expects that element i is f(i), for i in [begin, end).
  template <class F>
  void expect_elements(const Tensor& tensor, std::int64_t begin, std::int64_t end, const F& f) {
    const std::vector<float> values = to_host<float>(*backend_, tensor);
    for (std::int64_t i = begin; i < end; ++i) {
      if (values[static_cast<std::size_t>(i)] == f(i)) continue;
      ADD_FAILURE() << "element " << i << " of " << values.size() << ": "
                    << values[static_cast<std::size_t>(i)] << ", not " << f(i);
      return;
    }
  }
  void expect_sum(const Tensor& tensor) { expect_elements(tensor, 0, tensor.numel(), sum); }

  // Sizes that are divisible by the number of ranks, so that all slices are equal.
  static std::vector<std::int64_t> divisible_sizes() {
    const std::int64_t n = ranks().size();
    return {0, n, 64 * n, kChunk * n, (kChunk + 1) * n, (2 * kChunk + 5) * n};
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make_backend();
  const std::unique_ptr<Communicator> communicator_ = GetParam().make(*backend_);
};

std::vector<std::int64_t> sizes() {
  const std::int64_t n = ranks().size();
  return {0,
          1,
          n - 1,
          n,
          n + 1,
          1000,
          kChunk,
          kChunk * n,
          kChunk * n + 1,
          kChunk * n * 2 - 1,
          (2 * kChunk + 1) * n + 1};
}

TEST_P(CommunicatorOfRanks, broadcasts_from_any_root) {
  for (const std::int64_t size : sizes()) {
    for (int root = 0; root < ranks().size(); ++root) {
      if (size > kChunk && root != ranks().size() - 1) continue;  // to be quick
      const Tensor tensor = own_elements(size);
      communicator_->broadcast(tensor, root);
      expect_elements(tensor, 0, size, [&](std::int64_t i) { return element(root, i); });
    }
  }
}

TEST_P(CommunicatorOfRanks, broadcasts_any_type) {
  const std::vector<std::int32_t> ids = {ranks().rank(), 7, ranks().rank() + 1};
  const Tensor tensor = to_device<std::int32_t>(*backend_, {3}, ids);
  communicator_->broadcast(tensor, ranks().size() - 1);
  EXPECT_EQ(to_host<std::int32_t>(*backend_, tensor),
            (std::vector<std::int32_t>{ranks().size() - 1, 7, ranks().size()}));
}

TEST_P(CommunicatorOfRanks, sums_in_place) {
  for (const std::int64_t size : sizes()) {
    const Tensor tensor = own_elements(size);
    communicator_->all_reduce(tensor)->wait();
    expect_sum(tensor);
  }
}

TEST_P(CommunicatorOfRanks, sums_to_the_same_bits_on_all_ranks) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{17}, std::int64_t{1001}, 3 * kChunk + 1}) {
    const auto stream = static_cast<std::uint32_t>(ranks().rank());
    const Tensor tensor = to_tensor(*backend_, DType::f32, {size}, random_values(1, stream, size));
    communicator_->all_reduce(tensor)->wait();
    std::vector<float> roots = to_host<float>(*backend_, tensor);
    ranks().broadcast(std::as_writable_bytes(std::span(roots)), 0);
    EXPECT_EQ(to_host<float>(*backend_, tensor) == roots, true) << size;
  }
}

TEST_P(CommunicatorOfRanks, leaves_what_lies_around_a_tensor) {
  const std::int64_t n = 3 * ranks().size();
  const Tensor arena = own_elements(3 * n);
  communicator_->all_reduce(arena.slice(n, {n}))->wait();
  const auto own = [](std::int64_t i) { return element(ranks().rank(), i); };
  expect_elements(arena, 0, n, own);
  expect_elements(arena, n, 2 * n, sum);
  expect_elements(arena, 2 * n, 3 * n, own);
}

TEST_P(CommunicatorOfRanks, reduces_and_scatters) {
  for (const std::int64_t size : divisible_sizes()) {
    const Tensor tensor = own_elements(size);
    communicator_->reduce_scatter(tensor)->wait();
    const std::int64_t slice = size / ranks().size(), begin = ranks().rank() * slice;
    expect_elements(tensor, begin, begin + slice, sum);
  }
}

TEST_P(CommunicatorOfRanks, gathers_the_slices_of_all) {
  for (const std::int64_t size : divisible_sizes()) {
    const Tensor tensor = own_elements(size);
    communicator_->all_gather(tensor)->wait();
    const std::int64_t slice = std::max<std::int64_t>(1, size / ranks().size());
    expect_elements(tensor, 0, size, [&](std::int64_t i) { return element(static_cast<int>(i / slice), i); });
  }
}

TEST_P(CommunicatorOfRanks, gathers_any_type) {
  const auto of_rank = [](std::int64_t rank) { return 1 + 0x1p-40 * static_cast<double>(rank); };  // no f32
  for (const std::int64_t slice : {1, 1000}) {
    const Tensor tensor = backend_->zeros(DType::f64, {slice * ranks().size()});
    backend_->fill(tensor.slice(slice * ranks().rank(), {slice}), of_rank(ranks().rank()));
    communicator_->all_gather(tensor)->wait();
    const std::vector<double> gathered = to_host<double>(*backend_, tensor);
    for (std::size_t i = 0; i < gathered.size(); ++i)
      ASSERT_EQ(gathered[i], of_rank(static_cast<std::int64_t>(i) / slice)) << i << " of slices of " << slice;
  }
}

// Each rank sends two messages at once to every other rank.
TEST_P(CommunicatorOfRanks, sends_in_order) {
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1}, kChunk + 1}) {
    const Tensor own = own_elements(size), negative = backend_->allocate(DType::f32, {size});
    backend_->fill(negative, -1 - ranks().rank());
    std::vector<Tensor> received;
    std::vector<std::unique_ptr<Pending>> pending;
    for (int rank = 0; rank < ranks().size(); ++rank) {
      for (int message = 0; message < 2 && rank != ranks().rank(); ++message) {
        received.push_back(backend_->allocate(DType::f32, {size}));
        pending.push_back(communicator_->receive(received.back(), rank));
        pending.push_back(communicator_->send(message == 0 ? own : negative, rank));
      }
    }
    for (const auto& one : pending) one->wait();
    for (std::size_t i = 0; i < received.size(); ++i) {
      const int from = static_cast<int>(i / 2) + (static_cast<int>(i / 2) >= ranks().rank() ? 1 : 0);
      expect_elements(received[i], 0, size, [&](std::int64_t k) {
        return i % 2 == 0 ? element(from, k) : static_cast<float>(-1 - from);
      });
    }
  }
}

// With every other rank, in any dtype. What goes there and back may differ in size.
TEST_P(CommunicatorOfRanks, exchanges) {
  const auto size_from = [](int rank) { return kChunk + 3 * rank; };
  const auto value_of = [](int rank) { return 1 + 0x1p-40 * rank; };  // no f32
  for (int with = 0; with < ranks().size(); ++with) {
    if (with == ranks().rank()) continue;
    const Tensor out = backend_->allocate(DType::f64, {size_from(ranks().rank())});
    const Tensor in = backend_->zeros(DType::f64, {size_from(with)});
    backend_->fill(out, value_of(ranks().rank()));
    const std::unique_ptr<Pending> pending = communicator_->start_exchange(out, in, with);
    communicator_->exchange(out.slice(0, {0}), in.slice(0, {0}), with);
    pending->wait();
    EXPECT_EQ(to_host<double>(*backend_, in),
              std::vector<double>(static_cast<std::size_t>(in.numel()), value_of(with)));
  }
}

// Operations that are started together and finished in a different order.
class ManyAtOnce : public CommunicatorOfRanks {
 protected:
  ManyAtOnce() {
    for (const std::int64_t size : {3 * kChunk + 3, std::int64_t{1}, std::int64_t{1000}, 2 * kChunk}) {
      reduced_.push_back(own_elements(size));
      pending_.push_back(communicator_->all_reduce(reduced_.back()));
    }
    scattered_ = own_elements(200 * n_);
    pending_.push_back(communicator_->reduce_scatter(scattered_));
    gathered_ = own_elements(300 * n_);
    pending_.push_back(communicator_->all_gather(gathered_));
  }
  void expect_all_right() {
    for (const Tensor& tensor : reduced_) expect_sum(tensor);
    const int rank = ranks().rank();
    expect_elements(scattered_, rank * 200, (rank + 1) * 200, sum);
    expect_elements(gathered_, 0, 300 * n_,
                    [](std::int64_t i) { return element(static_cast<int>(i / 300), i); });
  }

  const std::int64_t n_ = ranks().size();
  std::vector<Tensor> reduced_;
  Tensor scattered_, gathered_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

TEST_P(ManyAtOnce, are_waited_for_from_the_last_to_the_first) {
  while (!pending_.empty()) {
    pending_.back()->wait();
    pending_.pop_back();
  }
  expect_all_right();
}

TEST_P(ManyAtOnce, get_done_by_progress_alone) {
  std::size_t done = 0;
  while (done < pending_.size()) {
    done = 0;
    // Each rank begins with a different operation.
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      done += pending_[(i + static_cast<std::size_t>(ranks().rank())) % pending_.size()]->progress() ? 1 : 0;
    }
  }
  expect_all_right();
  for (const auto& one : pending_) one->wait();  // wait() after completion does nothing
  expect_all_right();
}

TEST_P(CommunicatorOfRanks, refuses_what_it_cannot_do) {
  const Tensor doubles = backend_->zeros(DType::f64, {6 * ranks().size()});
  EXPECT_THROW(communicator_->all_reduce(doubles), InternalError);
  EXPECT_THROW(communicator_->reduce_scatter(doubles), InternalError);
  if (ranks().size() == 1) return;
  const Tensor odd = backend_->zeros(DType::f32, {6 * ranks().size() + 1});
  EXPECT_THROW(communicator_->reduce_scatter(odd), InternalError);
  EXPECT_THROW(communicator_->all_gather(odd), InternalError);
}

// Ranks use two communicators in different orders. The messages of the two must not be mixed up.
TEST_P(CommunicatorOfRanks, is_apart_from_others) {
  const std::unique_ptr<Communicator> other = GetParam().make(*backend_);
  const std::int64_t size = 12 * kChunk;
  const Tensor a = own_elements(size), b = own_elements(size);
  backend_->fill(b, 1);
  const auto first = communicator_->all_reduce(a), second = other->all_reduce(b);
  Pending &now = ranks().is_root() ? *first : *second, &later = ranks().is_root() ? *second : *first;
  for (bool done = false; !done;) {
    done = now.progress();
    done = later.progress() && done;
  }
  expect_sum(a);
  expect_elements(b, 0, size, [](std::int64_t) { return static_cast<float>(ranks().size()); });
}

// Even ranks and odd ranks, from the last to the first. The operations of a part and of all ranks are in
// progress at the same time.
TEST_P(CommunicatorOfRanks, splits) {
  const int color = ranks().rank() % 2, n = ranks().size();
  const std::unique_ptr<Communicator> part = communicator_->split(color, -ranks().rank());
  ASSERT_EQ(part->size(), color == 0 ? (n + 1) / 2 : n / 2);
  EXPECT_EQ(part->rank(), part->size() - 1 - ranks().rank() / 2);
  int sum_of_part = 0;  // of rank + 1
  for (int rank = color; rank < n; rank += 2) sum_of_part += rank + 1;
  const std::int64_t size = kChunk + 1;
  const Tensor of_part = own_elements(size), of_all = own_elements(size);
  const auto first = communicator_->all_reduce(of_all), second = part->all_reduce(of_part);
  second->wait();
  first->wait();
  expect_sum(of_all);
  expect_elements(of_part, 0, size,
                  [&](std::int64_t i) { return element(0, i) * static_cast<float>(sum_of_part); });
  const int last = 2 * ((n - 1 - color) / 2) + color;  // the part's rank 0
  const Tensor own = own_elements(3);
  part->broadcast(own, 0);
  expect_elements(own, 0, 3, [&](std::int64_t i) { return element(last, i); });
}

const auto kAll = testing::ValuesIn(communicators_under_test());
INSTANTIATE_TEST_SUITE_P(By, CommunicatorOfRanks, kAll, testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(By, ManyAtOnce, kAll, testing::PrintToStringParamName());

}  // namespace
}  // namespace stagegpt::test
