// A multiple-choice task, on every rank.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/comm/rank_group.h"
#include "common/data/choice_task.h"

namespace stagegpt {

// load_choice_task() on every rank. What fails on one rank, fails on all, and they must have found the same
// questions.
ChoiceTask load_shared_choice_task(RankGroup& group, const std::filesystem::path& path, std::string_view flag,
                                   const Tokenizer& tokenizer, std::int64_t block_size);

}  // namespace stagegpt
