// Who takes part in a comparison: stages, each on some number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tools/compare/experiment.h"

namespace stagegpt::compare {

// What a stage computes on. Stages with the same kind promise the same bits with --reproducible.
enum class Hardware { cpu, emulator, gpu };
const char* name_of(Hardware hardware);

// A stage that can run here.
struct StageProgram {
  int stage = 0;
  Hardware hardware = Hardware::cpu;
  std::filesystem::path path;   // of its stageN_train
  std::set<std::string> flags;  // that it knows

  bool has_ranks() const { return stage == 1 || stage == 3; }
};

// A stage, or a contestant, that does not take part.
struct LeftOut {
  std::string who, why;
};

struct Contestant {
  StageProgram program;
  std::int64_t ranks = 1;
  std::int64_t threads = 1;  // of each rank; on a GPU no matter
  std::int64_t batch_size = 0;
  bool reproducible = false;
  bool timed = true;  // else only its numbers are compared, and it runs once
  bool one_of_several_batches = false;

  // "stage1-2-ranks-reproducible": of its directories, and in results.json.
  std::string name() const;
  // "Stage 1, 2 ranks, batch 16, reproducible".
  std::string label() const;
  // "2 × 1": ranks and threads.
  std::string cores_text() const;
  // Of all ranks, on the CPU: a GPU is fed by one thread of each.
  int computing_threads() const {
    return static_cast<int>(program.hardware == Hardware::gpu ? ranks : ranks * threads);
  }
  // Cores that compute, or GPUs; of `cores` there are no more.
  double resources(std::int64_t cores) const;

 private:
  std::string joined(const char* stage, const char* rank, const char* separator) const;
};

struct Plan {
  std::vector<Contestant> contestants;
  std::vector<LeftOut> left_out;
};

// Who runs the experiment, the reference of each batch size before those that are compared with it. A rank
// count that does not divide the batch is left out, or refused with a UserError where the user has asked for
// it.
Plan plan_contestants(const Experiment& experiment, const std::vector<StageProgram>& stages);

}  // namespace stagegpt::compare
