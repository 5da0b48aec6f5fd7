#include "common/train/checkpoint_arenas.h"

#include <utility>

#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"

namespace stagegpt {
namespace {

void load_moment(Backend& backend, const Grid& grid, const LanguageModel& model, const AdamW& optimizer,
                 Moment moment, const ParameterValues& values) {
  const ParameterTable& table = model.parameters().table();
  const Tensor& arena = model.parameters().grads();  // a buffer, if every rank has all moments
  Communicator& ranks = grid.data();
  const std::int64_t slice = arena.numel() / ranks.size(), begin = ranks.rank() * slice;
  // Where the data ranks divide the moments, a rank owns no more than a slice.
  const bool gathered =
      ranks.size() > 1 && !any(grid.world().group(), total_size(optimizer.owned()) <= slice);
  agree(grid.world().group(), [&] {
    if (gathered)
      return load_part(backend, table, {begin, begin + slice}, arena.slice(begin, {slice}), values);
    for (const AdamW::Part& part : optimizer.parts()) {
      if (part.range.size() > 0) load_part(backend, table, part.range, part.moments.*moment, values);
    }
  });
  if (!gathered) return;
  ranks.all_gather(arena)->wait();
  for (const AdamW::Part& part : optimizer.parts())
    backend.copy(part.moments.*moment, arena.slice(part.range.begin, {part.range.size()}));
}

}  // namespace

std::vector<OwnedArena> checkpoint_arenas(const Grid& grid, const LanguageModel& model,
                                          const AdamW& optimizer) {
  const Tensor& weights = model.parameters().weights();
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model.config()), grid);
  OwnedArena all{{{offset, offset + weights.numel()}}, {weights}}, m, v;
  for (const auto& [range, moments, decay] : optimizer.parts()) {
    for (OwnedArena* const arena : {&m, &v})
      arena->owned.push_back({offset + range.begin, offset + range.end});
    m.parts.push_back(moments.m);
    v.parts.push_back(moments.v);
  }
  return {std::move(all), std::move(m), std::move(v)};
}

OwnedArena gradient_arena(const Grid& grid, const LanguageModel& model, const AdamW& optimizer) {
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model.config()), grid);
  OwnedArena arena;
  for (const ArenaRange& range : optimizer.owned()) {
    arena.owned.push_back({offset + range.begin, offset + range.end});
    arena.parts.push_back(model.parameters().grads(range));
  }
  return arena;
}

void load_moments(Backend& backend, const Grid& grid, const LanguageModel& model, const AdamW& optimizer,
                  const MomentValues& values) {
  const ParameterTable& table = model.parameters().table();
  load_moment(backend, grid, model, optimizer, &Moments::m, part_values(table, values.m));
  load_moment(backend, grid, model, optimizer, &Moments::v, part_values(table, values.v));
  // No step writes the gradients of frozen parameters.
  backend.fill(model.parameters().grads(), 0);
}

}  // namespace stagegpt
