// The report of --emulator-report.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/backend/op_observer.h"

namespace stagegpt::gpu::emulation {

class Report {
 public:
  virtual ~Report() = default;
  // Counts by op too while the observer exists. It may not outlive the backend or the report.
  virtual std::unique_ptr<OpObserver> watch(Backend& backend) = 0;
  // Writes the files, or the line. Throws UserError afterwards if the chosen block has not run.
  virtual void write() = 0;
};

// In place of a directory: one line of JSON on standard output, with the sums of each kernel.
inline constexpr const char* kStandardOutput = "-";

// Counts from now on, for a report in `directory`, or kStandardOutput. A program whose kernels are not
// instrumented (profiled_program.cpp) does not return from here: it goes on as its twin whose kernels are,
// with the same arguments. Throws UserError if the directory cannot be made, or there is no twin.
// `block`, only with a directory: the block that a page steps through, as --emulator-block names it.
std::unique_ptr<Report> start_report(const std::filesystem::path& directory,
                                     const std::optional<std::string>& block);

}  // namespace stagegpt::gpu::emulation
