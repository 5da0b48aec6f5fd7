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
  // `parts` f32 (owned.size()) are this rank's range of each arena. A collective call. It needs a few MiB; if
  // one rank cannot allocate them, all throw AgreedFailure.
  DividedArenas(RankGroup& group, Backend& backend, ArenaRange owned, std::vector<Tensor> parts);

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
  void copy_own(std::size_t arena, std::int64_t begin, std::span<float> out) const;

  RankGroup& group_;
  Backend& backend_;
  std::vector<ArenaRange> owned_;  // by rank
  std::vector<Tensor> parts_;
  mutable std::vector<float> sent_;
};

}  // namespace stagegpt
