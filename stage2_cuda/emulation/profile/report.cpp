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
  explicit CountingReport(const std::optional<std::string>& block) {
    if (block) profiler_.trace(BlockTrace(parsed_block_choice(*block)));
  }
  std::unique_ptr<OpObserver> watch(Backend& backend) override {
    return std::make_unique<OpWatcher>(backend, profiler_);
  }
  void write() override {
    write(summary_of(profiler_.profile(), known_resources()), profiler_.block_trace());
    if (profiler_.block_trace()) profiler_.block_trace()->check_found(profiler_.profile());
  }

 private:
  virtual void write(const Summary& summary, const std::optional<BlockTrace>& block) const = 0;

  Profiler profiler_;
};

class ReportInDirectory final : public CountingReport {
 public:
  ReportInDirectory(const std::filesystem::path& directory, const std::optional<std::string>& block)
      : CountingReport(block), directory_(directory) {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) user_error("--emulator-report: cannot make ", directory_.string(), ": ", error.message());
  }

 private:
  void write(const Summary& summary, const std::optional<BlockTrace>& block) const override {
    const bool has_block = block && block->found();
    write("report.json", json_of(summary).dump(1) + "\n");
    write("report.txt", table_of(summary));
    write("index.html", page_of(summary, has_block));
    std::cerr << "emulator report: " << (directory_ / "index.html").string() << '\n';
    if (!has_block) return;
    const Json json = json_of(*block, summary);
    write("block.json", json.dump() + "\n");
    write("block.html", block_page_of(json));
    std::cerr << "one block, step by step: " << (directory_ / "block.html").string() << '\n';
  }
  void write(const char* name, const std::string& text) const { replace_file(directory_ / name, text); }

  std::filesystem::path directory_;
};

// One line, so that it can be told from what the program itself prints.
class ReportOnStandardOutput final : public CountingReport {
 public:
  ReportOnStandardOutput() : CountingReport(std::nullopt) {}

 private:
  void write(const Summary& summary, const std::optional<BlockTrace>&) const override {
    std::cout << totals_of(summary).dump() << '\n';
    flush_output();
  }
};

}  // namespace

std::unique_ptr<Report> start_report(const std::filesystem::path& directory,
                                     const std::optional<std::string>& block) {
  if (directory == kStandardOutput) return std::make_unique<ReportOnStandardOutput>();
  return std::make_unique<ReportInDirectory>(directory, block);
}

}  // namespace stagegpt::gpu::emulation
