// The text that a training run generates.
#pragma once

#include <cstdint>
#include <string>

#include "common/app/stage.h"
#include "common/data/corpus.h"
#include "common/model/language_model.h"

namespace stagegpt {

// A text of so many tokens, the same on every rank. Rank 0 generates it, or, where no rank has the whole
// model, all ranks. If rank 0 alone fails, it prints a warning, and the text is shorter. A collective call.
std::string sample_text(const Machine& machine, const LanguageModel& model, const Corpus& corpus,
                        std::int64_t tokens, std::uint64_t seed);

}  // namespace stagegpt
