// An ordered list of distinct flags with their values, for the stages' programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

class FlagList {
 public:
  FlagList() = default;
  FlagList(std::initializer_list<std::pair<std::string, std::vector<std::string>>> flags) : flags_(flags) {}

  // From a command line: "--steps 20 --reproducible", "--steps=20". Throws UserError if an argument is not a
  // flag, or if a flag occurs twice.
  static FlagList parse(std::span<const std::string> arguments);
  // From settings, a JSON object as --print-config prints it: {"steps": 20, "reproducible": true}. Values
  // null and false give no flag; null also removes the flag from a list that is updated. Throws UserError for
  // values that are not numbers, strings, booleans or null.
  static FlagList of_settings(const nlohmann::json& settings);

  bool has(const std::string& flag) const;
  // The flag's first value; empty if it has none.
  std::optional<std::string> value(const std::string& flag) const;
  // Sets a flag, or replaces its values.
  void set(const std::string& flag, std::vector<std::string> values = {});
  void remove(const std::string& flag);
  // Sets all flags of another list, and removes those that are null there.
  void update(const FlagList& other);
  // The flags that are in `known`, and those that are neither in `known` nor in `others`.
  FlagList known_to(const std::set<std::string>& known, const std::set<std::string>& others) const;

  std::vector<std::string> arguments() const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> flags_;
  std::set<std::string> null_;
};

// The flags that a program's --help lists.
std::set<std::string> flags_in_help(const std::string& help);

}  // namespace stagegpt::compare
