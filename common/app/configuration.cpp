#include "common/app/configuration.h"

#include <algorithm>

#include "common/app/removed_settings.h"
#include "common/app/suggestion.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace stagegpt {

std::string config_key(std::string_view flag) {
  std::string key(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string flag_of_key(std::string_view key) {
  std::string flag(key);
  std::ranges::replace(flag, '_', '-');
  return "--" + flag;
}

Json with_derived(Json given, const Json& resolved) {
  Json derived = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (value.is_null() && !resolved.at(key).is_null()) derived[key] = resolved.at(key);
  }
  given[kDerived] = std::move(derived);
  return given;
}

Json resolved_settings(Json settings) {
  const auto found = settings.find(kDerived);
  if (found == settings.end()) return settings;
  const Json derived = *found;
  if (!derived.is_object()) user_error("'", kDerived, "': expected an object");
  settings.erase(kDerived);
  for (const auto& [key, value] : derived.items()) {
    if (settings.contains(key) && settings[key].is_null()) settings[key] = value;
  }
  return settings;
}

void Configuration::apply(const nlohmann::json& json, const std::set<std::string>& ignored) const {
  if (!json.is_object()) user_error("expected a JSON object, {\"batch_size\": 8, …}");
  std::set<std::string> seen;
  for (const auto& [name, value] : json.items()) {
    const std::string key = config_key(name);
    if (!seen.insert(key).second)
      user_error("the key '", key, "' occurs twice: once with dashes, once with underscores");
    const auto known = std::ranges::find(keys_, key, &ConfigKey::name);
    if (known != keys_.end()) {
      known->set(value);
    } else if (key != kDerived && !ignored.contains(key) && !is_removed_default(key, value)) {
      std::vector<std::string> names;
      for (const ConfigKey& candidate : keys_) names.push_back(candidate.name);
      user_error("unknown key '", name.substr(0, 60), "'", suggestion(key, names));
    }
  }
}

Json Configuration::values() const {
  Json json = Json::object();
  for (const ConfigKey& key : keys_) json[key.name] = key.get();
  return json;
}

}  // namespace stagegpt
