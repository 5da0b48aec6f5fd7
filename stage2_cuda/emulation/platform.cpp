#include "stage2_cuda/platform.h"

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "common/system/openmp_environment.h"
#include "stage2_cuda/emulation/report.h"
#include "stage2_cuda/emulation/settings.h"

namespace stagegpt::gpu {
namespace {

class Emulator final : public Platform {
 public:
  void add_flags(CommandLine& command_line) override {
    command_line.integer("--threads", threads_, 1, emulation::kMostThreads,
                         concat("threads of each rank that run blocks (default: OMP_NUM_THREADS, or its "
                                "share of the cores; at most ",
                                emulation::kMostThreads, ")"));
    command_line.allow_another_value_per_rank("--threads");
  }
  void add_report_flag(CommandLine& command_line) override {
    command_line.text("--emulator-report", report_directory_,
                      "count the memory accesses of kernels, by source line, and write a report to this "
                      "directory; -: print one line of JSON with the sums of each kernel");
    command_line.text(
        "--emulator-block", block_,
        "KERNEL[:LAUNCH[:BLOCK]]: with --emulator-report, write block.html too, a page that steps "
        "through what one block does; LAUNCH is that of the kernel, and both count from 0");
  }
  void start(int processes) override {
    if (threads_of_environment()) processes = 1;  // it is the number of each process
    emulation::set_threads(threads_ ? static_cast<int>(*threads_)
                                    : std::max(1, emulation::threads() / processes));
    if (block_ && (!report_directory_ || *report_directory_ == emulation::kStandardOutput)) {
      user_error("--emulator-block: needs --emulator-report DIR, the directory for its page");
    }
    if (report_directory_) report_ = emulation::start_report(*report_directory_, block_);
  }
  int threads() const override { return emulation::threads(); }
  std::string description(int, const DeviceInfo&) const override {
    return concat("emulated GPU on ", threads(), threads() == 1 ? " thread" : " threads");
  }
  std::string library() const override { return "host BLAS (f32) in place of cuBLASLt"; }
  std::string library_version() const override { return "host BLAS"; }
  bool is_gpu() const override { return false; }
  bool counts() const override { return report_directory_.has_value(); }
  std::unique_ptr<OpObserver> watch(Backend& backend) override {
    return report_ == nullptr ? nullptr : report_->watch(backend);
  }
  void write_report() override {
    if (report_ != nullptr) report_->write();
  }

 private:
  std::optional<std::int64_t> threads_;
  std::optional<std::string> report_directory_, block_;
  std::unique_ptr<emulation::Report> report_;
};

}  // namespace

std::unique_ptr<Platform> make_platform() {
  restart_with_short_spins();
  return std::make_unique<Emulator>();
}

}  // namespace stagegpt::gpu
