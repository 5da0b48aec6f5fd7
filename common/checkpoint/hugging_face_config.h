// config.json and generation_config.json of a Hugging Face GPT-2 directory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/model/gpt2.h"

namespace stagegpt {

std::string config_json(const Gpt2Config& config, std::optional<std::int32_t> end_of_text);
std::string generation_config_json(std::optional<std::int32_t> end_of_text);

// The model that a config.json describes, without dropout. Throws UserError where it is not GPT-2, or has an
// option that changes results and is not supported.
Gpt2Config parse_config(const nlohmann::json& json);

}  // namespace stagegpt
