#include "common/checkpoint/llmc_files.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/io/output_file.h"
#include "common/tensor/half_floats.h"

namespace stagegpt {
namespace {

static_assert(std::endian::native == std::endian::little, "llm.c's files are little-endian");

constexpr std::size_t kHeaderInts = 256, kHeaderBytes = kHeaderInts * sizeof(std::int32_t);
constexpr std::int32_t kModelMagic = 20240326, kModelVersionF32 = 3, kModelVersionBf16 = 5;
constexpr std::int32_t kStateMagic = 20240327, kStateVersion = 2;

// Reads spans from a file, from its beginning on. The size of the file has been checked.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  std::span<const T> take(std::int64_t n) {
    const std::size_t size = static_cast<std::size_t>(n) * sizeof(T);
    check(size <= bytes_.size(), "llm.c file: read past the end");
    const auto* data = reinterpret_cast<const T*>(bytes_.data());
    bytes_ = bytes_.subspan(size);
    return {data, static_cast<std::size_t>(n)};
  }

 private:
  std::span<const std::byte> bytes_;
};

std::span<const std::int32_t> read_header(std::span<const std::byte> file, std::int32_t magic,
                                          std::string_view what, std::string_view flag) {
  if (file.size() < kHeaderBytes) {
    user_error(flag, ": expected ", what, ", but the file has ", file.size(),
               " bytes, fewer than its header");
  }
  if (std::string_view(reinterpret_cast<const char*>(file.data()), 4) == "PK\x03\x04")
    user_error(flag, ": expected ", what,
               ", but this is a file of torch.save() or another zip file; "
               "save_pretrained() writes a directory that can be read");
  const auto header = Cursor(file).take<std::int32_t>(kHeaderInts);
  if (header[0] != magic) {
    user_error(flag, ": expected ", what, ", which begins with ", magic, "; this file begins with ",
               header[0]);
  }
  return header;
}

// Checks the range of a number in the header. The range exceeds that of real models, and products of such
// sizes do not overflow.
std::int64_t header_number(std::int32_t value, std::int32_t max, std::string_view name,
                           std::string_view flag) {
  if (value < 1 || value > max) user_error(flag, ": ", name, " is ", value, ", expected 1 to ", max);
  return value;
}

void require_size(std::span<const std::byte> file, std::int64_t elements, std::size_t element_bytes,
                  std::string_view flag) {
  const std::uint64_t expected = kHeaderBytes + static_cast<std::uint64_t>(elements) * element_bytes;
  if (file.size() != expected) {
    user_error(flag, ": the file has ", file.size(), " bytes, its header specifies ", expected);
  }
}

void require_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab_size, std::string_view flag) {
  const auto bad = std::ranges::find_if(tokens, [&](std::int32_t id) { return id < 0 || id >= vocab_size; });
  if (bad != tokens.end()) user_error(flag, ": token ", *bad, " is outside the vocabulary of ", vocab_size);
}

