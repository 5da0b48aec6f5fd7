// Stage 0: the CPU backend, one process.
#include "common/app/stage.h"

#include <chrono>
#include <functional>
#include <iostream>
#include <optional>

#include "common/app/step_counter.h"
#include "common/comm/self_communicator.h"
#include "common/profile/recorded_communicator.h"
#include "common/system/restart_for_openmp.h"
#include "stage0_serial/compare_matmul.h"
#include "stage0_serial/cpu_flags.h"

namespace stagegpt {
namespace {

class SerialStage final : public Stage {
 public:
  int number() const override { return 0; }
  RankGroup& group() override { return group_; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cpu_.add(command_line, "threads (default: all cores)");
  }

  void add_bench_flags(CommandLine& command_line) override {
    command_line.integer(
        "--compare-matmul", compared_channels_, 1, 1 << 12,
        "time the packed GEMM and OpenBLAS on the layers of a model of so many channels instead");
  }

  bool bench_instead(Machine& machine, const ReadLoad& load, bool json) override {
    if (!compared_channels_) return false;
    StepCounter progress(std::chrono::steady_clock::now(), "product");
    const auto products = compare_matmuls(machine.threads, *compared_channels_, std::ref(progress));
    print_comparison(products, machine.threads, load(), json);
    return true;
  }

  Machine& start(Timeline* timeline) override {
    if (compared_channels_ && timeline != nullptr)
      user_error("--profile: cannot be combined with --compare-matmul");
    machine_.threads = cpu_.threads(/*processes=*/1);
    machine_.backend = cpu_.make_backend(machine_.threads);
    machine_.communicator = recorded(timeline, std::make_unique<SelfCommunicator>(group_));
    machine_.sync = std::make_unique<NoGradientSync>();
    machine_.bf16_factors = cpu_.rounds_to_bf16();
    machine_.activations = cpu_.activations();
    if (const std::string warning = cpu_.warning(); !warning.empty()) std::cerr << warning << '\n';
    machine_.description = cpu_.description(machine_.threads);
    return machine_;
  }

  void end_all(const std::string&, int) override {}

 private:
  SingleProcess group_;
  CpuFlags cpu_;
  std::optional<std::int64_t> compared_channels_;
  Machine machine_;  // destroyed first: it uses group_
};

}  // namespace

std::unique_ptr<Stage> make_stage() {
  restart_with_short_spins();
  return std::make_unique<SerialStage>();
}

}  // namespace stagegpt
