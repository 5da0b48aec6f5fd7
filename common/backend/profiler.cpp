#include "common/backend/profiler.h"

#include <algorithm>

namespace stagegpt {

void Profiler::add(const char* name, double seconds, const Work& work) {
  auto entry = std::ranges::find(entries_, name, &Entry::name);
  if (entry == entries_.end()) entry = entries_.insert(entries_.end(), Entry{name});
  ++entry->calls;
  entry->seconds += seconds;
  entry->work.flops += work.flops;
  entry->work.bytes += work.bytes;
}

std::vector<Profiler::Entry> Profiler::entries() const {
  std::vector<Entry> sorted = entries_;
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Entry::seconds);
  return sorted;
}

}  // namespace stagegpt
