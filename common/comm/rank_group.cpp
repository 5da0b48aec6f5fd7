#include "common/comm/rank_group.h"

#include <algorithm>

#include "common/base/error.h"

namespace stagegpt {

std::unique_ptr<RankGroup> RankGroup::split(int, int) {
  throw InternalError("rank group: split() of ranks that exist only in name");
}

void RankGroup::while_root_works(const std::function<void()>& body) {
  if (is_root()) body();
  barrier();
}

void RankGroup::send(std::span<const std::byte>, int to) {
  throw InternalError(concat("rank group: cannot send to rank ", to, " with a single process"));
}

void RankGroup::receive(std::span<std::byte>, int from) {
  throw InternalError(concat("rank group: cannot receive from rank ", from, " with a single process"));
}

void SingleProcess::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  check(own.size() == all.size(), "all_gather: ", own.size(), " bytes into ", all.size());
  std::ranges::copy(own, all.begin());
}

}  // namespace stagegpt
