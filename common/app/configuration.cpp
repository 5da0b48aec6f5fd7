#include "common/app/configuration.h"

#include <algorithm>
#include <iterator>

#include "common/app/flag_values.h"
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
    {"--keep-context", "false", "a text goes on where its whole beginning is the --prompt"},
};

const RemovedFlag* removed(const std::string& flag) {
  const auto* found = std::ranges::find(kFlags, flag, &RemovedFlag::flag);
  return found == std::end(kFlags) ? nullptr : found;
}

std::string description(const RemovedFlag& flag) { return concat(flag.flag, " was removed: ", flag.instead); }

}  // namespace

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
