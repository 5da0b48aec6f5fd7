// --emulator-report in a program whose kernels are instrumented.
#include "stage2_cuda/emulation/report.h"

#include <iostream>

#include "common/app/standard_output.h"
#include "common/backend/op_observer.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/file.h"
#include "stage2_cuda/emulation/profile/profiler.h"
#include "stage2_cuda/emulation/profile/writers.h"

namespace stagegpt::gpu::emulation {
namespace {

// Tells the profiler to which op a launch belongs, and adds up what the budget has for it.
class OpWatcher final : public OpObserver {
 public:
  OpWatcher(Backend& backend, Profiler& profiler) : OpObserver(backend), profiler_(profiler) {}

  void around(const OpCall& op, const std::function<void()>& kernel) override {
    OpCounts& counts = profiler_.profile().ops[op.name];
    ++counts.calls;
    counts.budget += op.work.bytes;
    profiler_.set_op(&counts);
    kernel();
    profiler_.set_op(nullptr);
  }

 private:
  Profiler& profiler_;
};

class CountingReport : public Report {
 public:
  std::unique_ptr<OpObserver> watch(Backend& backend) override {
    return std::make_unique<OpWatcher>(backend, profiler_);
  }
  void write() override { write(summary_of(profiler_.profile())); }

 private:
  virtual void write(const Summary& summary) const = 0;

  Profiler profiler_;
};

class ReportInDirectory final : public CountingReport {
 public:
  explicit ReportInDirectory(const std::filesystem::path& directory) : directory_(directory) {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) user_error("--emulator-report: cannot make ", directory_.string(), ": ", error.message());
  }

 private:
  void write(const Summary& summary) const override {
    write("report.json", json_of(summary).dump(1) + "\n");
    write("report.txt", table_of(summary));
    write("index.html", page_of(summary));
    std::cerr << "emulator report: " << (directory_ / "index.html").string() << '\n';
  }
  void write(const char* name, const std::string& text) const { replace_file(directory_ / name, text); }

  std::filesystem::path directory_;
};

// One line, so that it can be told from what the program itself prints.
class ReportOnStandardOutput final : public CountingReport {
  void write(const Summary& summary) const override {
    std::cout << totals_of(summary).dump() << '\n';
    flush_output();
  }
};

}  // namespace

std::unique_ptr<Report> start_report(const std::filesystem::path& directory) {
  if (directory == kStandardOutput) return std::make_unique<ReportOnStandardOutput>();
  return std::make_unique<ReportInDirectory>(directory);
}

}  // namespace stagegpt::gpu::emulation
