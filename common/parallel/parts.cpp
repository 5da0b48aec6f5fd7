#include "common/parallel/parts.h"

#include <algorithm>

namespace stagegpt {
namespace {

std::int64_t columns_of(const Parameter& parameter) {
  return parameter.shape.rank() == 1 ? 1 : parameter.shape[1];
}

// The blocks of a whole parameter that a rank holds, one below the other.
std::vector<ParameterBlock> blocks_of(const Parameter& whole, const TensorRank& rank) {
  const std::int64_t O = whole.shape[0], I = columns_of(whole), r = rank.rank, R = rank.size;
  switch (whole.split) {
    case Split::none:
      return {};
    case Split::rows:
      return {{r * O / R, 0, O / R, I}};
    case Split::columns:
      return {{0, r * I / R, O, I / R}};
    case Split::qkv_heads: {  // the rank's heads of the queries, of the keys and of the values
      const std::int64_t C = O / 3, own = C / R;
      return {{r * own, 0, own, I}, {C + r * own, 0, own, I}, {2 * C + r * own, 0, own, I}};
    }
    case Split::vocabulary: {
      const auto [first, count] = vocabulary_part(O, rank);
      return {{first, 0, count, I}};
    }
  }
  return {};
}

Parameter part_of(Parameter parameter, const TensorRank& rank) {
  const std::int64_t O = parameter.shape[0];
  parameter.blocks = blocks_of(parameter, rank);
  parameter.whole_columns = columns_of(parameter);
  std::int64_t rows = 0;
  for (const ParameterBlock& block : parameter.blocks) rows += block.rows;
  const bool is_vector = parameter.shape.rank() == 1;
  parameter.shape = is_vector ? Shape{rows} : Shape{rows, parameter.blocks[0].columns};
  parameter.padded_rows = rows;
  if (parameter.split == Split::vocabulary)  // as on the first rank, which has most tokens
    parameter.padded_rows = padded_vocabulary(vocabulary_part(O, {0, rank.size}).count);
  return parameter;
}

}  // namespace

VocabularyPart vocabulary_part(std::int64_t vocab_size, const TensorRank& rank) {
  const std::int64_t most = (vocab_size + rank.size - 1) / rank.size, first = rank.rank * most;
  return {first, std::min(most, vocab_size - first)};
}

ParameterTable part_of(const ParameterTable& whole, const TensorRank& rank) {
  ParameterTable table;
  for (const Parameter& row : whole.rows()) {
    if (row.split == Split::none) table.add(row);
  }
  for (const Parameter& row : whole.rows()) {
    if (row.split != Split::none) table.add(part_of(row, rank));
  }
  return table;
}

std::int64_t shared_end(const ParameterTable& part) {
  const auto is_divided = [](const Parameter& row) { return row.split != Split::none; };
  return std::ranges::find_if(part.rows(), is_divided)->offset;
}

std::unique_ptr<Partition> make_partition(const Grid& grid) {
  if (grid.tensor().size() == 1) return std::make_unique<Partition>(&grid.pipeline());
  return std::make_unique<AcrossRanks>(grid.tensor(), &grid.pipeline());
}

void require_divisible(const Gpt2Config& config, int tensor_ranks, int stages) {
  if (config.n_layer < stages) {
    user_error("--pipeline-parallel: ", config.n_layer, config.n_layer == 1 ? " layer" : " layers",
               " cannot be divided among ", stages, " stages");
  }
  const auto require = [&](bool divides, std::int64_t size, const char* what) {
    if (divides) return;
    user_error("--tensor-parallel: ", size, ' ', what, " cannot be divided among ", tensor_ranks, " ranks");
  };
  require(config.n_head % tensor_ranks == 0, config.n_head, "heads");
  require(config.mlp_width() % tensor_ranks == 0, config.mlp_width(), "channels of the MLP");
  const VocabularyPart last = vocabulary_part(config.vocab_size, {tensor_ranks - 1, tensor_ranks});
  require(last.count > 0, config.vocab_size, "tokens of the vocabulary");
}

}  // namespace stagegpt
