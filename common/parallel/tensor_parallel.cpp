#include "common/parallel/tensor_parallel.h"

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"
#include "common/backend/ops/elementwise.h"
#include "common/model/vocabulary_padding.h"

namespace stagegpt {
namespace {

// Every rank's `own` (N/R,C), in the order of ranks, as `shape`.
Tensor all_gather(Backend& be, Communicator& ranks, const Tensor& own, const Shape& shape) {
  const Tensor all = be.allocate(own.dtype(), {ranks.size() * own.numel()});
  be.copy(ranks.own_slice(all), own);
  ranks.all_gather(all)->wait();
  return all.slice(0, shape);
}

// This rank's rows of the sum over ranks of `summand`, as `rows` (N/R,C). Overwrites the summand. Sums of
// bf16 are formed in f32 and then rounded.
Tensor reduce_scatter(Backend& be, Communicator& ranks, const Tensor& summand, const Shape& rows) {
  const std::int64_t size = ranks.size() * rows.numel(), padding = size - summand.numel();
  const bool narrow = summand.dtype() == DType::bf16;
  Tensor all = summand;
  if (narrow || padding > 0) {
    all = be.allocate(narrow ? DType::f32 : summand.dtype(), {size});
    const Tensor front = all.slice(0, summand.shape());
    narrow ? be.run(Cast{front, summand}) : be.copy(front, summand);
    if (padding > 0) be.fill(all.slice(summand.numel(), {padding}), 0);
  }
  ranks.reduce_scatter(all)->wait();
  const Tensor own = ranks.own_slice(all).view(rows);
  if (!narrow) return own;
  const Tensor rounded = be.allocate(summand.dtype(), rows);
  be.run(Cast{rounded, own});
  return rounded;
}

}  // namespace

Shape rows_of_rank(const Communicator& ranks, const Shape& shape) {
  if (ranks.size() == 1) return shape;
  const std::int64_t C = shape[-1];
  return {(shape.numel() / C + ranks.size() - 1) / ranks.size(), C};
}

Var gathered(Tape& tape, Communicator& ranks, Var rows, const Shape& shape) {
  if (ranks.size() == 1) return rows;
  Backend& be = tape.backend();
  const Shape own = rows.value().shape();                         // (N/R,C)
  const Tensor all = all_gather(be, ranks, rows.value(), shape);  // (B,T,C)
  return tape.record(kGathered, {rows}, all, [=, &be, &ranks](const Tensor& dall, Grads g) {
    g.give(0, reduce_scatter(be, ranks, g.writable(dall), own));
  });
}

Var scattered_sum(Tape& tape, Communicator& ranks, Var summand) {
  if (ranks.size() == 1) return summand;
  Backend& be = tape.backend();
  const Shape shape = summand.value().shape();  // (B,T,C)
  const Shape own = rows_of_rank(ranks, shape);
  Tensor all = summand.take_value();
  if (!all.sole_owner()) {
    const Tensor copy = be.allocate(all.dtype(), shape);
    be.copy(copy, all);
    all = copy;
  }
  const Tensor rows = be.allocate(all.dtype(), own);  // copied, so that the memory of all rows is free
  be.copy(rows, reduce_scatter(be, ranks, all, own));
  return tape.record(kScatteredSum, {summand}, rows, [=, &be, &ranks](const Tensor& drows, Grads g) {
    g.give(0, all_gather(be, ranks, drows, shape));
  });
}

Var vocabulary_embedding(Tape& tape, Communicator& ranks, const Tensor& ids, Var wte, Var wpe,
                         const VocabularyPart& part, const Tensor& first) {
  if (ranks.size() == 1) return embedding(tape, ids, std::move(wte), std::move(wpe), first);
  Backend& be = tape.backend();
  const Tensor own_ids = be.allocate(DType::i32, ids.shape());  // (B,T)
  be.run(IdsInPart{own_ids, ids, part.first, part.count, wte.value().shape()[0]});
  return scattered_sum(tape, ranks, embedding(tape, own_ids, std::move(wte), std::move(wpe), first));
}

Var vocabulary_cross_entropy(Tape& tape, Communicator& ranks, Var logits, const Tensor& targets,
                             const VocabularyPart& part) {
  if (ranks.size() == 1) return cross_entropy_loss(tape, std::move(logits), targets, part.count);
  Backend& be = tape.backend();
  const Tensor x = logits.value();  // (B,T,…)
  const std::int64_t N = targets.numel();
  const DType dtype = statistics_dtype(x.dtype());
  const Tensor own_targets = be.allocate(DType::i32, targets.shape());
  be.run(IdsInPart{own_targets, targets, part.first, part.count, x.shape()[-1]});
  const Tensor parts = be.allocate(dtype, {ranks.size(), 2, N}), own = ranks.own_slice(parts);
  be.run(CrossEntropyPartForward{own.slice(0, {N}), own.slice(N, {N}), x, own_targets, part.count});
  ranks.all_gather(parts)->wait();
  const Tensor loss = be.allocate(dtype, {1}), lse = be.allocate(dtype, {N});
  be.run(CrossEntropyOfParts{loss, lse, parts});
  logits.take_value();  // so that the gradient may overwrite them
  return tape.record("vocabulary_cross_entropy", {logits}, loss,
                     [=, &be, count = part.count](const Tensor& dloss, Grads g) {
                       const Tensor dlogits = g.reuse(x);  // (B,T,…)
                       be.run(CrossEntropyBackward{dlogits, dloss, x, lse, own_targets, count});
                       g.give(0, dlogits);
                     });
}

Var all_logits(Tape& tape, Communicator& ranks, Var logits, std::int64_t vocab_size) {
  if (ranks.size() == 1) return logits;
  Backend& be = tape.backend();
  const Tensor& own = logits.value();  // (B,T,Vr)
  const std::int64_t Vr = own.shape()[2], N = own.numel() / Vr, Vp = padded_vocabulary(vocab_size);
  const Tensor parts = all_gather(be, ranks, own, {ranks.size(), N, Vr});
  const Tensor all = be.zeros(own.dtype(), {own.shape()[0], own.shape()[1], Vp});
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto [first, count] = vocabulary_part(vocab_size, {rank, ranks.size()});
    for (std::int64_t n = 0; n < N; ++n) {
      be.copy(all.slice(n * Vp + first, {count}), parts.slice((rank * N + n) * Vr, {count}));
    }
  }
  return tape.record("all_logits", {logits}, all,
                     [](const Tensor&, Grads) { check(false, "all logits: have no backward"); });
}

}  // namespace stagegpt
