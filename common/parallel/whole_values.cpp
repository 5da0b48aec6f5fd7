#include "common/parallel/whole_values.h"

#include <algorithm>
#include <utility>

#include "common/comm/agreement.h"
#include "common/parallel/parts.h"

namespace stagegpt {
namespace {

// Reads elements of a whole parameter at once, and copies runs of them to `out`. A run begins at element
// `begin` of the whole parameter, and `at` of `out`.
void read_runs(const ParameterValues& whole, std::size_t number, const std::vector<PlacedRun>& runs,
               std::span<float> out) {
  const std::int64_t begin = runs.front().begin, end = runs.back().begin + runs.back().size;
  const auto run_of_out = [&](const PlacedRun& run) {
    return out.subspan(static_cast<std::size_t>(run.at), static_cast<std::size_t>(run.size));
  };
  if (runs.size() == 1) return whole(number, begin, run_of_out(runs.front()));
  std::vector<float> elements(static_cast<std::size_t>(end - begin));
  whole(number, begin, elements);
  for (const PlacedRun& run : runs)
    std::copy_n(elements.begin() + run.begin - begin, run.size, run_of_out(run).begin());
}

}  // namespace

std::int64_t begin_of_part(const ParameterTable& whole, const Grid& grid) {
  return grid.model().rank() * whole.arena_size(grid.data().size());
}

PieceLayout placed_in_parts(const ParameterTable& whole, const Grid& grid) {
  if (!grid.divides_model()) return placed_as_in(whole);
  const int stages = grid.pipeline().size(), tensor_ranks = grid.tensor().size();
  std::vector<ParameterTable> parts;  // by rank in Grid::model()
  for (int stage = 0; stage < stages; ++stage) {
    const ParameterTable rows = rows_of_stage(whole, {stage, stages});
    for (int rank = 0; rank < tensor_ranks; ++rank)
      parts.push_back(tensor_ranks == 1 ? rows : part_of(rows, {rank, tensor_ranks}));
  }
  return [=, parts = std::move(parts), size = whole.arena_size(grid.data().size())](const Piece& piece) {
    std::vector<PlacedRun> runs;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      // All tensor ranks of a stage together have a parameter, or each has all of it: a later stage has only
      // copies.
      if (!runs.empty() && rank % static_cast<std::size_t>(tensor_ranks) == 0) break;
      const auto& rows = parts[rank].rows();
      const auto part = std::ranges::find(rows, static_cast<int>(piece.parameter), &Parameter::number);
      if (part == rows.end() || (part->blocks.empty() && !runs.empty())) continue;
      const std::int64_t offset = static_cast<std::int64_t>(rank) * size + part->offset;
      part->for_each_run(0, part->shape.numel(), [&](std::int64_t i, std::int64_t in_whole, std::int64_t n) {
        const std::int64_t first = std::max(in_whole, piece.begin), end = std::min(in_whole + n, piece.end);
        if (first < end) runs.push_back({first - piece.begin, offset + i + first - in_whole, end - first});
      });
    }
    return runs;
  };
}

ParameterValues part_values(const ParameterTable& part, ParameterValues whole) {
  constexpr std::int64_t kElements = 1 << 22;  // of the whole parameter at once, to limit the memory
  return [&part, whole = std::move(whole)](std::size_t i, std::int64_t begin, std::span<float> out) {
    const auto number = static_cast<std::size_t>(part[i].number);
    std::vector<PlacedRun> runs;
    part[i].for_each_run(begin, begin + std::ssize(out),
                         [&](std::int64_t element, std::int64_t in_whole, std::int64_t n) {
                           if (!runs.empty() && in_whole + n - runs.front().begin > kElements) {
                             read_runs(whole, number, runs, out);
                             runs.clear();
                           }
                           runs.push_back({element - begin, in_whole, n});
                         });
    if (!runs.empty()) read_runs(whole, number, runs, out);
  };
}

void take_part(RankGroup& world, Backend& backend, const ParameterTable& whole, const ParameterValues& values,
               const ParameterTable& part, const Tensor& arena) {
  backend.fill(arena, 0);
  std::vector<float> all, own;  // of one parameter
  const ParameterValues own_values =
      part_values(part, [&](std::size_t, std::int64_t begin, std::span<float> out) {
        std::copy_n(all.begin() + begin, out.size(), out.begin());
      });
  for (std::size_t i = 0; i < whole.size(); ++i) {
    all.resize(static_cast<std::size_t>(whole[i].shape.numel()));
    on_root(world, [&] { values(i, 0, all); });
    world.broadcast(std::as_writable_bytes(std::span(all)), 0);
    const int row = part.find(whole[i].name);
    if (row < 0) continue;  // of another stage
    const Parameter& parameter = part[static_cast<std::size_t>(row)];
    own.resize(static_cast<std::size_t>(parameter.shape.numel()));
    own_values(static_cast<std::size_t>(row), 0, own);
    upload<float>(backend, arena.slice(parameter.offset, parameter.shape), own);
  }
}

}  // namespace stagegpt
