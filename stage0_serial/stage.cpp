// Stage 0: the CPU backend, one process.
#include "common/app/stage.h"

#include <omp.h>

#include "common/comm/self_communicator.h"
#include "stage0_serial/brief_waits.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/kernels/matmul_blas.h"

namespace stagegpt {
namespace {

class SerialStage final : public Stage {
 public:
  int number() const override { return 0; }

  void add_flags(CommandLine& command_line) override {
    command_line.group("Machine");
    command_line.integer("--threads", threads_, 1, 1024, "threads (default: all cores)");
    command_line.choice("--cpu-matmul", matmul_, {"naive", "tiled", "blas"}, "matrix product");
  }

  Machine start() override {
    const int threads = static_cast<int>(threads_.value_or(omp_get_num_procs()));
    Machine machine;
    machine.backend = make_cpu_backend(threads, *cpu_matmul_named(matmul_));
    machine.communicator = std::make_unique<SelfCommunicator>();
    machine.sync = std::make_unique<NoGradientSync>();
    machine.threads = threads;
    machine.description = concat("CPU, ", threads, threads == 1 ? " thread, " : " threads, ",
                                 matmul_ == "blas" ? blas::description() : matmul_ + " matmul");
    return machine;
  }

 private:
  std::optional<std::int64_t> threads_;
  std::string matmul_ = "blas";
};

}  // namespace

std::unique_ptr<Stage> make_stage() {
  wait_briefly();
  return std::make_unique<SerialStage>();
}

}  // namespace stagegpt
