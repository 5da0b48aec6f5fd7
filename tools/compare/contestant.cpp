#include "tools/compare/contestant.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/data/step_division.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {
namespace {

// Ranks that hold one model together.
struct ModelRanks {
  std::int64_t tensor = 1, stages = 1;
};

// Why a batch cannot be divided among so many data ranks; empty if it can.
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
    if (std::ranges::any_of(stages_, &StageProgram::has_ranks)) check_grids();
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

  // The grids that divide so many ranks.
  std::vector<ModelRanks> grids_of(const StageProgram& stage, std::int64_t ranks) const {
    if (!stage.has_ranks()) return {{}};
    std::vector<ModelRanks> grids;
    for (const std::int64_t tensor : experiment_.tensor_parallel) {
      for (const std::int64_t stages : experiment_.pipeline_parallel) {
        if (ranks % (tensor * stages) == 0) grids.push_back({tensor, stages});
      }
    }
    return grids;
  }

  // Throws UserError if no ranks can be divided into groups that are asked for.
  void check_grids() const {
    const auto require = [&](const char* flag, const std::vector<std::int64_t>& groups,
                             const std::vector<std::int64_t>& others) {
      for (const std::int64_t group : groups) {
        if (group > 1 && experiment_.reproducible)
          user_error(flag, ": cannot be combined with --reproducible");
        const auto divides = [&](std::int64_t ranks) {
          return std::ranges::any_of(others,
                                     [&](std::int64_t other) { return ranks % (group * other) == 0; });
        };
        if (std::ranges::none_of(experiment_.ranks, divides))
          user_error(flag, ": no number of --ranks can be divided into groups of ", group * others.front(),
                     " with one model");
      }
    };
    require(kTensorFlag, experiment_.tensor_parallel, experiment_.pipeline_parallel);
    require(kPipelineFlag, experiment_.pipeline_parallel, experiment_.tensor_parallel);
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
      const std::vector<ModelRanks> grids = grids_of(stage, n);
      if (grids.empty()) add_or_refuse(contestant, no_grid(n), experiment_.ranks_are_asked_for);
      for (const auto& [tensor_ranks, stages] : grids) {
        contestant.tensor_ranks = tensor_ranks;
        contestant.pipeline_stages = stages;
        add(contestant, stage.has_ranks() && (experiment_.ranks_are_asked_for || contestant.divides_model()));
      }
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

  std::string no_grid(std::int64_t ranks) const {
    return concat("--ranks: ", counted(ranks, "rank"), " cannot be divided as ", kTensorFlag, " and ",
                  kPipelineFlag, " ask");
  }

  void add(const Contestant& contestant, bool asked_for) {
    for (const auto& [flag, size] :
         {std::pair(kTensorFlag, contestant.tensor_ranks), {kPipelineFlag, contestant.pipeline_stages}}) {
      if (size == 1 || contestant.program.flags.contains(flag)) continue;
      plan_.left_out.push_back(
          {contestant.label(), concat(contestant.program.path.filename().string(), " has no ", flag)});
      return;
    }
    add_or_refuse(contestant,
                  why_not(experiment_, contestant.batch_size, contestant.ranks / contestant.model_ranks(),
                          contestant.reproducible),
                  asked_for);
  }

  // Adds a contestant, if there is no reason why not.
  void add_or_refuse(const Contestant& contestant, const std::string& why, bool asked_for) {
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
  constexpr const char* kNames[] = {"CPU", "emulator", "GPU"};
  return kNames[static_cast<int>(hardware)];
}

std::string Contestant::joined(const char* stage, const char* rank, const char* separator) const {
  std::string text = concat(stage, program.stage);
  if (program.hardware == Hardware::emulator) text += concat(separator, "emulated");
  if (program.other_build) text += concat(separator, *separator == '-' ? "other-build" : "other build");
  if (program.has_ranks()) text += concat(separator, ranks, rank, ranks == 1 ? "" : "s");
  const char* const number = *separator == '-' ? "-" : " ";
  if (tensor_ranks > 1) text += concat(separator, "tensor", number, tensor_ranks);
  if (pipeline_stages > 1) text += concat(separator, "pipeline", number, pipeline_stages);
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
