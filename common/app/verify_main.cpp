// stageN_verify: compare a model with a reference state in llm.c's format.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "common/app/stage.h"
#include "common/app/training_grid.h"
#include "common/base/json.h"
#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/io/file.h"
#include "common/measure/verify.h"

namespace stagegpt {
namespace {

struct VerifyFlags {
  std::string model_path, state_path;
  std::int64_t steps = 0;
  double learning_rate = 1e-4;  // the optimizer of llm.c's own comparison
  AdamWConfig adamw{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .grad_clip = 0};
  bool no_fused = false, json = false;

  void add(CommandLine& command_line) {
    command_line.group("Reference");
    command_line.text("--model", model_path, kModelFormats);
    command_line.text("--state", state_path, "its batch, logits, loss and gradients, in llm.c's format");
    command_line.group("Optimizer");
    command_line.integer("--steps", steps, 0, 1000000,
                         "optimizer steps on the file's batch, after the comparison");
    command_line.real("--learning-rate", learning_rate, kPositive, "constant learning rate");
    add_adamw(command_line, adamw);
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    command_line.toggle("--json", json, "print one JSON object instead of a table");
  }
  void check() const {
    require_model_path(model_path, "--model");
    if (state_path.empty()) user_error("--state: expected a debug state file in llm.c's format");
  }
};

void print_row(const VerifyReport::Row& row) {
  std::printf("%-28s %-18s %10.2e %10.0e  %s\n", row.name.c_str(), concat(row.shape).c_str(), row.error,
              row.limit, row.ok() ? "ok" : "FAILED");
}

void print_table(const VerifyReport& report) {
  std::printf("%-28s %-18s %10s %10s\n", "tensor", "shape", "error", "limit");
  print_row(report.logits);
  print_row(report.loss);
  for (const auto& row : report.gradients) print_row(row);
  for (std::size_t i = 0; i < report.losses.size(); ++i)
    std::printf("step %3zu  loss %.6f\n", i, report.losses[i]);
  std::printf("%s\n", report.passed() ? "passed" : "FAILED");
}

Json to_json(const VerifyReport& report) {
  Json tensors = Json::array();
  for (const auto& row : report.gradients) {
    tensors.push_back({{"name", row.name},
                       {"shape", std::vector<std::int64_t>(row.shape.dims().begin(), row.shape.dims().end())},
                       {"error", row.error},
                       {"limit", row.limit},
                       {"ok", row.ok()}});
  }
  return {{"passed", report.passed()},
          {"logits_error", report.logits.error},
          {"loss_error", report.loss.error},
          {"tensors", tensors},
          {"losses", report.losses}};
}

VerifyLimits limits_of(const Machine& machine) {
  if (machine.activations == DType::bf16 || machine.bf16_factors) return kBf16Limits;
  return machine.tf32 ? kTf32Limits : VerifyLimits{};
}

// The files, which are the same for all ranks.
struct Reference {
  ModelFile model;
  MappedFile state_file;
  LlmcState state;

  explicit Reference(const VerifyFlags& flags)
      : model(open_model(flags.model_path, "--model")),
        state_file(flags.state_path, "--state"),
        state(parse_llmc_state(state_file.bytes(), model.config, "--state")) {}
};

// Whether everything is within tolerance. The ranks of one model make the whole comparison together.
bool verify(const VerifyFlags& flags, const Machine& machine) {
  std::optional<Reference> reference;
  agree(machine.communicator->group(), [&] { reference.emplace(flags); });
  require_divisible_model(machine, reference->model.config);
  machine.backend->set_fused(!flags.no_fused);
  const VerifyReport report = verify(*machine.backend, machine.ranks(), reference->model, reference->state,
                                     {.steps = flags.steps,
                                      .learning_rate = flags.learning_rate,
                                      .adamw = flags.adamw,
                                      .limits = limits_of(machine),
                                      .activations = machine.activations});
  if (flags.json) {
    std::cout << json_text(to_json(report));
  } else {
    print_table(report);
  }
  return report.passed();
}

int verify_main(Stage& stage, int argc, char** argv) {
  VerifyFlags flags;
  CommandLine command_line(argv[0], "Compare logits, loss and gradients with a reference.", stage.number(),
                           stage_flags());
  command_line.version(built_version());
  flags.add(command_line);
  stage.add_flags(command_line);
  stage.add_grid_flags(command_line);
  if (!parse_flags(stage, command_line, argc, argv, [&] { flags.check(); })) return 0;
  const Machine& machine = stage.start(/*timeline=*/nullptr);
  const bool passed = verify(flags, machine);
  const std::vector<char> all = gather<char>(stage.group(), passed ? 1 : 0);
  const auto failed = std::ranges::find(all, 0);
  if (failed == all.end()) return 0;
  if (all.size() > 1) std::cerr << "rank " << failed - all.begin() << " is out of tolerance\n";
  return 1;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::verify_main);
}
