// Settings as a JSON object, {"batch_size": 8, …}. The key of a flag is its name without the leading dashes,
// with underscores. A setting that was not given is null; the value that follows from other settings is in
// the object "derived", which is not read back as settings.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"

namespace stagegpt {

// One setting. `set` throws UserError, naming the flag, for a value of another type or out of range.
struct ConfigKey {
  std::string name;  // "batch_size"
  std::function<void(const nlohmann::json&)> set;
  std::function<Json()> get;
};

// The key of a flag: "--batch-size" is "batch_size".
std::string config_key(std::string_view flag);

// The flag of a key.
std::string flag_of_key(std::string_view key);

// The key of the object of values that were not given but follow from other settings.
inline constexpr const char* kDerived = "derived";

// `given` with the object kDerived: the values in `resolved` of the keys that are null in `given`. Both have
// the same keys.
Json with_derived(Json given, const Json& resolved);
// Replaces null by the derived values, and removes kDerived. Throws UserError where kDerived is no object.
Json resolved_settings(Json settings);

class Configuration {
 public:
  void add(ConfigKey key) { keys_.push_back(std::move(key)); }

  // Sets what an object holds; keys may have dashes for underscores. Throws UserError for a key that occurs
  // twice, and for an unknown one, with the nearest known key. Keys in `ignored` and kDerived are skipped,
  // and those for which is_removed_default() holds.
  void apply(const nlohmann::json& json, const std::set<std::string>& ignored = {}) const;
  // All settings as they stand.
  Json values() const;

 private:
  std::vector<ConfigKey> keys_;
};

// ---- Flags and values of earlier versions that are gone ----
// On a command line and in --config they are refused, with what takes their place; a run that was begun with
// them goes on with that.

// Each throws UserError where a flag, or this value of it, is gone.
void refuse_removed_flag(const std::string& flag);
void refuse_removed_value(const std::string& flag, const std::string& value);

// Whether the flag of this key is gone and the value means what is always done now, so that nothing changes
// without it. Throws UserError for its other values.
bool is_removed_default(const std::string& key, const nlohmann::json& value);

// Replaces removed values in the settings of a run, and leaves out those of removed flags. Returns a line
// for each that is no default.
std::vector<std::string> replace_removed(Json& settings);

}  // namespace stagegpt
