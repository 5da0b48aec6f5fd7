// stageN_generate: generate text with a model.
#include <unistd.h>

#include <iostream>

#include "common/app/command_line.h"
#include "common/app/line_reader.h"
#include "common/app/program_flags.h"
#include "common/app/stage.h"
#include "common/app/trained_model.h"
#include "common/backend/texts_together.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/base/seconds_since.h"
#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/data/utf8.h"
#include "common/generation/generation.h"
#include "common/generation/stop_strings.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

constexpr RealRule kTemperature{[](double x) { return x >= 0 && x <= 1000; }, "a number from 0 to 1000"};
constexpr RealRule kPenalty{[](double x) { return x > 0 && x <= 1000; }, "a number above 0 and up to 1000"};

struct GenerateFlags {
  std::string model, prompt;
  WeightsFlag weights;
  std::optional<std::string> tokenizer_path;
  std::int64_t max_new_tokens = 200, num_samples = 1, seed = 1337,
               together = 1;  // texts that grow together; depends on the memory
  SamplingConfig sampling{.temperature = 0.7};
  std::vector<std::string> stop;
  ProfileFlags profile;
  bool interactive = false, no_fused = false, ignore_memory = false, json = false;

  void add(CommandLine& command_line) {
    command_line.group("Model");
    command_line.text("--model", model, kModelFormats);
    command_line.text("--tokenizer-path", tokenizer_path, "tokenizer (default: the directory's)");
    weights.add(command_line,
                "precision of matrices in memory; bf16 takes half the bytes, int8 (CPU only) a quarter");
    command_line.group("Text");
    command_line.free_text("--prompt", prompt, "text to continue (default: a new text)");
    command_line.integer("--max-new-tokens", max_new_tokens, 1, std::int64_t{1} << 40, "tokens to generate");
    command_line.integer("--num-samples", num_samples, 1, 1 << 20,
                         concat("texts to generate, up to ", kMostTextsTogether, " of them together"));
    command_line.free_texts("--stop", stop, "stop before this text; may be given several times");
    command_line.toggle("--interactive", interactive, "read prompts from standard input, one per line");
    command_line.group("Sampling");
    command_line.real("--temperature", sampling.temperature, kTemperature,
                      "divides the logits, at most 1000 (0: always the most probable token)");
    command_line.integer("--top-k", sampling.top_k, 0, 1 << 30,
                         "sample from the k most probable tokens (0: from all)");
    command_line.real("--top-p", sampling.top_p, kUpToOne,
                      "sample from the smallest set of tokens with this total probability");
    command_line.real("--repetition-penalty", sampling.repetition_penalty, kPenalty,
                      "makes tokens that have occurred less probable; at most 1000");
    command_line.integer("--seed", seed, 0, std::numeric_limits<std::int64_t>::max(),
                         "random seed of sampling");
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    profile.add(command_line, "token", {1, 16});
    add_ignore_memory(command_line, ignore_memory);
    command_line.toggle("--json", json, "print one JSON object instead of the text");
  }
  void check(Stage& stage) {
    sampling.seed = static_cast<std::uint64_t>(seed);
    require_model_path(model, "--model");
    for (const std::string& text : stop) {
      if (const std::size_t at = utf8_prefix(text); at < text.size())
        user_error("--stop: expected UTF-8, as generated text is; byte ", at, " starts no character");
    }
    if (interactive && json) user_error("--json: cannot be combined with --interactive");
    if (interactive && !prompt.empty())
      user_error("--prompt: cannot be combined with --interactive, which reads prompts from standard input");
    if (interactive && profile.is_given()) user_error("--profile: cannot be combined with --interactive");
    profile.resolve({1, max_new_tokens}, stage);
  }
  // As few groups as memory for `most` texts allows, of nearly the same size.
  void divide_texts(std::int64_t most) {
    const std::int64_t groups = (num_samples + most - 1) / most;
    together = (num_samples + groups - 1) / groups;
  }
};

// The time of all texts' tokens. Texts that grow together share it; before their first tokens the prompt is
// processed.
struct Timing {
  std::int64_t groups = 0, largest_group = 0, texts = 0, tokens = 0;  // a group of texts grows together
  double first_seconds = 0, later_seconds = 0;

  double first_ms() const {
    return 1e3 * first_seconds / static_cast<double>(std::max<std::int64_t>(1, groups));
  }
  double token_ms() const {
    return tokens > texts ? 1e3 * later_seconds / static_cast<double>(tokens - texts) : first_ms();
  }
  void print() const {
    std::fprintf(stderr, "%s token%s", grouped(tokens).c_str(), tokens == 1 ? "" : "s");
    if (largest_group > 1) std::fprintf(stderr, " of %s texts at a time", grouped(largest_group).c_str());
    std::fputs(": ", stderr);
    if (tokens > texts) {  // the first ones also take the time of the prompt
      std::fprintf(stderr, "%.2f ms per token, %s tokens/s, ", token_ms(),
                   grouped(1e3 / token_ms(), 1).c_str());
    }
    std::fprintf(stderr, "first after %.1f ms\n", first_ms());
  }
};

