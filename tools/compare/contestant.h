// The contestants of a comparison: stages, each on a number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/compare/experiment.h"

namespace stagegpt::compare {

// The hardware of a stage. On the same kind, stages give the same bits with --reproducible.
enum class Hardware { cpu, emulator, gpu };
const char* name_of(Hardware hardware);

// A stage that can run on this machine.
struct StageProgram {
  int stage = 0;
  Hardware hardware = Hardware::cpu;
  bool other_build = false;     // that of --against
  std::filesystem::path path;   // of its stageN_train
  std::set<std::string> flags;  // all flags of the program

  bool has_ranks() const { return stage == 1 || stage == 3; }
  // The stage and the build.
  std::pair<int, bool> id() const { return {stage, other_build}; }
};

// A stage or a contestant that is left out, and the reason.
struct LeftOut {
  std::string who, why;
};

struct Contestant {
  StageProgram program;
  std::int64_t ranks = 1;
  std::int64_t threads = 1;  // of each rank; ignored on a GPU
  std::int64_t batch_size = 0;
  bool reproducible = false;
  bool timed = true;  // else it runs once, and only its results are compared
  bool one_of_several_batches = false;
  std::int64_t tensor_ranks = 1, pipeline_stages = 1;  // that hold one model together

  // Whether no rank has the whole model.
  bool divides_model() const { return model_ranks() > 1; }
  std::int64_t model_ranks() const { return tensor_ranks * pipeline_stages; }
  // "stage1-2-ranks-batch-8-reproducible", "stage1-4-ranks-tensor-2-pipeline-2-batch-8": the name of its
  // directories, and in results.json.
  std::string name() const;
  // "Stage 1, 2 ranks, batch 16, reproducible".
  std::string label() const;
  // "2 × 1": ranks and threads.
  std::string cores_text() const;
  // Number of busy threads on the CPU, over all ranks; on a GPU, one thread per rank.
  int computing_threads() const {
    return static_cast<int>(program.hardware == Hardware::gpu ? ranks : ranks * threads);
  }
  // Number of GPUs, or of cores that it uses, at most `cores`.
  double resources(std::int64_t cores) const;

 private:
  std::string joined(const char* stage, const char* rank, const char* separator) const;
};

struct Plan {
  std::vector<Contestant> contestants;
  std::vector<LeftOut> left_out;
};

// The contestants of an experiment; the reference of each batch size precedes those that are compared with
// it. A number of ranks that does not divide the batch, or is not divided by any grid, is left out; it is a
// UserError if the user has requested it, as is a grid for which there are no ranks.
Plan plan_contestants(const Experiment& experiment, const std::vector<StageProgram>& stages);

}  // namespace stagegpt::compare
