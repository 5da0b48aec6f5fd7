#include "common/app/training_sample.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "common/comm/agreement.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/generation/generation.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

// The prompt of a sample: a line break, or the text's first token if there is no line break near its start.
std::vector<std::int32_t> sample_prompt(const Corpus& corpus) {
  constexpr std::int64_t kSearched = 1 << 16;
  const auto ids = corpus.train.read(0, std::min(kSearched, corpus.train.size()));
  const auto line_break = std::ranges::find_if(ids, [&](std::int32_t id) {
    return corpus.tokenizer->decode({&id, 1}) == "\n";
  });
  return {line_break == ids.end() ? ids.front() : *line_break};
}

std::string write_sample(const Machine& machine, const LanguageModel& model, const Corpus& corpus,
                         std::int64_t tokens, std::uint64_t seed) {
  const Grid grid = machine.ranks();
  RankGroup& group = grid.world().group();
  group.enter("sample");
  std::string text;
  StreamDecoder decoder(*corpus.tokenizer);
  const SamplingConfig sampling{.vocabulary = corpus.tokenizer->size(), .temperature = 0.7, .seed = seed};
  Context context(*machine.backend, model, grid.model());
  const auto emit = [&](std::size_t, std::int32_t id) {
    group.beat();
    text += decoder.push(id);
    return !StopSignals::requested();
  };
  try {
    generate(context, sample_prompt(corpus), tokens, sampling, 0, emit);
  } catch (const std::runtime_error& error) {
    if (grid.divides_model()) throw;  // the other ranks of the model wait in a collective
    // A run does not end for it.
    if (group.is_root()) std::cerr << "warning: no sample: " << error.what() << '\n';
  }
  return text + decoder.finish();
}

}  // namespace

std::string sample_text(const Machine& machine, const LanguageModel& model, const Corpus& corpus,
                        std::int64_t tokens, std::uint64_t seed) {
  const Grid grid = machine.ranks();
  const auto write = [&] { return write_sample(machine, model, corpus, tokens, seed); };
  RankGroup& group = grid.world().group();
  return grid.divides_model() ? broadcast_text(group, write()) : text_from_root(group, write);
}

}  // namespace stagegpt