// What is done with texts that grow together, which count from 0.
struct TextSink {
  std::function<void(std::size_t, const std::string& part)> add;
  std::function<void(std::size_t, const std::string& reason)> end;
};

class Writer {
 public:
  // `profile`, which may be null, is of the first texts.
  Writer(const GenerateFlags& flags, const Machine& machine, const TrainedModel& trained, Profile* profile)
      : flags_(flags),
        machine_(machine),
        trained_(trained),
        tokenizer_(*trained.tokenizer),
        profile_(profile) {}

  // The tokens that a text continues: a prompt's or, for a new text, the end of text.
  Tokens ids_of(const std::string& prompt) const {
    const char* source = flags_.interactive ? "the prompt" : "--prompt";
    Tokens ids;
    agree(machine_.communicator->group(), [&] {
      ids = naming(source, [&] { return tokenizer_.encode(prompt); });
      if (!ids.empty()) return;
      const auto end = tokenizer_.end_of_text();
      if (!end)
        user_error(source,
                   ": expected a text: the tokenizer has no end-of-text token for a new text to follow");
      ids = {*end};
    });
    return ids;
  }

  // Continues `prompt` in so many texts together, and passes each in whole characters, after `echo`, and why
  // it ended. The n-th text of all calls draws the n-th sample's random numbers.
  void write(const Tokens& prompt, std::string_view echo, std::int64_t count, const TextSink& sink) {
    if (!context_ || context_->texts() != count) {
      context_.reset();
      machine_.backend->release_free_memory();
      context_.emplace(*machine_.backend, *trained_.model, *machine_.communicator, count);
    }
    std::vector<Text> texts;
    for (std::int64_t n = 0; n < count; ++n) {
      texts.push_back({StreamDecoder(tokenizer_), StopStrings(flags_.stop)});
      sink.add(static_cast<std::size_t>(n), texts.back().decoder.push_bytes(echo));
    }
    const auto end = [&](std::size_t n, const char* reason) {
      Text& text = texts[n];
      sink.add(n, text.stops.push(text.decoder.finish()));
      sink.add(n, text.stops.finish());
      sink.end(n, reason);
      text.ended = true;
      return false;
    };
    auto last = std::chrono::steady_clock::now();
    const auto emit = [&](std::size_t n, std::int32_t id) {
      Text& text = texts[n];
      (std::exchange(text.first, false) ? timing_.first_seconds : timing_.later_seconds) +=
          seconds_since(last);
      last = std::chrono::steady_clock::now();
      ++timing_.tokens;
      if (id == tokenizer_.end_of_text()) return end(n, "end_of_text");
      sink.add(n, text.stops.push(text.decoder.push(id)));
      if (text.stops.found()) return end(n, "stop");
      return !TextInterrupt::requested() || end(n, "length");
    };
    const auto first = static_cast<std::uint32_t>(timing_.texts);
    ++timing_.groups;
    timing_.largest_group = std::max(timing_.largest_group, count);
    timing_.texts += count;
    generate(*context_, prompt, flags_.max_new_tokens, flags_.sampling, first, emit, profile_);
    if (profile_ != nullptr) std::exchange(profile_, nullptr)->write();
    for (std::size_t n = 0; n < texts.size(); ++n) {
      if (!texts[n].ended) end(n, "length");
    }
  }
  const Timing& timing() const { return timing_; }

 private:
  struct Text {
    StreamDecoder decoder;
    StopStrings stops;
    bool first = true, ended = false;  // whether its first token is to come, and whether it is complete
  };

  const GenerateFlags& flags_;
  const Machine& machine_;
  const TrainedModel& trained_;
  const Tokenizer& tokenizer_;
  Profile* profile_;
  std::optional<Context> context_;
  Timing timing_;
};

// Throws where standard output cannot be written, which ends the generation.
void print_text(const std::string& text) {
  if (text.empty()) return;
  std::cout << text;
  flush_output();
}

// Prints texts that grow together one after the other: each goes on where those before it are complete.
class InTurn {
 public:
  explicit InTurn(std::int64_t count) : texts_(static_cast<std::size_t>(count)) {}

  void add(std::size_t n, const std::string& part) {
    n == shown_ ? print_text(part) : void(texts_[n].held += part);
  }
  void end(std::size_t n) {
    texts_[n].ended = true;
    while (shown_ < texts_.size() && texts_[shown_].ended) {
      print_text("\n");
      shown_ = TextInterrupt::requested() ? texts_.size() : shown_ + 1;
      if (shown_ < texts_.size()) print_text("---\n" + texts_[shown_].held);
    }
  }

