#pragma once

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// loss (1) = mean over rows of lse - logits[target], lse (N) = log Σ exp(logits) over the first vocab_size
// columns of logits (N,Vp); the other columns are padding. targets i32 (N), each below vocab_size.
struct CrossEntropyForward {
  static constexpr const char* kName = "cross_entropy_forward";
  const Tensor &loss, &lse, &logits, &targets;
  std::int64_t vocab_size;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&logits, &targets}; }
};

// dlogits (N,Vp) = dloss/N · (softmax - one hot), zero in the padding. `dlogits` may be `logits`. A target
// that is vocab_size or more has no column here, and its row of the one-hot matrix is zero.
struct CrossEntropyBackward {
  static constexpr const char* kName = "cross_entropy_backward";
  const Tensor &dlogits, &dloss, &logits, &lse, &targets;
  std::int64_t vocab_size;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&dlogits, &logits, &targets}; }
};

// CrossEntropyForward and CrossEntropyBackward, for a dloss that is known before the loss. `dlogits`
// may be `logits`. rows (N), with the dtype of loss, is scratch memory.
struct CrossEntropyForwardBackward {
  static constexpr const char* kName = "cross_entropy_forward_backward";
  const Tensor &loss, &dlogits, &rows, &dloss, &logits, &targets;
  std::int64_t vocab_size;

  void check(const Checks& checks) const;
  Work work() const;
  void composed(Backend& be) const;
  auto operands() const { return std::array{&dlogits, &logits, &targets}; }
};

// Cross-entropy of logits whose columns are divided into parts, as by several ranks. For one part (N,Vp):
// lse (N) over its columns, and picked (N) = logits[target], or 0 where the target is vocab_size or more,
// because another part has it.
struct CrossEntropyPartForward {
  static constexpr const char* kName = "cross_entropy_part_forward";
  const Tensor &lse, &picked, &logits, &targets;
  std::int64_t vocab_size;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&logits, &targets}; }
};

// With parts (R,2,N), which are lse and picked of all R parts: lse (N) = log Σ_r exp(lse_r), loss (1) = mean
// over rows of lse - Σ_r picked_r, added in the order of parts. CrossEntropyBackward with this lse gives the
// gradient of each part.
struct CrossEntropyOfParts {
  static constexpr const char* kName = "cross_entropy_of_parts";
  const Tensor &loss, &lse, &parts;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&lse, &parts}; }
};

// count i32 (1) = number of rows of logits (N,Vp) whose argmax over the first vocab_size columns is the
// target; the argmax of equal logits is the first. targets i32 (N). A row with a NaN is never counted.
struct CountCorrect {
  static constexpr const char* kName = "count_correct";
  const Tensor &count, &logits, &targets;
  std::int64_t vocab_size;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&count, &logits, &targets}; }
};

// The name on the tape, by which watches know it.
inline constexpr std::string_view kCrossEntropy = "cross_entropy";

// Mean negative log-likelihood (1) of the targets i32 (B,T) under softmax over the first vocab_size columns
// of logits (B,T,Vp), in nats.
Var cross_entropy(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size);

// cross_entropy() as the loss of the tape: nothing but Tape::backward() may use it. On a training tape, the
// gradient of the logits is computed together with the loss. It overwrites the logits if the caller moves the
// only handle to them.
Var cross_entropy_loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size);

}  // namespace stagegpt
