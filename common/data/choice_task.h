// A multiple-choice task: contexts with several endings each, of which one is right, as a model reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// The tokens of a context and of what follows it.
struct Continuation {
  std::vector<std::int32_t> ids;
  std::int64_t scored = 0;  // number of the last tokens, which are to be predicted from those before them
};

struct ChoiceQuestion {
  std::vector<std::int64_t> characters;  // of each ending's text, without the space before it
  std::size_t label = 0;                 // index of the right ending
};

struct ChoiceTask {
  std::vector<ChoiceQuestion> questions;
  std::vector<Continuation> endings;  // of all questions, in order
  std::int64_t cut = 0;               // number of endings whose context was cut at its beginning
};

// Reads a file (choice_file.h) on every rank. A context and its ending get the tokens that
// lm-evaluation-harness gives them: the ending's are those that the whole text has more than the context.
// ASCII white space at the end of a context belongs to the ending. A question without a context begins with
// the end-of-text token. What is longer than block_size + 1 tokens, the last of which is only predicted,
// loses its first ones. Throws UserError, which names `flag`, the file, and the line or question. What fails
// on one rank, fails on all, and they must have found the same questions.
ChoiceTask load_choice_task(RankGroup& group, const std::filesystem::path& path, std::string_view flag,
                            const Tokenizer& tokenizer, std::int64_t block_size);

}  // namespace stagegpt
