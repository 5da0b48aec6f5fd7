#include "common/autograd/ops/embedding.h"

#include "common/backend/op_work.h"
#include "common/tensor/quantised_rows.h"

namespace stagegpt {

Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe, const Tensor& first) {
  Backend& be = tape.backend();
  const Shape& bt = ids.shape();
  const Tensor& like = wpe.value().defined() ? wpe.value() : wte.value();
  Tensor out = be.allocate(like.dtype(), {bt[0], bt[1], like.shape()[1]});  // (B,T,C)
  be.run(EmbeddingForward{out, ids, wte.value(), wpe.value(), first});
  return tape.record(kEmbedding, {wte, wpe}, out, [=, &be](const Tensor& dout, Grads g) {
    be.run(EmbeddingBackward{g[0], g[1], dout, ids});
  });
}

namespace {

// Bytes of the gradient of a table (P,C), where rows with n elements in total receive a gradient. `overwrite`
// writes the whole table, the other rows with zeros. `accumulate` reads and writes only the rows that receive
// one.
double moved_rows(const Grad& table, double n) {
  if (!table.wanted()) return 0;
  return table.accumulates() ? 2 * n * static_cast<double>(size_of(table.tensor.dtype()))
                             : bytes(table.tensor);
}

}  // namespace

void EmbeddingForward::check(const Checks& checks) const {
  checks.real(out, "out");
  checks.weight(wte, out.dtype(), "wte");
  checks.dtype(ids, DType::i32, "ids");
  checks.that(ids.shape().rank() == 2, "ids of shape (B,T)");
  const std::int64_t B = ids.shape()[0], T = ids.shape()[1], C = columns_of(wte);
  checks.shape(out, out.dtype(), {B, T, C}, "out");
  if (wpe.defined()) {
    checks.shape(wpe, out.dtype(), {wpe.shape()[0], C}, "wpe");
    checks.that(wpe.shape()[0] >= T, "at least T positions of C channels");
  }
  if (position.defined()) checks.shape(position, DType::i32, {1}, "position");
}

Work EmbeddingForward::work() const {
  // One row of wte for each token, and T rows of wpe: as many elements as one sequence of out has.
  const double tokens = elements(ids), rows = tokens * bytes(wte) / static_cast<double>(wte.shape()[0]),
               positions = wpe.defined() ? bytes(out) / static_cast<double>(ids.shape()[0]) : 0;
  return {wpe.defined() ? elements(out) : 0, moved(out, ids) + rows + positions};
}

void EmbeddingBackward::check(const Checks& checks) const {
  checks.real(dout, "dout");
  checks.dtype(ids, DType::i32, "ids");
  checks.that(ids.shape().rank() == 2, "ids of shape (B,T)");
  const std::int64_t B = ids.shape()[0], T = ids.shape()[1], C = dout.shape()[-1];
  checks.shape(dout, dout.dtype(), {B, T, C}, "dout");
  const DType statistics = statistics_dtype(dout.dtype());
  if (dwte.wanted()) {
    checks.dtype(dwte.tensor, statistics, "dwte");
    checks.shape(dwte.tensor, statistics, {dwte.tensor.shape()[0], C}, "dwte");
  }
  if (dwpe.wanted()) {
    checks.dtype(dwpe.tensor, statistics, "dwpe");
    checks.shape(dwpe.tensor, statistics, {dwpe.tensor.shape()[0], C}, "dwpe");
    checks.that(dwpe.tensor.shape()[0] >= T, "at least T positions in dwpe");
  }
}

Work EmbeddingBackward::work() const {
  const double n = elements(dout), one_sequence = n / static_cast<double>(ids.shape()[0]);
  return {n * (dwte.wanted() + dwpe.wanted()),
          moved(dout, ids) + moved_rows(dwte, n) + moved_rows(dwpe, one_sequence)};
}

}  // namespace stagegpt
