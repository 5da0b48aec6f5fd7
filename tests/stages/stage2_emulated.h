// Stage 2's programs on the emulator.
#pragma once

#include "tests/support/trained_runs.h"

namespace stagegpt::test {

class Stage2Emulated : public TrainedRuns {
 protected:
  ProgramResult run(const std::string& job, const Arguments& arguments,
                    const RunOptions& options = {}) const {
    return run_program("stage2_" + job + "_emulated", arguments, directory_.path(), options);
  }
  ProgramResult stage2(const std::string& job, const Arguments& arguments) const {
    return expect_done(run(job, arguments));
  }
};

}  // namespace stagegpt::test
