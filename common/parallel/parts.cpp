#include "common/parallel/parts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace stagegpt {
namespace {

// The block of "h.3.ln_1.weight"; empty for a parameter before or behind the blocks.
std::optional<int> block_of(const std::string& name) {
  if (!name.starts_with("h.")) return std::nullopt;
  int block = 0;
  std::from_chars(name.data() + 2, name.data() + name.size(), block);
  return block;
}

// How tensor ranks divide a parameter, (out,in) or (out): not at all; by outputs; by inputs; by outputs of
// which there are three kinds, queries, keys and values, each divided by heads; by tokens.
enum class Split : std::uint8_t { none, rows, columns, qkv_heads, vocabulary };

Split split_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == "wte.weight" || name == "lm_head.weight") return Split::vocabulary;
  if (has(".attn.c_attn.")) return Split::qkv_heads;
  if (has(".mlp.c_fc.")) return Split::rows;
  if (name.ends_with(".c_proj.weight")) return Split::columns;
  return Split::none;
}

std::int64_t columns_of(const Parameter& parameter) {
  return parameter.shape.rank() == 1 ? 1 : parameter.shape[1];
}

// The blocks of a whole parameter that a rank holds, one below the other.
std::vector<ParameterBlock> blocks_of(const Parameter& whole, const TensorRank& rank) {
  const std::int64_t O = whole.shape[0], I = columns_of(whole), r = rank.rank, R = rank.size;
  switch (split_of(whole.name)) {
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
  if (split_of(parameter.name) == Split::vocabulary)  // as on the first rank, which has most tokens
    parameter.padded_rows = padded_vocabulary(vocabulary_part(O, {0, rank.size}).count);
  return parameter;
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

VocabularyPart vocabulary_part(std::int64_t vocab_size, const TensorRank& rank) {
  const std::int64_t most = (vocab_size + rank.size - 1) / rank.size, first = rank.rank * most;
  return {first, std::min(most, vocab_size - first)};
}

ParameterTable part_of(const ParameterTable& whole, const TensorRank& rank) {
  ParameterTable table;
  for (const Parameter& row : whole.rows()) {
    if (split_of(row.name) == Split::none) table.add(row);
  }
  for (const Parameter& row : whole.rows()) {
    if (split_of(row.name) != Split::none) table.add(part_of(row, rank));
  }
  return table;
}

std::int64_t shared_end(const ParameterTable& part) {
  const auto divided =
      std::ranges::find_if(part.rows(), [](const Parameter& row) { return !row.blocks.empty(); });
  return divided == part.rows().end() ? 0 : divided->offset;
}

ParameterTable own_table(const ParameterTable& whole, const Grid& grid) {
  ParameterTable rows = rows_of_stage(whole, stage_of(grid));
  return grid.tensor().size() == 1 ? rows : part_of(rows, {grid.tensor().rank(), grid.tensor().size()});
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
