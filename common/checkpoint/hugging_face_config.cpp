#include "common/checkpoint/hugging_face_config.h"

#include "common/base/json.h"

namespace stagegpt {
namespace {

// A size; `fallback` if the field is missing or null.
std::int64_t size_field(const nlohmann::json& json, const char* name, std::int64_t max,
                        std::optional<std::int64_t> fallback = std::nullopt) {
  const auto field = json.find(name);
  if (field == json.end() || field->is_null()) {
    if (!fallback) user_error("'", name, "' is missing");
    return *fallback;
  }
  if (!field->is_number_integer() || *field < 1 || *field > max) {
    user_error("'", name, "' is ", field->dump().substr(0, 40), ", expected 1 to ", max);
  }
  return field->get<std::int64_t>();
}

// A number from 1e-30 to 1, which f32 can hold; `fallback` if the field is missing.
double epsilon_field(const nlohmann::json& json, const char* name, double fallback) {
  const auto field = json.find(name);
  if (field == json.end()) return fallback;
  if (!field->is_number() || !(*field >= 1e-30 && *field <= 1.0)) {
    user_error("'", name, "' is ", field->dump().substr(0, 40), ", expected 1e-30 to 1");
  }
  return field->get<double>();
}

// True or false; `fallback` if the field is missing.
bool bool_field(const nlohmann::json& json, const char* name, bool fallback) {
  const auto field = json.find(name);
  if (field == json.end()) return fallback;
  if (!field->is_boolean()) {
    user_error("'", name, "' is ", field->dump().substr(0, 40), ", expected true or false");
  }
  return field->get<bool>();
}

// Throws UserError if the field exists and has a value that would change the model's results.
void require(const nlohmann::json& json, const char* name, const nlohmann::json& expected) {
  const auto field = json.find(name);
  if (field != json.end() && *field != expected) {
    user_error("'", name, "': ", field->dump().substr(0, 40), " is not supported, expected ",
               expected.dump());
  }
}

// The activation with a name of `transformers`. Two names are other implementations of gelu_new:
// gelu_pytorch_tanh is PyTorch's own function; gelu_fast is x/2 (1 + tanh(√(2/π) x (1 + 0.044715 x²))) with
// √(2/π) to ten digits.
std::optional<Activation> activation_of(const std::string& name) {
  if (name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_new;
  const auto named = activation_named(name);
  return named == Activation::none ? std::nullopt : named;
}

}  // namespace

std::string config_json(const Gpt2Config& config, std::optional<std::int32_t> end_of_text) {
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"vocab_size", config.vocab_size},
                     {"n_positions", config.block_size},
                     {"n_ctx", config.block_size},
                     {"n_embd", config.n_embd},
                     {"n_layer", config.n_layer},
                     {"n_head", config.n_head},
                     {"n_inner", config.n_inner > 0 ? Json(config.n_inner) : Json()},
                     {"activation_function", name_of(config.activation)},
                     {"layer_norm_epsilon", config.layer_norm_epsilon},
                     {"initializer_range", config.initializer_range},
                     {"embd_pdrop", config.dropout},
                     {"attn_pdrop", config.dropout},
                     {"resid_pdrop", config.dropout},
                     {"scale_attn_weights", config.scale_attn_weights},
                     {"scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx},
                     {"reorder_and_upcast_attn", false},
                     {"tie_word_embeddings", config.tie_word_embeddings},
                     {"use_cache", true},
                     {"bos_token_id", or_null(end_of_text)},
                     {"eos_token_id", or_null(end_of_text)},
                     {"torch_dtype", "float32"}};
  return json.dump(2) + '\n';
}

std::string generation_config_json(std::optional<std::int32_t> end_of_text) {
  const Json json = {{"_from_model_config", true},
                     {"bos_token_id", or_null(end_of_text)},
                     {"eos_token_id", or_null(end_of_text)}};
  return json.dump(2) + '\n';
}

Gpt2Config parse_config(const nlohmann::json& json) {
  return read_json([&] {
    if (!json.is_object() || !json.contains("model_type"))
      user_error("'model_type' is missing; expected \"gpt2\"");
    if (json["model_type"] != "gpt2")
      user_error("'model_type' is ", json["model_type"].dump().substr(0, 40), ", expected \"gpt2\"");
    Gpt2Config config;
    config.vocab_size = size_field(json, "vocab_size", 1 << 24);
    config.block_size = size_field(json, "n_positions", 1 << 20);
    config.n_layer = static_cast<int>(size_field(json, "n_layer", 1000));
    config.n_head = static_cast<int>(size_field(json, "n_head", 1 << 16));
    config.n_embd = static_cast<int>(size_field(json, "n_embd", 1 << 16));
    const nlohmann::json activation = json.value("activation_function", nlohmann::json("gelu_new"));
    const auto named = activation.is_string() ? activation_of(activation.get<std::string>()) : std::nullopt;
    if (!named) {
      user_error("'activation_function': ", activation.dump().substr(0, 40),
                 " is not supported, expected gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu");
    }
    config.activation = *named;
    config.initializer_range = json.value("initializer_range", config.initializer_range);
    const std::int64_t usual = std::int64_t{4} * config.n_embd,
                       inner = size_field(json, "n_inner", 1 << 20, usual);
    config.n_inner = inner == usual ? 0 : inner;
    config.layer_norm_epsilon = epsilon_field(json, "layer_norm_epsilon", config.layer_norm_epsilon);
    config.scale_attn_weights = bool_field(json, "scale_attn_weights", config.scale_attn_weights);
    config.scale_attn_by_inverse_layer_idx =
        bool_field(json, "scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx);
    require(json, "add_cross_attention", false);
    config.tie_word_embeddings = bool_field(json, "tie_word_embeddings", config.tie_word_embeddings);
    if (config.n_embd % config.n_head != 0) user_error("'n_head' does not divide 'n_embd'");
    return config;
  });
}

}  // namespace stagegpt
