// Arenas of which each rank may hold a part only, read by rank 0 piece by piece: it never needs memory for a
// whole one, nor does its device. A checkpoint's moments with zero1, for one.
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
  // `parts` f32 (owned.size()) are this rank's range of each arena. A collective call; a rank without the few
  // MiB that it takes makes all throw AgreedFailure.
  DividedArenas(RankGroup& group, Backend& backend, ArenaRange owned, std::vector<Tensor> parts);

  // As stagegpt::on_root(): in the body, rank 0 may read; the others send what it asks for.
  void on_root(const std::function<void()>& body) const;
  // Copies elements [begin, begin + out.size()) of an arena. On rank 0, in the body of on_root().
  void read(std::size_t arena, std::int64_t begin, std::span<float> out) const;
  // The parameters that an arena holds, read so.
  ParameterValues values(const ParameterTable& table, std::size_t arena) const;

 private:
  static constexpr std::int64_t kElements = 1 << 20;  // that are sent at once

  // Sends rank 0 the elements [begin, end) of an arena, where they are this rank's.
  void send(const RankGroup::Request& request) const;
  void copy_own(std::size_t arena, std::int64_t begin, std::span<float> out) const;

  RankGroup& group_;
  Backend& backend_;
  std::vector<ArenaRange> owned_;  // by rank
  std::vector<Tensor> parts_;
  mutable std::vector<float> sent_;
};

}  // namespace stagegpt
