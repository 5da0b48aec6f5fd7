// Flags with strict values. A mistake is a UserError of one line that names the flag, what was expected and
// what was given; an unknown flag comes with the nearest known one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// Which numbers a flag takes, and the words for it.
struct RealRule {
  bool (*accepts)(double);
  const char* expected;
};
inline constexpr RealRule kPositive{[](double x) { return x > 0; }, "a number above 0"};
inline constexpr RealRule kNotNegative{[](double x) { return x >= 0; }, "a number of at least 0"};
inline constexpr RealRule kBelowOne{[](double x) { return x >= 0 && x < 1; }, "a number from 0 to below 1"};
inline constexpr RealRule kFraction{[](double x) { return x > 0 && x < 1; }, "a number above 0 and below 1"};

class CommandLine {
 public:
  // `stage` is the stage's number: flags that only other stages have are refused with their names. Programs
  // that belong to no stage give none.
  CommandLine(const std::string& program, const std::string& description, std::optional<int> stage);

  // The flags that follow are listed under this heading by --help.
  void group(const std::string& heading) { group_ = heading; }
  // Text behind the list of flags.
  void footer(const std::string& text) { app_.footer(text); }

  // Each takes the value's present content as the default that --help shows.
  void integer(const std::string& flag, std::int64_t& value, std::int64_t min, std::int64_t max,
               const std::string& help);
  void integer(const std::string& flag, std::optional<std::int64_t>& value, std::int64_t min,
               std::int64_t max, const std::string& help);
  void real(const std::string& flag, double& value, RealRule rule, const std::string& help);
  void real(const std::string& flag, std::optional<double>& value, RealRule rule, const std::string& help);
  void text(const std::string& flag, std::string& value, const std::string& help);
  void text(const std::string& flag, std::optional<std::string>& value, const std::string& help);
  // One or more, behind one flag or several.
  void texts(const std::string& flag, std::vector<std::string>& values, const std::string& help);
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& names,
              const std::string& help);
  void choice(const std::string& flag, std::optional<std::string>& value,
              const std::vector<std::string>& names, const std::string& help);
  void toggle(const std::string& flag, bool& value, const std::string& help);

  // False when the command line only asked for help, which has then been printed.
  bool parse(int argc, const char* const* argv);

 private:
  CLI::Option* option(const std::string& flag, const std::string& help, const std::string& type,
                      const std::string& default_value, std::function<void(const std::string&)> set);
  [[noreturn]] void refuse(const std::string& argument) const;

  CLI::App app_;
  std::optional<int> stage_;
  std::string group_;
};

// Runs a program: 0 or the value `body` returns, 2 for a UserError, 1 for any other exception, each printed
// as one line on standard error.
int run_program(const char* argv0, const std::function<int()>& body);

}  // namespace stagegpt
