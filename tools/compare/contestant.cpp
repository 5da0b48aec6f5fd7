#include "tools/compare/contestant.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/data/step_division.h"
#include "tools/compare/numbers.h"

namespace stagegpt::compare {
namespace {

// Why a batch cannot be divided among so many ranks; empty if it can.
std::string why_not(const Experiment& experiment, std::int64_t batch_size, std::int64_t ranks,
                    bool reproducible) {
  try {
    divide_step(batch_size, experiment.micro_steps(), 0, static_cast<int>(ranks),
                reproducible ? kReproducibleSubBatches : 0);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

class Planner {
 public:
  Planner(const Experiment& experiment, const std::vector<StageProgram>& stages)
      : experiment_(experiment), stages_(stages) {}

  Plan plan() {
    const bool weak = experiment_.mode == Mode::weak;
    for (const std::int64_t factor : weak ? experiment_.ranks : std::vector<std::int64_t>{1}) {
      for (const StageProgram& stage : stages_) add_timed(stage, factor);
    }
    if (experiment_.reproducible_pass && !experiment_.reproducible && !weak) {
      for (const StageProgram& stage : stages_) add_reproducible(stage);
    }
    return std::move(plan_);
  }

 private:
  std::int64_t threads(const StageProgram& stage, std::int64_t ranks) const {
    const char* const kernels = "--cpu-kernels";  // the naive ones have one thread
    if (stage.flags.contains(kernels) && experiment_.flags.value(kernels) == "naive") return 1;
    // For scaling, every rank has the same number of threads, whatever the number of ranks.
    const std::int64_t sharing = experiment_.mode == Mode::same_cores ? ranks : experiment_.ranks.back();
    return std::max<std::int64_t>(1, experiment_.cores / sharing);
  }

  // In weak mode, `factor` is the number of ranks, and the batch is `factor` times as large.
  void add_timed(const StageProgram& stage, std::int64_t factor) {
    const bool weak = experiment_.mode == Mode::weak;
    std::vector<std::int64_t> ranks = {1};
    if (stage.has_ranks()) ranks = weak ? std::vector{factor} : experiment_.ranks;
    for (const std::int64_t n : ranks) {
      Contestant contestant{.program = stage,
                            .ranks = n,
                            .threads = threads(stage, n),
                            .batch_size = experiment_.batch_size() * factor,
                            .reproducible = experiment_.reproducible,
                            .timed = true,
                            .one_of_several_batches = weak};
      add(contestant, experiment_.ranks_are_asked_for && stage.has_ranks());
    }
  }

  // Adds a contestant that runs once, on the largest possible number of ranks.
  void add_reproducible(const StageProgram& stage) {
    Contestant contestant{.program = stage,
                          .ranks = 1,
                          .threads = threads(stage, 1),
                          .batch_size = experiment_.batch_size(),
                          .reproducible = true,
                          .timed = false};
    for (const std::int64_t n : experiment_.ranks) {
      if (!stage.has_ranks() || !why_not(experiment_, contestant.batch_size, n, true).empty()) continue;
      contestant.ranks = n;
      contestant.threads = threads(stage, n);
    }
    add(contestant, false);
  }

  void add(const Contestant& contestant, bool asked_for) {
    const std::string why =
        why_not(experiment_, contestant.batch_size, contestant.ranks, contestant.reproducible);
    if (why.empty()) {
      plan_.contestants.push_back(contestant);
    } else if (asked_for || experiment_.reproducible) {
      user_error(why);
    } else {
      plan_.left_out.push_back({contestant.label(), why});
    }
  }

  const Experiment& experiment_;
  const std::vector<StageProgram>& stages_;
  Plan plan_;
};

}  // namespace

const char* name_of(Hardware hardware) {
  switch (hardware) {
    case Hardware::cpu:
      return "CPU";
    case Hardware::emulator:
      return "emulator";
    case Hardware::gpu:
      return "GPU";
  }
  return "";
}

std::string Contestant::joined(const char* stage, const char* rank, const char* separator) const {
  std::string text = concat(stage, program.stage);
  if (program.hardware == Hardware::emulator) text += concat(separator, "emulated");
  if (program.other_build) text += concat(separator, *separator == '-' ? "other-build" : "other build");
  if (program.has_ranks()) text += concat(separator, ranks, rank, ranks == 1 ? "" : "s");
  return text;
}

std::string Contestant::name() const {
  std::string text = joined("stage", "-rank", "-");
  text += concat("-batch-", batch_size);
  return reproducible ? concat(text, "-reproducible") : text;
}

std::string Contestant::label() const {
  std::string text = joined("Stage ", " rank", ", ");
  if (one_of_several_batches) text += concat(", batch ", batch_size);
  return reproducible ? concat(text, ", reproducible") : text;
}

std::string Contestant::cores_text() const {
  if (program.hardware == Hardware::gpu) return counted(ranks, "GPU");
  return concat(ranks, " × ", threads);
}

double Contestant::resources(std::int64_t cores) const {
  const std::int64_t wanted = program.hardware == Hardware::gpu ? ranks : std::min(ranks * threads, cores);
  return static_cast<double>(std::max<std::int64_t>(1, wanted));
}

Plan plan_contestants(const Experiment& experiment, const std::vector<StageProgram>& stages) {
  return Planner(experiment, stages).plan();
}

}  // namespace stagegpt::compare