 private:
  struct Text {
    std::string held;
    bool ended = false;
  };
  std::vector<Text> texts_;
  std::size_t shown_ = 0;
};

void print_samples(const GenerateFlags& flags, const std::string& prompt, Writer& writer) {
  const Tokens ids = writer.ids_of(prompt);
  for (std::int64_t i = 0; i < flags.num_samples && !TextInterrupt::requested(); i += flags.together) {
    if (i > 0) print_text("---\n");
    const std::int64_t count = std::min(flags.together, flags.num_samples - i);
    InTurn texts(count);
    writer.write(ids, prompt, count,
                 {[&](std::size_t n, const std::string& part) { texts.add(n, part); },
                  [&](std::size_t n, const std::string&) { texts.end(n); }});
  }
}

void print_json(const GenerateFlags& flags, Writer& writer) {
  const Tokens ids = writer.ids_of(flags.prompt);
  std::vector<Json> samples;
  while (std::ssize(samples) < flags.num_samples) {
    const std::size_t first = samples.size();
    const std::int64_t count = std::min(flags.together, flags.num_samples - std::ssize(samples));
    std::vector<std::string> texts(static_cast<std::size_t>(count));
    samples.resize(first + texts.size());
    writer.write(ids, "", count,
                 {[&](std::size_t n, const std::string& part) { texts[n] += part; },
                  [&](std::size_t n, const std::string& reason) {
                    samples[first + n] = {{"text", texts[n]}, {"ended_by", reason}};
                  }});
  }
  const Timing& timing = writer.timing();
  const Json json = {{"prompt", flags.prompt},
                     {"samples", samples},
                     {"tokens", timing.tokens},
                     {"texts_together", timing.largest_group},
                     {"ms_per_token", timing.token_ms()},
                     {"tokens_per_second", 1e3 / timing.token_ms()},
                     {"ms_to_first_token", timing.first_ms()}};
  std::cout << json_text(json);
}

void answer_prompts(const GenerateFlags& flags, RankGroup& group, Writer& writer) {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) std::cerr << "one prompt per line; Ctrl-C ends a text, Ctrl-D the program\n";
  std::optional<LineReader> reader;
  if (group.is_root()) reader.emplace();
  while (true) {
    std::optional<std::string> line;
    if (reader) line = reader->next();
    if (!from_root(group, line.has_value())) break;
    std::string prompt = broadcast_text(group, line.value_or(""));
    if (prompt.ends_with('\r')) prompt.pop_back();
    std::optional<TextInterrupt> keyboard;
    if (terminal) keyboard.emplace();
    try {
      print_samples(flags, prompt, writer);
    } catch (const UserError& error) {
      std::cerr << printable(error.what()) << '\n';
    }
  }
  on_root(group, [] {
    if (std::ferror(stdin) != 0) throw std::runtime_error("standard input cannot be read");
  });
}

int generate_main(Stage& stage, int argc, char** argv) {
  GenerateFlags flags;
  CommandLine command_line(argv[0], "Generate text with a model.", stage.number(), stage_flags());
  command_line.version(built_version());
  flags.add(command_line);
  stage.add_flags(command_line);
  stage.add_repeated_work_flags(command_line);
  if (!parse_flags(stage, command_line, argc, argv, [&] { flags.check(stage); })) return 0;
  const std::unique_ptr<Timeline> timeline = flags.profile.make_timeline();
  const Machine& machine = stage.start(timeline.get());
  machine.backend->set_fused(!flags.no_fused);
  const DType matrices = flags.weights.matrices(machine);
  const auto fits = [&](const Gpt2Config& config) {
    if (!flags.ignore_memory) require_generation_memory(config, matrices, machine.memory, free_memory());
    flags.together = texts_that_fit(std::min(flags.num_samples, kMostTextsTogether), config, matrices,
                                    machine.memory, free_memory());
  };
  const TrainedModel trained = load_shared_model(stage.group(), *machine.backend, flags.model,
                                                 flags.tokenizer_path, fits, machine.activations);
  flags.divide_texts(std::ranges::min(gather(stage.group(), flags.together)));  // where least memory is free
  flags.weights.narrow(*trained.model, machine);
  flags.sampling.vocabulary = trained.tokenizer->size();

  const auto profile =
      flags.profile.make_profile(timeline.get(), machine.communicator->group(), *machine.backend);
  Writer writer(flags, machine, trained, profile.get());
  if (flags.json) {
    print_json(flags, writer);
  } else if (flags.interactive) {
    answer_prompts(flags, stage.group(), writer);
  } else {
    print_samples(flags, flags.prompt, writer);
  }
  if (profile) std::cerr << profile->description() << '\n';
  if (writer.timing().tokens > 0 && stage.group().is_root()) writer.timing().print();
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::generate_main);
}
