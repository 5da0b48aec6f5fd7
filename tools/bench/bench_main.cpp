// stageN_bench: time of a training step on random tokens, or of writing one.
#include <algorithm>
#include <iostream>

#include "common/app/model_flags.h"
#include "common/app/program_flags.h"
#include "common/app/stage.h"
#include "common/app/training_grid.h"
#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/io/status_line.h"
#include "common/io/work_progress.h"
#include "common/model/flops.h"
#include "common/model/gpt2.h"
#include "common/parallel/divided_gpt2.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/decode_bench.h"
#include "tools/bench/step_budget.h"

namespace stagegpt {
namespace {

struct BenchFlags {
  ModelFlags model;
  BenchConfig bench;
  std::optional<std::int64_t> vocab_size, seq_len, steps;
  TrainerConfig trainer{.batch_size = 4, .grad_accumulation = 1, .schedule = {}, .adamw = {}, .seed = 1337};
  bool generate = false, budget = false, no_fused = false, ignore_memory = false, json = false;
  std::optional<double> peak_tflops, peak_bandwidth;
  std::string recompute = "none";
  WeightsFlag weights;
  ProfileFlags profile;

  void add(CommandLine& command_line) {
    model.add(command_line);
    command_line.integer("--vocab-size", vocab_size, 1, 1 << 24, "vocabulary (default: the preset's)");
    command_line.group("Measurement");
    command_line.integer("--batch-size", trainer.batch_size, 1, 1 << 20,
                         "sequences per micro-step, of all ranks together");
    command_line.integer("--grad-accumulation", trainer.grad_accumulation, 1, 1 << 20,
                         "micro-steps per optimizer step");
    command_line.integer("--seq-len", seq_len, 1, 1 << 20, "tokens in a sequence (default: --block-size)");
    command_line.integer("--steps", steps, 1, 1000000,
                         "steps to time (default: 10; 64 tokens with --generate)");
    command_line.integer("--warmup", bench.warmup, 0, 1000000, "warm-up steps, not timed");
    command_line.toggle("--generate", generate, "time the generation of text; a step is a token");
    weights.add(command_line, "precision of matrices in memory with --generate; int8: CPU only");
    command_line.toggle("--budget", budget,
                        "count the FLOPs and bytes of each op of a step, and measure nothing");
    command_line.real("--peak-tflops", peak_tflops, kPositive,
                      "with --budget: TFLOP/s of a machine, to bound the time of each op");
    command_line.real("--peak-bandwidth", peak_bandwidth, kPositive,
                      "with --budget: the memory bandwidth of that machine in GB/s");
    command_line.toggle("--reproducible", trainer.reproducible,
                        "as in training: the same bits on 1, 2, 4 or 8 ranks");
    add_recompute(command_line, recompute);
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    profile.add(command_line, "step", {2, 4});
    add_ignore_memory(command_line, ignore_memory);
    command_line.toggle("--json", json, "print one JSON object instead of a table");
  }
};

// Random tokens, enough for a few steps.
std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random_word({}, i) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

void print_json(const Json& json) { std::cout << json_text(json); }

// Measures the machine's load beside our own threads, on all ranks. Where a GPU computes, one thread of each
// rank feeds it.
LoadMeter load_meter(const Machine& machine) {
  return {machine.communicator->group(), machine.on_device ? 1 : machine.threads};
}

void warn_of(const std::optional<MachineLoad>& load) {
  const std::string line = busy_line(load);
  if (!line.empty()) std::cerr << "warning: " << line << '\n';
}

// Measures the generation of text with random weights, and prints the result.
void run_generation(const BenchFlags& flags, const Gpt2Config& config, const Machine& machine) {
  Backend& backend = *machine.backend;
  const DecodeBenchConfig bench{
      .tokens = flags.bench.steps, .warmup = flags.bench.warmup, .profile = flags.bench.profile};
  Gpt2 model(backend, config, DType::f32, 1, Purpose::inference, machine.activations);
  model.parameters().initialize(flags.trainer.seed, machine.threads);
  model.parameters().update_shadow();
  flags.weights.narrow(model, machine);
  StepCounter counter;
  const LoadMeter meter = load_meter(machine);
  DecodeReport report = bench_decoding(backend, model, bench, std::ref(counter));
  report.load = meter.read();
  const DecodeSubject subject{.model = flags.model.label(),
                              .machine = machine.description,
                              .weights = flags.weights.name_on(machine),
                              .parameters = model.parameters().table().numel(),
                              .threads = machine.threads};
  flags.json ? print_json(decode_json(subject, report)) : print_decode_table(subject, report);
  warn_of(report.load);
}

// Measures a training step, and prints the result. If the stage counts, it does one step and prints nothing.
void run(const BenchFlags& flags, const Gpt2Config& config, std::int64_t T, const Machine& machine,
         bool counts) {
  Backend& backend = *machine.backend;
  const Grid grid = machine.ranks();
  const TrainerConfig& training = flags.trainer;
  const std::unique_ptr<LanguageModel> own_part =
      make_gpt2(*machine.backend, config, machine.ranks(), Purpose::training, machine.activations);
  LanguageModel& model = *own_part;
  model.parameters().initialize(training.seed, machine.threads);
  model.parameters().update_shadow();
  const DataLoader data(
      random_tokens(4 * training.batch_size * training.grad_accumulation * T + 1, config.vocab_size), T,
      training.seed);
  Trainer trainer(backend, grid, *machine.sync, model, data, training);

  if (counts) {
    trainer.step();
    backend.synchronize();
    return;
  }

  const StepSize size{training.batch_size / grid.data().size() * T, training.grad_accumulation};
  StepCounter counter;
  const LoadMeter meter = load_meter(machine);
  BenchReport report = bench(backend, trainer, model, size, flags.bench, std::ref(counter));
  report.load = meter.read();
  take_most_of_ranks(grid.world().group(), report);

  const std::int64_t parameters = gpt2_parameter_table(config).numel();
  const std::int64_t tokens = training.batch_size * training.grad_accumulation * T;
  const BenchSubject subject{
      .model = flags.model.label(),
      .machine = machine.description,
      .parameters = parameters,
      .batch_size = training.batch_size,
      .seq_len = T,
      .tokens = tokens,
      .ranks = grid.world().size(),
      .tensor_ranks = grid.tensor().size(),
      .stages = grid.pipeline().size(),
      .threads = machine.threads,
      .recompute = training.recompute,
      .flops = step_flops(config, parameters, tokens, T, AttentionFlops::full),
      .flops_causal = step_flops(config, parameters, tokens, T, AttentionFlops::causal)};
  flags.json ? print_json(bench_json(subject, report)) : print_bench_table(subject, report);
  warn_of(report.load);
}

// Counts the work of one rank's training step, and prints it.
void print_budget(const BenchFlags& flags, const Gpt2Config& config, std::int64_t T, const Machine& machine) {
  TrainerConfig own = flags.trainer;
  own.batch_size /= machine.communicator->size();
  BudgetSubject subject{.model = flags.model.label(),
                        .batch_size = own.batch_size,
                        .seq_len = T,
                        .tokens = own.batch_size * own.grad_accumulation * T,
                        .peak = {}};
  if (flags.peak_tflops) subject.peak = {1e12 * *flags.peak_tflops, 1e9 * *flags.peak_bandwidth};
  const std::vector<OpBudget> ops = step_budget(config, own, T, machine.activations, !flags.no_fused);
  flags.json ? print_json(budget_json(subject, ops)) : print_budget_table(subject, ops);
}

// Refuses what does not fit, before it is allocated.
void require_memory(const BenchFlags& flags, const Gpt2Config& config, std::int64_t T,
                    const Machine& machine) {
  if (flags.generate) {
    require_generation_memory(config, flags.weights.matrices(machine), machine.memory, free_memory());
  } else {
    require_training_memory(training_memory(machine, config, flags.trainer, T), free_memory());
  }
}

int bench_main(Stage& stage, int argc, char** argv) {
  BenchFlags flags;
  CommandLine command_line(argv[0], "Measure the time of a training step.", stage.number(), stage_flags());
  command_line.version(built_version());
  flags.add(command_line);
  stage.add_flags(command_line);
  stage.add_repeated_work_flags(command_line);
  const std::vector<std::string> grid_flags = stage.add_grid_flags(command_line);
  stage.add_bench_flags(command_line);
  Gpt2Config config;
  std::int64_t T = 0;
  const auto check = [&] {
    config = flags.model.resolve();
    config.vocab_size = flags.vocab_size.value_or(config.vocab_size);
    T = flags.seq_len.value_or(config.block_size);
    if (T > config.block_size) user_error("--seq-len: ", T, " exceeds --block-size ", config.block_size);
    if (flags.generate && flags.seq_len)
      user_error("--seq-len: cannot be combined with --generate, which times one token at a time");
    if (!flags.generate && flags.weights.name() != "f32")
      user_error("--weights: expected f32 for a training step, not '", flags.weights.name(),
                 "', which is for --generate");
    for (const std::string& flag : grid_flags) {
      if (flags.generate && command_line.is_given(flag))
        user_error(flag, ": cannot be combined with --generate, which does no training step");
    }
    if (flags.generate && flags.recompute != "none")
      user_error("--recompute: cannot be combined with --generate, which has no backward");
    if (flags.budget && flags.profile.is_given())
      user_error("--profile: cannot be combined with --budget, which measures nothing");
    if (flags.budget && flags.generate) user_error("--budget: cannot be combined with --generate");
    if (!flags.budget && (flags.peak_tflops || flags.peak_bandwidth))
      user_error(flags.peak_tflops ? "--peak-tflops" : "--peak-bandwidth", ": is for --budget");
    if (flags.peak_tflops.has_value() != flags.peak_bandwidth.has_value())
      user_error("--budget: --peak-tflops and --peak-bandwidth belong together; got one of them");
    flags.bench.steps = flags.steps.value_or(flags.generate ? DecodeBenchConfig().tokens : flags.bench.steps);
    flags.profile.resolve({1, flags.bench.steps}, stage);
    if (stage.counts() && (flags.budget || flags.generate))
      user_error("--emulator-report: cannot be combined with ", flags.budget ? "--budget" : "--generate");
    flags.trainer.recompute = *recompute_named(flags.recompute);
    refuse_on_grid(stage, flags.trainer.reproducible, "--reproducible");
    refuse_on_grid(stage, flags.budget, "--budget, which counts the ops of one rank with the whole model");
    require_divisible_step(stage, flags.trainer);
  };
  if (!parse_flags(stage, command_line, argc, argv, check)) return 0;

  const std::unique_ptr<Timeline> timeline = flags.profile.make_timeline();
  flags.trainer.timeline = timeline.get();
  Machine& machine = stage.start(timeline.get());
  if (flags.trainer.reproducible) make_reproducible(machine);
  machine.backend->set_fused(!flags.no_fused);
  const LoadMeter meter = load_meter(machine);
  std::optional<MachineLoad> load;
  if (stage.bench_kernels(
          machine, [&] { return load = meter.read(); }, flags.json)) {
    warn_of(load);
    return 0;
  }
  if (flags.budget) {
    print_budget(flags, config, T, machine);
    return 0;
  }
  require_divisible_model(machine, config);
  warn_of_few_micro_steps(machine, flags.trainer);
  flags.bench.profiled = std::clamp<std::int64_t>(flags.bench.steps, 3, 5);  // a median needs three
  flags.bench.peak = machine.peak;
  if (!flags.ignore_memory) agree(stage.group(), [&] { require_memory(flags, config, T, machine); });
  const auto profile =
      flags.profile.make_profile(timeline.get(), machine.communicator->group(), *machine.backend);
  flags.bench.profile = profile.get();
  flags.generate ? run_generation(flags, config, machine) : run(flags, config, T, machine, stage.counts());
  if (profile) std::cerr << profile->description() << '\n';
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::bench_main);
}
