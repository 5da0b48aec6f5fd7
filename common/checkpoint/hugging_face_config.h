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

// The model described by a config.json; dropout is ignored. Throws UserError if it is not GPT-2, or has an
// unsupported option that changes results.
Gpt2Config parse_config(const nlohmann::json& json);

}  // namespace stagegpt
