#include "common/optim/update_counts.h"

namespace stagegpt {

std::int64_t UpdateCounts::of(const std::string& name) const {
  const auto own = fewer.find(name);
  return own == fewer.end() ? all : own->second;
}

void UpdateCounts::add(const ParameterTable& table) {
  for (const Parameter& row : table.rows()) {
    if (!row.trained) {
      fewer.emplace(row.name, all);
    } else if (const auto own = fewer.find(row.name); own != fewer.end()) {
      ++own->second;
    }
  }
  ++all;
}

}  // namespace stagegpt
