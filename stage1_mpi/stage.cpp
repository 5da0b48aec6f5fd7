// Stage 1: stage 0's backend in many processes, over MPI.
#include "common/app/stage.h"

#include <iostream>

#include "common/comm/agreement.h"
#include "common/profile/recorded_communicator.h"
#include "common/system/openmp_environment.h"
#include "stage0_serial/cpu_flags.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/lonely_rank.h"
#include "stage1_mpi/mpi_flags.h"
#include "stage1_mpi/mpi_group.h"
#include "stage1_mpi/placement.h"

namespace stagegpt {
namespace {

class MpiStage final : public Stage {
 public:
  int number() const override { return 1; }
  RankGroup& group() override { return group_; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cpu_.add(command_line, "threads of each rank (default: OMP_NUM_THREADS, or its share of the cores)");
    mpi_.add(command_line);
  }

  std::vector<std::string> add_grid_flags(CommandLine& command_line) override {
    return mpi_.add_grid(command_line);
  }
  int tensor_ranks() const override { return mpi_.tensor_ranks(); }
  int pipeline_stages() const override { return mpi_.stages(); }

  Machine& start(Timeline* timeline) override {
    refuse_lonely_rank(group_);
    machine_.threads = cpu_.threads(static_cast<int>(placement_.sharing.size()));
    agree(group_, [&] { machine_.backend = cpu_.make_backend(machine_.threads); });
    machine_.communicator = recorded(
        timeline, make_mpi_communicator(group_, *machine_.backend, mpi_.algorithm(), mpi_.network()));
    machine_.grid = mpi_.make_grid(*machine_.communicator);
    machine_.sync = make_gradient_sync(mpi_.gradient_sync(), machine_.ranks().data(), *machine_.backend);
    machine_.memory.host_ranks = static_cast<int>(placement_.on_node.size());
    machine_.memory.divides_moments = MpiFlags::kDividesMoments;
    machine_.bf16_factors = cpu_.rounds_to_bf16();
    machine_.activations = cpu_.activations();
    machine_.description =
        concat(stagegpt::description(placement_, group_.size()), "; ", cpu_.description(machine_.threads),
               "; gradients ", mpi_.gradient_sync(), mpi_.description());
    for (const std::string& warning : {stagegpt::warning(group_, placement_, machine_.threads),
                                       group_.is_root() ? cpu_.warning() : std::string()}) {
      if (!warning.empty()) std::cerr << warning << '\n';
    }
    session_.watchdog().set_limit(mpi_.watchdog_seconds());
    return machine_;
  }

  void end_all(const std::string& why, int exit_code) override { session_.end_all(why, exit_code); }

 private:
  MpiSession session_;
  MpiGroup group_{session_, MPI_COMM_WORLD};
  Placement placement_ = find_placement(group_);
  CpuFlags cpu_;
  MpiFlags mpi_;
  Machine machine_;  // must be destroyed first
};

}  // namespace

std::unique_ptr<Stage> make_stage() {
  restart_with_short_spins();
  return std::make_unique<MpiStage>();
}

}  // namespace stagegpt
