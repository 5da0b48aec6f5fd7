// What stageN_evaluate prints, as a table or as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json_fwd.h"
#include "common/data/choice_task.h"
#include "common/train/choices.h"
#include "common/train/evaluate.h"

namespace stagegpt {

// The evaluation of a text, in windows of `seq_len` tokens that begin every `stride`.
struct TextReport {
  Evaluation evaluation;
  std::int64_t windows, seq_len, stride;
};
Json to_json(const TextReport& report);
std::string to_table(const TextReport& report);

// The evaluation of a multiple-choice task.
struct TaskReport {
  ChoiceResult result;
  std::int64_t cut;         // see ChoiceTask
  std::int64_t block_size;  // the model's context
};
Json to_json(const TaskReport& report);
std::string to_table(const TaskReport& report);

}  // namespace stagegpt
