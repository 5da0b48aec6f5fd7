// Stage 0: the CPU backend, one process. A main, such as common/app/train_main.cpp, calls make_stage(), then
// add_flags(), then start(), and works on the Machine that it gets.
#include "common/app/stage.h"

#include "common/comm/self_communicator.h"
#include "common/profile/recorded_communicator.h"
#include "common/system/openmp_environment.h"
#include "stage0_serial/cpu_flags.h"

namespace stagegpt {
namespace {

class SerialStage final : public Stage {
 public:
  int number() const override { return 0; }
  RankGroup& group() override { return group_; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cpu_.add(command_line, "threads (default: OMP_NUM_THREADS, or all cores)");
  }

  Machine& start(Timeline* timeline) override {
    machine_.threads = cpu_.threads(/*processes=*/1);
    machine_.backend = cpu_.make_backend(machine_.threads);
    machine_.communicator = recorded(timeline, std::make_unique<SelfCommunicator>(group_));
    machine_.sync = std::make_unique<NoGradientSync>();
    machine_.bf16_factors = cpu_.rounds_to_bf16();
    machine_.activations = cpu_.activations();
    cpu_.warn(machine_.threads);
    machine_.description = cpu_.description(machine_.threads);
    return machine_;
  }

 private:
  SingleProcess group_;
  CpuFlags cpu_;
  Machine machine_;  // destroyed first: it uses group_
};

}  // namespace

std::unique_ptr<Stage> make_stage() {
  restart_with_short_spins();  // sets an OpenMP variable, and executes the program again
  return std::make_unique<SerialStage>();
}

}  // namespace stagegpt
