// Arenas that are divided among ranks, such as the moments with zero1. Rank 0 reads them piece by piece, so
// that neither it nor its device needs memory for a whole arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/comm/rank_group.h"
#include "common/model/parameters.h"

namespace stagegpt {

class DividedArenas {
 public:
  // parts[a][i] f32 (owned[i].size()) is what this rank owns in range i of arena a. All ranks have the same
  // number of ranges. A collective call. It needs a few MiB; if one rank cannot allocate them, all throw
  // AgreedFailure.
  DividedArenas(RankGroup& group, Backend& backend, const ArenaParts& owned,
                std::vector<std::vector<Tensor>> parts);

  // As stagegpt::on_root(): rank 0 runs the body, which may call read(); the other ranks answer its requests.
  void on_root(const std::function<void()>& body) const;
  // Copies elements [begin, begin + out.size()) of an arena. Only on rank 0, in the body of on_root().
  void read(std::size_t arena, std::int64_t begin, std::span<float> out) const;
  // The parameters of an arena, which are read by read().
  ParameterValues values(const ParameterTable& table, std::size_t arena) const;

 private:
  static constexpr std::int64_t kElements = 1 << 20;  // per message

  // Sends the requested elements to rank 0, if this rank owns them.
  void send(const RankGroup::Request& request) const;
  // Copies from this rank's range i.
  void copy_own(std::size_t arena, std::size_t i, std::int64_t begin, std::span<float> out) const;
  const ArenaRange& own(std::size_t i) const;

  RankGroup& group_;
  Backend& backend_;
  std::size_t ranges_;  // of each rank
  ArenaParts owned_;    // those of rank 0, of rank 1, …
  std::vector<std::vector<Tensor>> parts_;
  mutable std::vector<float> sent_;
};

}  // namespace stagegpt
