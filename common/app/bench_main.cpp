// stageN_bench: time of a training step on random tokens.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/app/model_flags.h"
#include "common/app/stage.h"
#include "common/model/flops.h"
#include "common/train/bench.h"

namespace stagegpt {
namespace {

struct BenchFlags {
  ModelFlags model;
  BenchConfig bench;
  std::optional<std::int64_t> vocab_size, seq_len;
  TrainerConfig trainer{.batch_size = 4,
                        .grad_accumulation = 1,
                        .schedule = {},
                        .adamw = {},
                        .seed = 1337,
                        .synchronize_phases = true};
  bool no_fused = false, json = false;

  void add(CommandLine& command_line) {
    model.add(command_line);
    command_line.integer("--vocab-size", vocab_size, 1, 1 << 24, "vocabulary (default: the preset's)");
    command_line.group("Measurement");
    command_line.integer("--batch-size", trainer.batch_size, 1, 1 << 20, "sequences in a micro-step");
    command_line.integer("--grad-accumulation", trainer.grad_accumulation, 1, 1 << 20,
                         "micro-steps in a step");
    command_line.integer("--seq-len", seq_len, 1, 1 << 20, "tokens in a sequence (default: --block-size)");
    command_line.integer("--steps", bench.steps, 1, 1000000, "steps timed");
    command_line.integer("--warmup", bench.warmup, 0, 1000000, "steps before, not timed");
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "compose fused ops of primitive ones");
    command_line.toggle("--json", json, "print one JSON object instead of a table");
  }
};

// What the report is printed from.
struct Result {
  std::string model;
  std::int64_t parameters, tokens, seq_len;
  const BenchFlags& flags;
  const Machine& machine;
  BenchReport report;
  double flops;

  double seconds() const { return report.median_ms() / 1e3; }
};

nlohmann::ordered_json to_json(const Result& result) {
  const BenchReport& report = result.report;
  const PhaseSeconds& phases = report.phases;
  double profiled = 0;
  for (const auto& entry : report.kernels) profiled += entry.seconds;
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const auto& entry : report.kernels) {
    kernels.push_back(
        {{"name", entry.name}, {"ms", 1e3 * entry.seconds}, {"share", entry.seconds / profiled}});
  }
  return {{"model", result.model},
          {"parameters", result.parameters},
          {"batch_size", result.flags.trainer.batch_size},
          {"seq_len", result.seq_len},
          {"ranks", result.machine.communicator->size()},
          {"threads", result.machine.threads},
          {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds()},
          {"ms_per_step",
           {{"median", report.median_ms()}, {"min", report.step_ms.front()}, {"max", report.step_ms.back()}}},
          {"phases_ms",
           {{"data", 1e3 * phases.data},
            {"forward", 1e3 * phases.forward},
            {"backward", 1e3 * phases.backward},
            {"communication", 1e3 * phases.communication},
            {"optimizer", 1e3 * phases.optimizer}}},
          {"gemm_bound_ms", nullptr},
          {"efficiency", nullptr},
          {"gflops", result.flops / result.seconds() / 1e9},
          {"mfu", nullptr},
          {"kernels", kernels},
          {"peak_memory_bytes", result.machine.backend->memory_stats().peak_bytes_in_use}};
}

void print_table(const Result& result) {
  const BenchReport& report = result.report;
  const PhaseSeconds& phases = report.phases;
  std::printf("%s, %lld parameters, %lld tokens a step\n%s\n", result.model.c_str(),
              static_cast<long long>(result.parameters), static_cast<long long>(result.tokens),
              result.machine.description.c_str());
  std::printf("step      %.2f ms (median of %zu; %.2f to %.2f)\n", report.median_ms(), report.step_ms.size(),
              report.step_ms.front(), report.step_ms.back());
  std::printf("speed     %.0f tokens/s, %.1f GFLOP/s\n",
              static_cast<double>(result.tokens) / result.seconds(), result.flops / result.seconds() / 1e9);
  std::printf("phases    data %.2f, forward %.2f, backward %.2f, communication %.2f, optimizer %.2f ms\n",
              1e3 * phases.data, 1e3 * phases.forward, 1e3 * phases.backward, 1e3 * phases.communication,
              1e3 * phases.optimizer);
  std::printf("memory    %.1f MiB\n\n%-28s %8s %10s\n",
              static_cast<double>(result.machine.backend->memory_stats().peak_bytes_in_use) / (1 << 20), "op",
              "calls", "ms a step");
  for (const auto& entry : report.kernels) {
    std::printf("%-28s %8lld %10.3f\n", entry.name.c_str(),
                static_cast<long long>(entry.calls / result.flags.bench.profiled), 1e3 * entry.seconds);
  }
}

// Random tokens, enough for a few batches.
std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random_word({}, i) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

int bench_main(int argc, char** argv) {
  const std::unique_ptr<Stage> stage = make_stage();
  BenchFlags flags;
  CommandLine command_line(argv[0], "Measure the time of a training step.", stage->number());
  flags.add(command_line);
  stage->add_flags(command_line);
  if (!command_line.parse(argc, argv)) return 0;
  Gpt2Config config = flags.model.resolve();
  config.vocab_size = flags.vocab_size.value_or(config.vocab_size);
  const std::int64_t T = flags.seq_len.value_or(config.block_size);
  if (T > config.block_size) user_error("--seq-len: ", T, " exceeds --block-size ", config.block_size);

  const Machine machine = stage->start();
  machine.backend->set_fused(!flags.no_fused);
  Gpt2 model(*machine.backend, config, DType::f32, machine.communicator->size());
  model.parameters().initialize(flags.trainer.seed);
  const auto tokens = random_tokens(4 * flags.trainer.batch_size * T + 1, config.vocab_size);
  const DataLoader data(tokens, T, flags.trainer.seed);
  Trainer trainer(*machine.backend, *machine.communicator, *machine.sync, model, data, flags.trainer);

  const std::int64_t parameters = model.parameters().table().numel();
  const std::int64_t tokens_per_step = flags.trainer.batch_size * flags.trainer.grad_accumulation * T;
  const Result result{flags.model.name(),
                      parameters,
                      tokens_per_step,
                      T,
                      flags,
                      machine,
                      bench(*machine.backend, trainer, flags.bench),
                      step_flops(config, parameters, tokens_per_step, T)};
  if (flags.json) {
    std::cout << to_json(result).dump(2) << '\n';
  } else {
    print_table(result);
  }
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::bench_main(argc, argv); });
}
