// The flags of a program, in order, each once: what a comparison hands on to every stage.
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

  // Of a command line: "--steps 20 --reproducible", "--steps=20". Throws UserError for what is no flag, and
  // for a flag that is there twice.
  static FlagList parse(std::span<const std::string> arguments);
  // Of settings, a JSON object as --print-config prints it: {"steps": 20, "reproducible": true}. What is null
  // or false needs no flag; null takes the flag away from a list that is updated. Throws UserError for
  // anything but numbers, texts and booleans.
  static FlagList of_settings(const nlohmann::json& settings);

  bool has(const std::string& flag) const;
  // Its first value, where it has one.
  std::optional<std::string> value(const std::string& flag) const;
  // Sets a flag, or replaces its values.
  void set(const std::string& flag, std::vector<std::string> values = {});
  void remove(const std::string& flag);
  // Sets all flags of another list, and removes those that are null there.
  void update(const FlagList& other);
  // Those that are among `known`, and those that are not among `others` either.
  FlagList known_to(const std::set<std::string>& known, const std::set<std::string>& others) const;

  std::vector<std::string> arguments() const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> flags_;
  std::set<std::string> null_;
};

// The flags that a program's --help lists.
std::set<std::string> flags_in_help(const std::string& help);

}  // namespace stagegpt::compare
