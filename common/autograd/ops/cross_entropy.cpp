#include "common/autograd/ops/cross_entropy.h"

#include "common/backend/op_work.h"

namespace stagegpt {

Var cross_entropy(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) {
  Backend& be = tape.backend();
  const DType statistics = statistics_dtype(logits.value().dtype());
  Tensor loss = be.allocate(statistics, {1});
  Tensor lse = be.allocate(statistics, {targets.numel()});  // (N)
  be.run(CrossEntropyForward{loss, lse, logits.value(), targets, vocab_size});
  return tape.record(kCrossEntropy, {logits}, loss,
                     [=, &be, x = logits.value()](const Tensor& dloss, Grads g) {
                       Tensor dlogits = g.reuse(x);  // (B,T,Vp), in place if nothing else uses the logits
                       be.run(CrossEntropyBackward{dlogits, dloss, x, lse, targets, vocab_size});
                       g.give(0, dlogits);
                     });
}

Var cross_entropy_loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) {
  if (tape.mode() == Tape::Mode::inference || !logits.needs_grad())
    return cross_entropy(tape, logits, targets, vocab_size);
  Backend& be = tape.backend();
  const Tensor x = logits.take_value();  // (B,T,Vp)
  const Tensor dlogits = x.sole_owner() ? x : be.allocate(x.dtype(), x.shape());
  const DType statistics = statistics_dtype(x.dtype());
  const Tensor loss = be.allocate(statistics, {1}), rows = be.allocate(statistics, {targets.numel()});
  be.run(CrossEntropyForwardBackward{loss, dlogits, rows, tape.loss_gradient(statistics), x, targets,
                                     vocab_size});
  return tape.record(kCrossEntropy, {logits}, loss, [=](const Tensor&, Grads g) { g.give(0, dlogits); });
}

namespace {

void check_classes(const Checks& checks, const Tensor& logits, const Tensor& targets,
                   std::int64_t vocab_size) {
  checks.real(logits, "logits");
  const std::int64_t padded = logits.shape()[-1], n = rows(logits, padded);
  checks.that(vocab_size > 0 && vocab_size <= padded, "a vocabulary no larger than the logits' columns");
  checks.that(n > 0, "at least one row");
  checks.elements(targets, DType::i32, n, "targets");
}

void check_cross_entropy(const Checks& checks, const Tensor& logits, const Tensor& lse, const Tensor& targets,
                         std::int64_t vocab_size) {
  check_classes(checks, logits, targets, vocab_size);
  checks.elements(lse, statistics_dtype(logits.dtype()), rows(logits, logits.shape()[-1]), "lse");
}

// Number of elements in the first vocab_size columns of logits (N,Vp).
double real_logits(const Tensor& logits, std::int64_t vocab_size) {
  return elements(logits) / static_cast<double>(logits.shape()[-1]) * static_cast<double>(vocab_size);
}

}  // namespace

void CrossEntropyForward::check(const Checks& checks) const {
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(loss, statistics_dtype(logits.dtype()), 1, "loss");
}

Work CrossEntropyForward::work() const {
  // Max, difference, exp and sum.
  const double n = real_logits(logits, vocab_size);
  return {4 * n, moved(loss, lse, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

void CrossEntropyBackward::check(const Checks& checks) const {
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(dloss, statistics_dtype(logits.dtype()), 1, "dloss");
  checks.shape(dlogits, logits.dtype(), logits.shape(), "dlogits");
}

Work CrossEntropyBackward::work() const {
  // Difference, exp and scale.
  const double n = real_logits(logits, vocab_size);
  return {3 * n, moved(dlogits, dloss, lse, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

void CrossEntropyForwardBackward::check(const Checks& checks) const {
  check_classes(checks, logits, targets, vocab_size);
  const DType statistics = statistics_dtype(logits.dtype());
  checks.elements(loss, statistics, 1, "loss");
  checks.elements(dloss, statistics, 1, "dloss");
  checks.elements(rows, statistics, targets.numel(), "rows");
  checks.shape(dlogits, logits.dtype(), logits.shape(), "dlogits");
}

Work CrossEntropyForwardBackward::work() const {
  // The operations of both; the logits are read once.
  const double n = real_logits(logits, vocab_size);
  return {7 * n, moved(loss, dlogits, dloss, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

void CrossEntropyForwardBackward::composed(Backend& be) const {
  be.run(CrossEntropyForward{loss, rows, logits, targets, vocab_size});
  be.run(CrossEntropyBackward{dlogits, dloss, logits, rows, targets, vocab_size});
}

void CrossEntropyPartForward::check(const Checks& checks) const {
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(picked, lse.dtype(), lse.numel(), "picked");
}

Work CrossEntropyPartForward::work() const {
  const double n = real_logits(logits, vocab_size);
  return {4 * n, moved(lse, picked, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

void CrossEntropyOfParts::check(const Checks& checks) const {
  checks.real(lse, "lse");
  checks.real(parts, "parts");
  checks.that(parts.shape().rank() == 3 && parts.shape()[0] > 0, "parts of shape (R,2,N)");
  checks.shape(parts, lse.dtype(), {parts.shape()[0], 2, lse.numel()}, "parts");
  checks.elements(loss, lse.dtype(), 1, "loss");
}

Work CrossEntropyOfParts::work() const {
  // Of lse: max, difference, exp and sum; of picked: a sum.
  return {2.5 * elements(parts), moved(loss, lse, parts)};
}

void CountCorrect::check(const Checks& checks) const {
  check_classes(checks, logits, targets, vocab_size);
  checks.elements(count, DType::i32, 1, "count");
}

Work CountCorrect::work() const {
  const double compared = real_logits(logits, vocab_size);
  return {compared, compared * static_cast<double>(size_of(logits.dtype())) + moved(targets, count)};
}

}  // namespace stagegpt
