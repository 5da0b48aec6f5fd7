#include "tools/inspect/inspection_json.h"

#include <cmath>
#include <cstdio>

#include "common/data/utf8.h"

namespace stagegpt {
namespace {

constexpr int kVersion = 1;

// Seven digits after the point: enough for all that is shown. Smaller probabilities become 0.
double seven_digits(double x) {
  constexpr double kUnit = 1e7;
  return std::round(x * kUnit) / kUnit;
}

Json token_json(const Tokenizer& tokenizer, std::int32_t id) {
  return {{"id", id}, {"text", token_text(tokenizer, id)}};
}

Json head_json(const HeadAttention& head, std::size_t T) {
  Json rows = Json::array();
  for (std::size_t t = 0; t < T; ++t) {
    Json row = Json::array();
    for (std::size_t s = 0; s <= t; ++s) row.push_back(seven_digits(head.weights[t * T + s]));
    rows.push_back(std::move(row));
  }
  return {{"previous", seven_digits(head.previous)},
          {"self", seven_digits(head.self)},
          {"first", seven_digits(head.first)},
          {"spread", seven_digits(head.spread)},
          {"rows", std::move(rows)}};
}

Json position_json(const LensPosition& position, const Tokenizer& tokenizer) {
  Json top = Json::array();
  for (const Prediction& prediction : position.top) {
    Json token = token_json(tokenizer, prediction.id);
    token["probability"] = seven_digits(prediction.probability);
    top.push_back(std::move(token));
  }
  Json json = {{"top", std::move(top)}, {"entropy", seven_digits(position.entropy)}};
  json["next_probability"] =
      position.next_probability ? Json(seven_digits(*position.next_probability)) : Json();
  json["next_rank"] = or_null(position.next_rank);
  return json;
}

Json lens_json(const Inspection& inspection, const Tokenizer& tokenizer) {
  Json lens = Json::array();
  for (std::size_t l = 0; l < inspection.lens.size(); ++l) {
    Json positions = Json::array();
    for (const LensPosition& position : inspection.lens[l])
      positions.push_back(position_json(position, tokenizer));
    lens.push_back(
        {{"after", l == 0 ? "embedding" : concat("h.", l - 1)}, {"positions", std::move(positions)}});
  }
  return lens;
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  if (id >= tokenizer.size()) return concat('[', id, ']');
  const std::string bytes = tokenizer.decode({&id, 1});
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = utf8_length(bytes, at);
    if (length > 0) {
      text += bytes.substr(at, length);
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02X", static_cast<unsigned char>(bytes[at]));
      text += escape;
    }
    at += std::max<std::size_t>(length, 1);
  }
  return text;
}

Json to_json(const TapeGraph& tape) {
  Json nodes = Json::array();
  for (const TapeNode& node : tape.nodes) {
    Json outputs = Json::array();
    for (const Shape& shape : node.outputs)
      outputs.push_back(std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end()));
    nodes.push_back({{"op", node.op},
                     {"layer", node.layer},
                     {"inputs", node.inputs},
                     {"parameters", node.parameters},
                     {"outputs", std::move(outputs)},
                     {"bytes", node.bytes},
                     {"in_use", node.in_use}});
  }
  return {{"batch_size", tape.B},
          {"seq_len", tape.T},
          {"weights_and_gradients", tape.weights},
          {"peak", tape.peak},
          {"nodes", std::move(nodes)}};
}

Json to_json(const Findings& findings, const Tokenizer& tokenizer) {
  const auto& [model, inspection, tape, run] = findings;
  Json tokens = Json::array(), attention = Json::array(), added = Json::array();
  for (const std::int32_t id : inspection.ids) tokens.push_back(token_json(tokenizer, id));
  for (int l = 0; l < inspection.n_layer; ++l) {
    Json heads = Json::array();
    for (int h = 0; h < inspection.n_head; ++h)
      heads.push_back(head_json(inspection.head(l, h), inspection.ids.size()));
    attention.push_back(std::move(heads));
  }
  for (const auto& [of_attention, of_mlp] : inspection.added)
    added.push_back({{"attention", seven_digits(of_attention)}, {"mlp", seven_digits(of_mlp)}});
  return {{"format", kInspectionMark},
          {"version", kVersion},
          {"model", model.name},
          {"machine", model.machine},
          {"parameters", model.parameters},
          {"step", or_null(model.step)},
          {"validation_loss", or_null(model.validation_loss)},
          {"loss", std::isfinite(inspection.loss()) ? Json(seven_digits(inspection.loss())) : Json()},
          {"n_layer", inspection.n_layer},
          {"n_head", inspection.n_head},
          {"n_embd", model.config.n_embd},
          {"tokens", std::move(tokens)},
          {"attention", std::move(attention)},
          {"lens", lens_json(inspection, tokenizer)},
          {"added", std::move(added)},
          {"tape", to_json(tape)},
          {"run", run}};
}

}  // namespace stagegpt
