#include "common/model/partition.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"

namespace stagegpt {
namespace {

// The block of "h.3.ln_1.weight"; empty for a parameter before or behind the blocks.
std::optional<int> block_of(const std::string& name) {
  if (!name.starts_with("h.")) return std::nullopt;
  int block = 0;
  std::from_chars(name.data() + 2, name.data() + name.size(), block);
  return block;
}

}  // namespace

ParameterTable rows_of_stage(const ParameterTable& whole, const ModelStage& stage) {
  int n_layer = 0;
  for (const Parameter& row : whole.rows()) n_layer = std::max(n_layer, block_of(row.name).value_or(-1) + 1);
  const bool is_tied = whole.find("lm_head.weight") < 0;
  ParameterTable table;
  bool behind = false;  // the blocks
  for (const Parameter& row : whole.rows()) {
    const std::optional<int> block = block_of(row.name);
    behind = behind || block;
    const bool is_own =
        block ? stage.first_block(n_layer) <= *block && *block < stage.end_block(n_layer)
              : (behind ? stage.is_last()
                        : stage.is_first() || (is_tied && stage.is_last() && row.name == "wte.weight"));
    if (is_own) table.add(row);
  }
  return table;
}

Var Partition::enter(Tape&, Var rows, const Shape&) const { return rows; }

Var Partition::leave(Tape&, Var summand) const { return summand; }

Var Partition::embed(Tape& tape, const Tensor& ids, Var wte, Var wpe, std::int64_t) const {
  return embedding(tape, ids, std::move(wte), std::move(wpe));
}

Var Partition::loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) const {
  return cross_entropy_loss(tape, std::move(logits), targets, vocab_size);
}

Var Partition::all_logits(Tape&, Var logits, std::int64_t) const { return logits; }

Var Partition::receive(Backend& backend, DType dtype, const Shape& rows) const {
  if (stage().is_first()) return Var();
  const Tensor stream = backend.allocate(dtype, rows);
  stages_->receive(stream, stages_->rank() - 1)->wait();
  return Var(stream);
}

void Partition::send(const Var& stream) const {
  if (!stage().is_last()) stages_->send(stream.value(), stages_->rank() + 1)->wait();
}

Var Partition::from_last_stage(Backend& backend, DType dtype, const Shape& shape, Var logits) const {
  if (stages_ == nullptr) return logits;
  if (!stage().is_last()) logits = Var(backend.allocate(dtype, shape));
  stages_->broadcast(logits.value(), stages_->size() - 1);
  return logits;
}

Dropout Partition::on_rows(Dropout dropout, const Tensor&) const { return dropout; }

const Partition& Partition::none() {
  static const Partition one;
  return one;
}

}  // namespace stagegpt
