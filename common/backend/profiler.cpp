#include "common/backend/profiler.h"

#include <algorithm>

#include "common/base/seconds_since.h"

namespace stagegpt {

void Profiler::around(const OpCall& op, const std::function<void()>& kernel) {
  const auto start = std::chrono::steady_clock::now();
  kernel();
  backend().synchronize();
  const double seconds = seconds_since(start);
  auto entry = std::ranges::find(entries_, op.name, &Entry::name);
  if (entry == entries_.end()) entry = entries_.insert(entries_.end(), Entry{op.name});
  ++entry->calls;
  entry->seconds += seconds;
  entry->work.flops += op.work.flops;
  entry->work.bytes += op.work.bytes;
}

std::vector<Profiler::Entry> Profiler::entries() const {
  std::vector<Entry> sorted = entries_;
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Entry::seconds);
  return sorted;
}

}  // namespace stagegpt