std::size_t bytes_of(LlmcPrecision precision) {
  return precision == LlmcPrecision::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

// The number of elements of a model in llm.c's layout. It is computed from one layer, so that a header with
// too many layers does not cost time or memory.
std::int64_t llmc_numel(Gpt2Config config) {
  const std::int64_t layers = std::exchange(config.n_layer, 1);
  const ParameterTable table = gpt2_parameter_table(config);
  std::int64_t n = 0;
  for (const Parameter& row : table.rows()) {
    n += row.arena_shape().numel() * (row.name.starts_with("h.") ? layers : 1);
  }
  return n;
}

// Throws UserError for a model with a property that llm.c's header has no field for.
void require_llmc_shape(const Gpt2Config& config) {
  if (config.activation != Activation::gelu_new) {
    user_error("llm.c's models have the activation gelu_new, not ", name_of(config.activation));
  }
  const Gpt2Config usual;
  if (config.layer_norm_epsilon != usual.layer_norm_epsilon) {
    user_error("llm.c's models have the layer_norm_epsilon ", usual.layer_norm_epsilon, ", not ",
               config.layer_norm_epsilon);
  }
  const std::int64_t usual_width = std::int64_t{4} * config.n_embd;
  if (config.mlp_width() != usual_width) {
    user_error("llm.c's models have n_inner 4 times n_embd, here ", usual_width, ", not ",
               config.mlp_width());
  }
  if (!config.scale_attn_weights || config.scale_attn_by_inverse_layer_idx) {
    user_error(
        "llm.c's models divide attention scores by √(n_embd/n_head) in all layers: expected "
        "'scale_attn_weights' true and 'scale_attn_by_inverse_layer_idx' false");
  }
  if (!config.tie_word_embeddings) {
    user_error("llm.c's models have an output head that is tied to wte, not a separate lm_head.weight");
  }
}

// The rows of the table in llm.c's order: all layers of one kind of parameter together.
std::vector<std::size_t> llmc_order(const ParameterTable& table, const Gpt2Config& config) {
  constexpr std::ptrdiff_t kFirst = 2, kPerLayer = 12;  // wte, wpe, then the rows of each layer; ln_f is last
  std::vector<std::size_t> order(table.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto layers = order.begin() + kFirst;
  std::stable_sort(layers, layers + kPerLayer * config.n_layer, [](std::size_t a, std::size_t b) {
    return (a - kFirst) % kPerLayer < (b - kFirst) % kPerLayer;
  });
  return order;
}

// `stored`: the tensors in llm.c's order, all layers of a parameter together, wte padded to
// padded_vocab_size() rows.
ParameterValues stored_values(std::span<const std::byte> stored, LlmcPrecision precision,
                              const Gpt2Config& config) {
  return [stored, precision, offsets = llmc_offsets(gpt2_parameter_table(config), config)](
             std::size_t i, std::int64_t first, std::span<float> out) {
    const std::size_t bytes = bytes_of(precision);
    const auto begin = static_cast<std::size_t>(offsets[i] + first) * bytes;
    const std::span<const std::byte> values = stored.subspan(begin, out.size() * bytes);
    if (precision == LlmcPrecision::bf16) return convert_halves(values, out, float_of_bf16);
    std::memcpy(out.data(), values.data(), values.size());
  };
}

}  // namespace

ModelFile parse_llmc_model(std::span<const std::byte> file, std::string_view flag) {
  const auto header = read_header(file, kModelMagic, "a model file of llm.c", flag);
  if (header[1] != kModelVersionF32 && header[1] != kModelVersionBf16) {
    user_error(flag, ": version ", header[1], ", expected 3 (f32) or 5 (bf16)");
  }
  const auto precision = header[1] == kModelVersionF32 ? LlmcPrecision::f32 : LlmcPrecision::bf16;
  Gpt2Config config;
  config.block_size = header_number(header[2], 1 << 20, "the context length", flag);
  config.vocab_size = header_number(header[3], 1 << 24, "the vocabulary", flag);
  config.n_layer = static_cast<int>(header_number(header[4], 1 << 10, "the number of layers", flag));
  config.n_head = static_cast<int>(header_number(header[5], 1 << 16, "the number of heads", flag));
  config.n_embd = static_cast<int>(header_number(header[6], 1 << 16, "the number of channels", flag));
  if (header[7] != config.padded_vocab_size()) {
    user_error(flag, ": the padded vocabulary is ", header[7], ", expected ", config.padded_vocab_size());
  }
  if (config.n_embd % config.n_head != 0) {
    user_error(flag, ": ", config.n_embd, " channels are not divisible by ", config.n_head, " heads");
  }
  const std::int64_t numel = llmc_numel(config);
  require_size(file, numel, bytes_of(precision), flag);
  return {config, stored_values(file.subspan(kHeaderBytes), precision, config)};
}

LlmcState parse_llmc_state(std::span<const std::byte> file, const Gpt2Config& config, std::string_view flag) {
  const auto header = read_header(file, kStateMagic, "a debug state of llm.c", flag);
  if (header[1] != kStateVersion) user_error(flag, ": version ", header[1], ", expected ", kStateVersion);
  naming(flag, [&] { require_llmc_shape(config); });
  LlmcState state;
  state.B = header_number(header[2], 1 << 16, "the batch size", flag);
  state.T = header_number(header[3], 1 << 20, "the sequence length", flag);
  if (state.T > config.block_size) {
    user_error(flag, ": the sequences have ", state.T, " tokens, the model's context has only ",
               config.block_size);
  }
  const std::int64_t tokens = state.B * state.T, numel = llmc_numel(config);
  require_size(file, 2 * tokens + tokens * config.vocab_size + 1 + numel, sizeof(float), flag);
  Cursor cursor(file.subspan(kHeaderBytes));
  state.ids = cursor.take<std::int32_t>(tokens);
  state.targets = cursor.take<std::int32_t>(tokens);
  state.logits = cursor.take<float>(tokens * config.vocab_size);
  state.loss = cursor.take<float>(1)[0];
  state.grads = cursor.take<float>(numel);
  require_tokens(state.ids, config.vocab_size, flag);
  require_tokens(state.targets, config.vocab_size, flag);
  return state;
}

std::vector<std::int64_t> llmc_offsets(const ParameterTable& table, const Gpt2Config& config) {
  std::vector<std::int64_t> offsets(table.size());
  std::int64_t end = 0;
  for (const std::size_t row : llmc_order(table, config)) {
    offsets[row] = end;
    end += table[row].arena_shape().numel();
  }
  return offsets;
}

void write_llmc_model(const std::filesystem::path& path, const Gpt2Config& config,
                      const ParameterValues& values, LlmcPrecision precision) {
  require_llmc_shape(config);
  const ParameterTable table = gpt2_parameter_table(config);
  std::array<std::int32_t, kHeaderInts> header{};
  const auto number = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  header[0] = kModelMagic;
  header[1] = precision == LlmcPrecision::f32 ? kModelVersionF32 : kModelVersionBf16;
  header[2] = number(config.block_size);
  header[3] = number(config.vocab_size);
  header[4] = config.n_layer;
  header[5] = config.n_head;
  header[6] = config.n_embd;
  header[7] = number(config.padded_vocab_size());
  OutputFile file(path);
  file.write(std::as_bytes(std::span(header)));

  for (const std::size_t i : llmc_order(table, config)) {
    // Padded rows are zero.
    std::vector<float> elements(static_cast<std::size_t>(table[i].arena_shape().numel()));
    values(i, 0, std::span(elements).first(static_cast<std::size_t>(table[i].shape.numel())));
    if (precision == LlmcPrecision::f32) {
      file.write(std::as_bytes(std::span(elements)));
      continue;
    }
    std::vector<std::uint16_t> halves(elements.size());
    std::ranges::transform(elements, halves.begin(), bf16_of_float);
    file.write(std::as_bytes(std::span(halves)));
  }
  file.sync();
}

}  // namespace stagegpt
