// The weights from which a training run starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "common/app/stage.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/model/language_model.h"

namespace stagegpt {

// The weights of a Hugging Face directory; null without one. Opening them compares the files with
// config.json, before a model of that size is allocated. `verified`: it is the checkpoint of a resumed run.
std::unique_ptr<HuggingFaceModel> open_weights(const std::optional<std::filesystem::path>& directory,
                                               bool verified);

// Gives the model of all ranks the same weights: those of the directory, which rank 0 alone has open, or, if
// there is none, random ones. A collective call. Throws Stopped if a signal comes meanwhile.
void set_initial_weights(const Machine& machine, const std::optional<std::filesystem::path>& directory,
                         const HuggingFaceModel* weights, std::uint64_t seed, LanguageModel& model);

}  // namespace stagegpt
