// How many updates the moments of each parameter have had. AdamW's bias correction takes a parameter's own
// number, as torch.optim.AdamW does: a skipped step is no update, and a frozen parameter has none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/model/parameters.h"

namespace stagegpt {

struct UpdateCounts {
  std::int64_t all = 0;                            // of a parameter that was trained in all updates
  std::map<std::string, std::int64_t> fewer = {};  // of the others, by name

  std::int64_t of(const std::string& name) const;
  // Counts an update, of the parameters that are trained.
  void add(const ParameterTable& table);
  bool operator==(const UpdateCounts&) const = default;
};

}  // namespace stagegpt
