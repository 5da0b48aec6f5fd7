#include "common/autograd/ops/cross_entropy.h"

namespace stagegpt {

Var cross_entropy(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) {
  Backend& be = tape.backend();
  const DType statistics = statistics_dtype(logits.value().dtype());
  Tensor loss = be.allocate(statistics, {1});
  Tensor lse = be.allocate(statistics, {targets.numel()});  // (N)
  be.cross_entropy_forward(loss, lse, logits.value(), targets, vocab_size);
  return tape.record("cross_entropy", {logits}, loss,
                     [=, &be, x = logits.value()](const Tensor& dloss, Grads g) {
                       Tensor dlogits = g.reuse(x);  // (B,T,Vp), in place if nothing else uses the logits
                       be.cross_entropy_backward(dlogits, dloss, x, lse, targets, vocab_size);
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
  be.cross_entropy_forward_backward(loss, dlogits, rows, tape.loss_gradient(statistics), x, targets,
                                    vocab_size);
  return tape.record("cross_entropy", {logits}, loss, [=](const Tensor&, Grads g) { g.give(0, dlogits); });
}

}  // namespace stagegpt
