// --emulator-report in a program whose kernels are instrumented.
#include "stage2_cuda/emulation/report.h"

#include <iostream>

#include "common/app/command_line.h"
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

class CountingReport final : public Report {
 public:
  CountingReport(const std::filesystem::path& directory, const std::optional<std::string>& block)
      : directory_(directory) {
    if (block) profiler_.trace(BlockTrace(parsed_block_choice(*block)));
    if (directory_ == kStandardOutput) return;
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) user_error("--emulator-report: cannot make ", directory_.string(), ": ", error.message());
  }

  std::unique_ptr<OpObserver> watch(Backend& backend) override {
    return std::make_unique<OpWatcher>(backend, profiler_);
  }
  void write() override {
    const Summary summary = summary_of(profiler_.profile(), known_resources());
    const std::optional<BlockTrace>& block = profiler_.block_trace();
    directory_ == kStandardOutput ? print(summary) : write_files(summary, block);
    if (block) block->check_found(profiler_.profile());
  }

 private:
  // One line, so that it can be told from what the program itself prints.
  static void print(const Summary& summary) {
    std::cout << totals_of(summary).dump() << '\n';
    flush_output();
  }
  void write_files(const Summary& summary, const std::optional<BlockTrace>& block) const {
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
  Profiler profiler_;
};

}  // namespace

std::unique_ptr<Report> start_report(const std::filesystem::path& directory,
                                     const std::optional<std::string>& block) {
  return std::make_unique<CountingReport>(directory, block);
}

}  // namespace stagegpt::gpu::emulation
