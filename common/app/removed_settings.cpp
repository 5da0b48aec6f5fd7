#include "common/app/removed_settings.h"

#include <algorithm>
#include <iterator>

#include "common/app/configuration.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace stagegpt {
namespace {

struct RemovedValue {
  const char *flag, *value, *instead;
};
constexpr RemovedValue kValues[] = {
    {"--comm", "zero2", "zero1-overlapped"},
    {"--comm-algorithm", "hierarchical", "mpi"},
};

// `now` is the value, in JSON, that means what is always done now, which `instead` describes.
struct RemovedFlag {
  const char *flag, *now, *instead;
};
constexpr RemovedFlag kFlags[] = {
    {"--ranks-per-node", "0", "--comm-algorithm mpi knows which ranks share a node"},
    {"--checkpoint-writers", "1", "one rank writes a checkpoint"},
    {"--checkpoint-async", "false", "a checkpoint is complete before the next step begins"},
};

const RemovedFlag* removed(const std::string& flag) {
  const auto* found = std::ranges::find(kFlags, flag, &RemovedFlag::flag);
  return found == std::end(kFlags) ? nullptr : found;
}

std::string description(const RemovedFlag& flag) { return concat(flag.flag, " was removed: ", flag.instead); }

}  // namespace

void refuse_removed_flag(const std::string& flag) {
  if (const RemovedFlag* gone = removed(flag)) throw UserError(description(*gone));
}

void refuse_removed_value(const std::string& flag, const std::string& value) {
  for (const RemovedValue& gone : kValues) {
    if (gone.flag == flag && gone.value == value)
      user_error(flag, ": ", value, " was removed; use ", gone.instead);
  }
}

bool is_removed_default(const std::string& key, const nlohmann::json& value) {
  const RemovedFlag* gone = removed(flag_of_key(key));
  if (gone == nullptr) return false;
  if (value.dump() != gone->now) refuse_removed_flag(gone->flag);
  return true;
}

std::vector<std::string> replace_removed(Json& settings) {
  std::vector<std::string> notes;
  if (!settings.is_object()) return notes;
  for (const auto& [flag, value, instead] : kValues) {
    const auto found = settings.find(config_key(flag));
    if (found == settings.end() || *found != value) continue;
    *found = instead;
    notes.push_back(concat(flag, " ", value, " was removed; ", instead, " takes its place"));
  }
  for (const RemovedFlag& gone : kFlags) {
    const auto found = settings.find(config_key(gone.flag));
    if (found == settings.end()) continue;
    if (found->dump() != gone.now) notes.push_back(description(gone));
    settings.erase(found);
  }
  return notes;
}

}  // namespace stagegpt
