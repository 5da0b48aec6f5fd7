// Stage 2: the CUDA backend, one process. Compiled for a GPU and for the emulator.
#include "common/app/stage.h"

#include "common/comm/self_communicator.h"
#include "common/profile/recorded_communicator.h"
#include "stage2_cuda/cuda_flags.h"
#include "stage2_cuda/ladders.h"

namespace stagegpt {
namespace {

class CudaStage final : public Stage {
 public:
  int number() const override { return 2; }
  RankGroup& group() override { return group_; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cuda_.add(command_line);
    command_line.group("Machine", CommandLine::Concerns::this_call);
    cuda_.platform().add_report_flag(command_line);
  }
  void add_repeated_work_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cuda_.add_graph(command_line);
  }

  Machine& start(Timeline* timeline) override {
    if (ladder_version_ && !ladder_) user_error("--ladder-version: needs --ladder");
    if (ladder_ && timeline != nullptr) user_error("--profile: cannot be combined with --ladder");
    const gpu::DeviceInfo device = cuda_.open(timeline);
    cuda_.read_plans(group_, device);
    cuda_.set_up(machine_, device);
    machine_.backend = gpu::make_cuda_backend(cuda_.options());
    watcher_ = cuda_.platform().watch(*machine_.backend);
    machine_.memory = cuda_.memory();
    machine_.communicator = recorded(timeline, std::make_unique<SelfCommunicator>(group_));
    machine_.sync = std::make_unique<NoGradientSync>();
    machine_.description = cuda_.description(device);
    return machine_;
  }

  void add_bench_flags(CommandLine& command_line) override {
    command_line.choice("--ladder", ladder_, {"layernorm", "matmul", "attention"},
                        "time all versions of one kernel instead");
    command_line.text("--ladder-version", ladder_version_, "NAME: only this version of --ladder, such as v2");
    cuda_.plans().add_tuning(command_line);
  }
  std::vector<KeptFile> kept_files() const override {
    return {{gpu::PlanFlags::kFlag, gpu::PlanFlags::kNameInRun, cuda_.uses_library()}};
  }
  bool bench_kernels(Machine& machine, const ReadLoad& load, bool json) override {
    if (!ladder_) return false;
    const gpu::LadderOptions options{
        .large = cuda_.platform().is_gpu(), .precision = cuda_.options().precision, .peak = machine.peak};
    gpu::Ladder ladder = gpu::make_ladder(*ladder_, *machine.backend, options);
    if (ladder_version_) gpu::keep_version(ladder, *ladder_version_);
    if (counts()) {
      gpu::run_once(ladder);
      return true;
    }
    const std::vector<gpu::VersionReport> reports = gpu::check_and_time(ladder);
    gpu::print(ladder, reports, {machine.description, cuda_.platform().is_gpu(), load()}, json);
    return true;
  }

  bool counts() const override { return cuda_.platform().counts(); }
  void finish() override {
    cuda_.plans().write();
    cuda_.platform().write_report();
  }

 private:
  SingleProcess group_;
  gpu::CudaFlags cuda_;
  std::optional<std::string> ladder_, ladder_version_;
  Machine machine_;                      // destroyed before group_, which it uses
  std::unique_ptr<OpObserver> watcher_;  // destroyed first: it uses the backend
};

}  // namespace

std::unique_ptr<Stage> make_stage() { return std::make_unique<CudaStage>(); }

}  // namespace stagegpt
