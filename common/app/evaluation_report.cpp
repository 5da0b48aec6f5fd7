#include "common/app/evaluation_report.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "common/base/grouped.h"
#include "common/base/json.h"

namespace stagegpt {
namespace {

double perplexity(const TextReport& report) { return std::exp(report.evaluation.loss); }

// Null for one question, which has no standard error.
Json error_of(double accuracy, std::int64_t questions) {
  return questions > 1 ? Json(standard_error(accuracy, questions)) : Json();
}

// "1 token", "2 tokens".
std::string count_of(std::int64_t count, const std::string& noun) {
  return concat(grouped(count), ' ', noun, count == 1 ? "" : "s");
}

std::string accuracy_text(double accuracy, std::int64_t questions) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(4) << accuracy;
  if (questions > 1) out << " ± " << standard_error(accuracy, questions);
  return out.str();
}

}  // namespace

Json to_json(const TextReport& report) {
  const Evaluation& found = report.evaluation;
  const auto bits = bits_per_byte(found);
  return {{"loss", found.loss},
          {"perplexity", perplexity(report)},
          {"bits_per_byte", bits ? Json(*bits) : Json()},
          {"accuracy", found.accuracy},
          {"tokens", found.tokens},
          {"bytes", found.bytes ? Json(*found.bytes) : Json()},
          {"windows", report.windows},
          {"seq_len", report.seq_len},
          {"stride", report.stride}};
}

std::string to_table(const TextReport& report) {
  const Evaluation& found = report.evaluation;
  std::ostringstream out;
  out << std::setprecision(6) << "loss           " << found.loss << " nats per token\nperplexity     "
      << perplexity(report) << "\nbits per byte  ";
  if (const auto bits = bits_per_byte(found)) {
    out << *bits;
  } else {
    out << "unknown: the text has tokens of unknown words";
  }
  out << "\naccuracy       " << found.accuracy << "\nof             " << count_of(found.tokens, "token");
  if (found.bytes) out << ", " << count_of(*found.bytes, "byte");
  out << ", in windows of " << report.seq_len << " tokens that begin every " << report.stride << '\n';
  return out.str();
}

Json to_json(const TaskReport& report) {
  const ChoiceResult& result = report.result;
  return {{"acc", result.acc},
          {"acc_stderr", error_of(result.acc, result.questions)},
          {"acc_norm", result.acc_norm},
          {"acc_norm_stderr", error_of(result.acc_norm, result.questions)},
          {"questions", result.questions},
          {"cut", report.cut}};
}

std::string to_table(const TaskReport& report) {
  const ChoiceResult& result = report.result;
  std::string table = concat("acc        ", accuracy_text(result.acc, result.questions), "\nacc_norm   ",
                             accuracy_text(result.acc_norm, result.questions), "\nof         ",
                             count_of(result.questions, "question"));
  if (report.cut > 0)
    table += concat("; ", count_of(report.cut, "ending"),
                    " had to lose the beginning of the context, which is longer than the model's, ",
                    report.block_size, " tokens");
  return table + '\n';
}

}  // namespace stagegpt
