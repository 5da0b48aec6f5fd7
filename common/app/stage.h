// What a stage supplies to the mains. Each stage's stage.cpp defines make_stage().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/app/command_line.h"
#include "common/app/memory_check.h"
#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"
#include "common/measure/machine_load.h"
#include "common/parallel/grid.h"
#include "common/profile/peak.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// The machine a stage runs on.
struct Machine {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  std::optional<Grid> grid = {};  // if not all ranks are data ranks
  std::unique_ptr<GradientSync> sync;
  TensorMemory memory = {};
  int threads = 1;                 // of each rank
  bool on_device = false;          // a GPU computes, and threads only feed it
  bool tf32 = false;               // products round their factors to TF32
  bool bf16_factors = false;       // products round their factors to bf16
  DType activations = DType::f32;  // bf16: mixed precision (Gpt2's constructor)
  std::string description;         // one line for the reader
  std::optional<Peak> peak;        // of this rank's device, where its data sheet is known
  // What a run keeps of the files that Stage::kept_files() names: their texts, by name.
  std::map<std::string, std::string> kept_files = {};

  Grid ranks() const { return grid ? *grid : Grid(*communicator); }
};

// A file that a flag names, and the name of the copy that a run keeps, so that it can be resumed without the
// file, or after the file has changed.
struct KeptFile {
  std::string flag, name;
  bool is_used = true;  // whether the other flags have a use for it
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual int number() const = 0;
  // The ranks of this program. They exist from the beginning, so that they can agree on flags.
  virtual RankGroup& group() = 0;
  // Declares the flags of this stage that not every stage has; flags.txt in its folder lists them.
  virtual void add_flags(CommandLine& command_line) = 0;
  // Declares those of its flags that concern work that is done again and again: the training steps and the
  // tokens of stageN_train, stageN_generate and stageN_bench.
  virtual void add_repeated_work_flags(CommandLine& /*command_line*/) {}
  // Called once, on all ranks, after the flags have been read. What fails on one, fails on all. The stage
  // keeps the machine: when a main ends by an error, it is still there as end_all() is called (see
  // run_stage()). A timeline, if there is one, records the communication; it must outlive the stage's work.
  virtual Machine& start(Timeline* timeline) = 0;
  // Declares the flags that divide a model among ranks, which stageN_train, stageN_bench and stageN_verify
  // have. Returns their names.
  virtual std::vector<std::string> add_grid_flags(CommandLine& /*command_line*/) { return {}; }
  // The ranks that hold one model together: tensor ranks, and stages of a pipeline.
  virtual int tensor_ranks() const { return 1; }
  virtual int pipeline_stages() const { return 1; }
  // The flags of this stage that stageN_bench alone has, and the measurement that they ask for in place of a
  // training step's, printed as a table or as JSON. `load` tells how busy the machine was until it is called.
  // False where they ask for none.
  virtual void add_bench_flags(CommandLine& /*command_line*/) {}
  using ReadLoad = std::function<std::optional<MachineLoad>()>;
  virtual bool bench_kernels(Machine& /*machine*/, const ReadLoad& /*load*/, bool /*json*/) { return false; }
  // The files that a run keeps a copy of, so that it is resumed with the same ones.
  virtual std::vector<KeptFile> kept_files() const { return {}; }
  // Whether the stage counts what its device does, in place of measuring it: bench runs one step.
  virtual bool counts() const { return false; }
  // Called when the main has succeeded.
  virtual void finish() {}
  // Called when this rank cannot continue and others may wait for it: prints why, and ends all of them.
  // Does nothing where there are no others.
  virtual void end_all(const std::string& /*why*/, int /*exit_code*/) {}
};

// Each stage's own.
std::unique_ptr<Stage> make_stage();
// The flags that not every stage has, of all stages: what the stages' flags.txt list (cmake/stage.cmake).
std::span<const StageFlag> stage_flags();

// Parses the command line on all ranks, then calls `check`, and sees that their settings are the same. False
// when it only asked for help.
bool parse_flags(Stage& stage, CommandLine& command_line, int argc, const char* const* argv,
                 const std::function<void()>& check);
// Throws AgreedUserError, naming flag and rank, where settings differ that must not.
void require_same_settings(RankGroup& group, const CommandLine& command_line);

// Makes a machine give the same bits with any number of threads. Replaces the stage's gradient
// synchronisation by one that adds in a fixed order (TreeSync).
void make_reproducible(Machine& machine);

// Runs a main as run_program() does. An error that the ranks have not agreed on ends all of them, before
// anything is destroyed that could wait for other ranks. That is a communicator, whose destruction is a
// collective call, and a backend whose device still works for others; the stage owns both and outlives the
// main. What the main itself owns (a model, a run, files) waits for no rank.
int run_stage(int argc, char** argv, std::unique_ptr<Stage> (*make)(),
              int (*body)(Stage& stage, int argc, char** argv));

}  // namespace stagegpt
