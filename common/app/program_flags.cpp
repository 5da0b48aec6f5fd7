#include "common/app/program_flags.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

constexpr const char* kFlag = "--profile-steps";
constexpr std::int64_t kMaxNumber = 1'000'000'000;

// "2:4".
StepRange parse_range(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) user_error(kFlag, ": expected FIRST:LAST, such as 2:4, not '", text, "'");
  const StepRange range{parse_integer(kFlag, text.substr(0, colon), 1, kMaxNumber),
                        parse_integer(kFlag, text.substr(colon + 1), 1, kMaxNumber)};
  if (range.first > range.last) user_error(kFlag, ": expected FIRST <= LAST, not '", text, "'");
  return range;
}

}  // namespace

void ProfileFlags::add(CommandLine& command_line, const char* unit, StepRange usual) {
  unit_ = unit;
  range_ = usual;
  command_line.text("--profile", file_,
                    concat("write a timeline of some ", unit, "s to this file, for https://ui.perfetto.dev"));
  command_line.text(kFlag, steps_,
                    concat("FIRST:LAST, the ", unit, "s in that timeline, counted from 1 (default: ",
                           usual.first, ':', usual.last, ')'));
}

void ProfileFlags::resolve(const StepRange& all, Stage& stage) {
  if (!file_) {
    if (steps_) user_error(kFlag, ": is for --profile");
    return;
  }
  if (stage.counts())
    user_error("--profile: cannot be combined with --emulator-report, which measures no time");
  if (all.first > all.last) user_error("--profile: no ", unit_, " is left to do in this call");
  if (steps_) range_ = parse_range(*steps_);
  if (steps_ && (range_.first < all.first || range_.last > all.last)) {
    user_error(kFlag, ": expected ", unit_, "s of this call, which does ", all.first, " to ", all.last,
               ", not '", *steps_, "'");
  }
  const std::int64_t before = steps_ ? 0 : all.first - 1;  // the usual range counts the steps of the call
  range_ = {std::min(range_.first + before, all.last), std::min(range_.last + before, all.last)};
  if (stage.group().is_root()) require_profile_file(*file_);
}

std::unique_ptr<Timeline> ProfileFlags::make_timeline() const {
  return file_ ? std::make_unique<Timeline>() : nullptr;
}

std::unique_ptr<Profile> ProfileFlags::make_profile(Timeline* timeline, RankGroup& group,
                                                    Backend& backend) const {
  if (!file_) return nullptr;
  return std::make_unique<Profile>(*timeline, group, backend, ProfileConfig{*file_, range_, unit_});
}

void TokenizerFlags::add(CommandLine& command_line) {
  command_line.choice("--tokenizer", choice_.kind, {"char", "word", "bpe", "gpt2"},
                      "tokenizer (default: bpe, or the one in --tokenizer-path)");
  command_line.text("--tokenizer-path", choice_.path,
                    "existing tokenizer: tokenizer.json, GPT-2's two files, llm.c's file, or a directory "
                    "that contains one of these");
  command_line.integer("--vocab-size", choice_.vocab_size, 1, 1 << 24,
                       concat("size of the vocabulary that is learnt from the text (default: bpe: a token "
                              "for every 600 bytes, between ",
                              kSmallestDefaultVocabSize, " and ", kLargestDefaultVocabSize,
                              "; word: every word, at most ", kLargestDefaultVocabSize, ")"));
  command_line.toggle("--parse-special-tokens", parse_special_,
                      "read the names of special tokens in the text, such as <|endoftext|>, as tokens");
  command_line.toggle("--any-bytes", any_bytes_, kAnyBytesHelp);
}

void WeightsFlag::add(CommandLine& command_line, const std::string& help) {
  command_line.choice("--weights", name_, {"f32", "bf16", "int8"}, help);
}

DType WeightsFlag::matrices(const Machine& machine) const {
  if (name_ == "int8") {
    if (!machine.backend->reads_quantised_rows())
      throw AgreedUserError("--weights: int8 is for stages 0 and 1; expected f32 or bf16");
    return DType::i8;
  }
  return machine.activations == DType::bf16 || name_ == "bf16" ? DType::bf16 : DType::f32;
}

std::string WeightsFlag::name_on(const Machine& machine) const {
  const DType matrices = this->matrices(machine);
  return matrices == DType::i8 ? "int8" : name_of(matrices);
}

void WeightsFlag::narrow(Gpt2& model, const Machine& machine) const {
  if (matrices(machine) == machine.activations) return;
  model.narrow_matrices(matrices(machine));
  machine.backend->release_free_memory();
  machine.backend->forget_memory_peak();
}

}  // namespace stagegpt
