#include "tools/compare/flag_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/app/configuration.h"
#include "common/base/error.h"

namespace stagegpt::compare {

FlagList FlagList::parse(std::span<const std::string> arguments) {
  FlagList list;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--") && argument.size() > 2) {
      const std::size_t equals = argument.find('=');
      const std::string flag = argument.substr(0, equals);
      list.remove(flag);  // the last one counts
      list.set(flag);
      if (equals != argument.npos) list.flags_.back().second = {argument.substr(equals + 1)};
    } else if (list.flags_.empty()) {
      user_error("after --: expected flags of stageN_train, not '", argument, "'");
    } else {
      list.flags_.back().second.push_back(argument);
    }
  }
  return list;
}

FlagList FlagList::of_settings(const nlohmann::json& settings) {
  if (!settings.is_object()) user_error("expected a JSON object");
  FlagList list;
  for (const auto& [key, value] : settings.items()) {
    if (key == kDerived) continue;
    const std::string flag = flag_of_key(key);
    if (value.is_string()) {
      list.set(flag, {value.get<std::string>()});
    } else if (value.is_number()) {
      list.set(flag, {value.dump()});
    } else if (value.is_boolean()) {
      if (value.get<bool>()) list.set(flag);
    } else if (value.is_null()) {
      list.null_.insert(flag);
    } else {
      user_error(key, ": expected a number, a string, true or false");
    }
  }
  return list;
}

bool FlagList::has(const std::string& flag) const {
  return std::ranges::any_of(flags_, [&](const auto& entry) { return entry.first == flag; });
}

std::optional<std::string> FlagList::value(const std::string& flag) const {
  for (const auto& [name, values] : flags_) {
    if (name == flag && !values.empty()) return values.front();
  }
  return std::nullopt;
}

void FlagList::set(const std::string& flag, std::vector<std::string> values) {
  for (auto& [name, old] : flags_) {
    if (name == flag) {
      old = std::move(values);
      return;
    }
  }
  flags_.emplace_back(flag, std::move(values));
}

void FlagList::remove(const std::string& flag) {
  std::erase_if(flags_, [&](const auto& entry) { return entry.first == flag; });
}

void FlagList::update(const FlagList& other) {
  for (const std::string& flag : other.null_) remove(flag);
  for (const auto& [flag, values] : other.flags_) set(flag, values);
}

FlagList FlagList::known_to(const std::set<std::string>& known, const std::set<std::string>& others) const {
  FlagList list = *this;
  std::erase_if(list.flags_, [&](const auto& entry) {
    return !known.contains(entry.first) && others.contains(entry.first);
  });
  return list;
}

std::vector<std::string> FlagList::arguments() const {
  std::vector<std::string> all;
  for (const auto& [flag, values] : flags_) {
    all.push_back(flag);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::set<std::string> flags_in_help(const std::string& help) {
  std::set<std::string> flags;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos || line.compare(begin, 2, "--") != 0) continue;
    flags.insert(line.substr(begin, line.find_first_of(" ,=", begin) - begin));
  }
  return flags;
}

}  // namespace stagegpt::compare
