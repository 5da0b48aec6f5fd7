// An inspection as JSON. Fields: docs/file_formats.md.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/data/tokenizers/tokenizer.h"
#include "tools/inspect/inspection.h"

namespace stagegpt {

// The pages and JSON files that this project writes have this text near their beginning.
inline constexpr const char* kInspectionMark = "StageGPT inspection";

// What was inspected, for readers.
struct InspectedModel {
  std::string name;     // as the user has given it
  std::string machine;  // one line
  std::int64_t parameters = 0;
  Gpt2Config config;
  // Of a checkpoint of a run: the optimizer steps done, and the validation loss there, in nats per token.
  std::optional<std::int64_t> step = {};
  std::optional<double> validation_loss = {};
};

// The text of a token. Bytes that are no UTF-8, because a token may end inside a character, are written as
// \xF0; a token that the tokenizer does not have is its number, [50300].
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

// All that the page and the JSON show.
struct Findings {
  InspectedModel model;
  Inspection inspection;
  TapeGraph tape;  // of a training step on a text of the same length
  Json run;        // layer_history(), or null
};

Json to_json(const TapeGraph& tape);
Json to_json(const Findings& findings, const Tokenizer& tokenizer);

}  // namespace stagegpt
