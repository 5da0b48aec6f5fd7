// Stage 3: stage 2's backend in many processes, each with a GPU, with stage 1's gradient synchronisation.
// Built for GPUs and for the emulator.
#include "common/app/stage.h"

#include <iostream>

#include "common/comm/agreement.h"
#include "common/profile/recorded_communicator.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/lonely_rank.h"
#include "stage1_mpi/mpi_flags.h"
#include "stage1_mpi/mpi_group.h"
#include "stage1_mpi/placement.h"
#include "stage2_cuda/cuda_flags.h"
#include "stage3_mpi_cuda/gpu_binding.h"
#include "stage3_mpi_cuda/transport.h"

namespace stagegpt {
namespace {

class MpiCudaStage final : public Stage {
 public:
  int number() const override { return 3; }
  RankGroup& group() override { return group_; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    cuda_.add(command_line);
    mpi_.add(command_line);
    command_line.choice("--transport", transport_, gpu::transport_names(),
                        "transport between GPUs (default: the first of these that is available)");
    command_line.toggle("--share-gpu", share_gpu_, "allow ranks to share a GPU if there are too few");
  }
  void add_repeated_work_flags(CommandLine& command_line) override { cuda_.add_graph(command_line); }
  std::vector<std::string> add_grid_flags(CommandLine& command_line) override {
    return mpi_.add_grid(command_line);
  }
  int tensor_ranks() const override { return mpi_.tensor_ranks(); }
  int pipeline_stages() const override { return mpi_.stages(); }

  Machine& start(Timeline* timeline) override {
    refuse_lonely_rank(group_);
    const gpu::DeviceInfo device = open_device(timeline);
    cuda_.read_plans(group_, device);
    std::unique_ptr<gpu::CudaBackend> backend;
    agree(group_, [&] { backend = gpu::make_cuda_backend(cuda_.options()); });
    const gpu::Transport transport = choose_transport();
    if (mpi_.network().delays() && transport == gpu::Transport::nccl) {
      throw AgreedUserError(
          "--comm-latency and --comm-bandwidth delay what the host waits for, and with NCCL the GPU waits: "
          "use --transport host or cuda-aware");
    }
    session_.watchdog().set_limit(mpi_.watchdog_seconds());  // now, because NCCL may hang when it starts
    machine_.communicator = recorded(
        timeline, make_device_communicator(transport, group_, *backend, mpi_.algorithm(), mpi_.network()));
    machine_.backend = std::move(backend);
    machine_.grid = mpi_.make_grid(*machine_.communicator);
    machine_.sync = make_gradient_sync(mpi_.gradient_sync(), machine_.ranks().data(), *machine_.backend);
    machine_.memory = cuda_.memory(gpu::ranks_on_gpu_of(group_, placement_, device));
    machine_.memory.host_ranks = static_cast<int>(placement_.on_node.size());
    machine_.memory.divides_moments = MpiFlags::kDividesMoments;
    cuda_.set_up(machine_, device);
    machine_.description =
        concat(stagegpt::description(placement_, group_.size()), "; ", cuda_.description(device),
               "; gradients ", mpi_.gradient_sync(), ", transport ", name_of(transport),
               shares_gpu_ ? ", sharing GPUs" : "", mpi_.description());
    const std::string warning =
        cuda_.platform().is_gpu() ? "" : stagegpt::warning(group_, placement_, machine_.threads);
    if (!warning.empty()) std::cerr << warning << '\n';
    return machine_;
  }

  std::vector<KeptFile> kept_files() const override {
    return {{gpu::PlanFlags::kFlag, gpu::PlanFlags::kNameInRun, cuda_.uses_library()}};
  }

  void end_all(const std::string& why, int exit_code) override { session_.end_all(why, exit_code); }

 private:
  // Opens this rank's GPU. Throws AgreedUserError if ranks share a GPU without --share-gpu.
  gpu::DeviceInfo open_device(Timeline* timeline) {
    gpu::DeviceInfo device;
    int devices = 0;
    if (mpi_.tensor_ranks() * mpi_.stages() > 1)
      cuda_.rule_out_graphs("the ranks of a divided model communicate within a pass");
    agree(group_, [&] {
      devices = gpu::device_count();
      device = cuda_.open(timeline, gpu::default_device(placement_, devices),
                          static_cast<int>(placement_.sharing.size()));
    });
    const auto sharers = gpu::ranks_on_one_gpu(group_, placement_, device);
    shares_gpu_ = sharers.has_value();
    if (!shares_gpu_ || share_gpu_) return device;
    throw AgreedUserError(concat("ranks ", sharers->first, " and ", sharers->second, " use the same GPU (",
                                 device.name, "; GPUs visible to rank 0: ", devices,
                                 "): start fewer ranks per node, or allow it with --share-gpu"));
  }

  gpu::Transport choose_transport() {
    gpu::Transport transport = gpu::Transport::host;
    agree(group_, [&] {
      transport = gpu::choose_transport(
          transport_,
          {.is_gpu = cuda_.platform().is_gpu(), .shares_gpu = shares_gpu_, .algorithm = mpi_.algorithm()});
    });
    require_same(group_, {{"--transport", name_of(transport)}});
    return transport;
  }

  gpu::CudaFlags cuda_;  // before MPI starts: the emulator may restart the program (openmp_environment.h)
  MpiSession session_;
  MpiGroup group_{session_, MPI_COMM_WORLD};
  Placement placement_ = find_placement(group_);
  MpiFlags mpi_;
  std::optional<std::string> transport_;
  bool share_gpu_ = false, shares_gpu_ = false;
  Machine machine_;  // must be destroyed first
};

}  // namespace

std::unique_ptr<Stage> make_stage() { return std::make_unique<MpiCudaStage>(); }

}  // namespace stagegpt
