#include "common/comm/rank_group.h"

#include <algorithm>

#include "common/error.h"

namespace stagegpt {

void RankGroup::while_root_works(const std::function<void()>& body) {
  if (is_root()) body();
  barrier();
}

void SingleProcess::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  check(own.size() == all.size(), "all_gather: ", own.size(), " bytes into ", all.size());
  std::ranges::copy(own, all.begin());
}

}  // namespace stagegpt
