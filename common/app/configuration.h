// Settings as a JSON object, {"batch_size": 8, …}: a flag's name without its dashes is a key. A setting that
// was not given is null; what it then comes to be is told under the key "derived", which no reader of
// settings takes in.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

namespace stagegpt {

// One setting. `set` throws UserError, naming the flag, for a value of another type or out of range.
struct ConfigKey {
  std::string name;  // "batch_size"
  std::function<void(const nlohmann::json&)> set;
  std::function<Json()> get;
};

// The key of a flag: "--batch-size" is "batch_size".
std::string config_key(std::string_view flag);

// The other way round.
std::string flag_of_key(std::string_view key);

// The key of the values that were not given but follow from other settings, an object of its own.
inline constexpr const char* kDerived = "derived";

// `given` and, under kDerived, what those that are null in it are in `resolved`, which has the same keys.
Json with_derived(Json given, const Json& resolved);
// The other way round: derived values in the place of null. Throws UserError where kDerived is no object.
Json resolved_settings(Json settings);

class Configuration {
 public:
  void add(ConfigKey key) { keys_.push_back(std::move(key)); }

  // Sets what an object holds; keys may have dashes for underscores. Throws UserError for a key that is not
  // known, with the nearest one that is, or there twice; those in `ignored` and kDerived are passed over.
  void apply(const nlohmann::json& json, const std::set<std::string>& ignored = {}) const;
  // All settings as they stand.
  Json values() const;

 private:
  std::vector<ConfigKey> keys_;
};

}  // namespace stagegpt
