// Flags with strict values. A mistake is a UserError of one line that names the flag, what was expected and
// what was given. For an unknown flag the nearest known one is suggested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/app/configuration.h"
#include "common/app/flag_values.h"
#include "common/app/version.h"
#include "common/base/json_fwd.h"

namespace CLI {  // CLI11 is no part of this header: it takes long to compile
class App;
class Option;
}  // namespace CLI

namespace stagegpt {

// A flag that a stage has and some other stage does not.
struct StageFlag {
  std::string_view name;  // "--comm"
  int stage;
};

// What a flag sets. An optional value is null in a configuration where it was not given.
template <class T>
class FlagValue {
 public:
  FlagValue(T& value) : value_(&value) {}
  FlagValue(std::optional<T>& value) : optional_(&value) {}

  bool is_optional() const { return optional_ != nullptr; }
  std::optional<T> get() const { return is_optional() ? *optional_ : std::optional(*value_); }
  void set(T value) const {
    if (is_optional())
      *optional_ = std::move(value);
    else
      *value_ = std::move(value);
  }
  void clear() const { optional_->reset(); }

 private:
  T* value_ = nullptr;
  std::optional<T>* optional_ = nullptr;
};

class CommandLine {
 public:
  // `program` is its name or path, of which --help shows the name. A program of a stage gives the stage's
  // number and the flags of all stages, which are borrowed: a flag that only other stages have is refused
  // with their numbers.
  CommandLine(const std::string& program, const std::string& description, std::optional<int> stage = {},
              std::span<const StageFlag> stage_flags = {});
  ~CommandLine();

  // The flags that follow are listed under this heading by --help. They are settings, part of a
  // configuration, or concern one call of the program alone.
  enum class Concerns { settings, this_call };
  void group(const std::string& heading, Concerns concerns = Concerns::settings) {
    group_ = heading;
    in_config_ = concerns == Concerns::settings;
  }
  // Declares --version.
  void version(const Version& version);
  // Text that --help prints after the flags.
  void footer(const std::string& text);

  // Each takes the value's present content as the default that --help shows.
  void integer(const std::string& flag, FlagValue<std::int64_t> value, std::int64_t min, std::int64_t max,
               const std::string& help);
  void real(const std::string& flag, FlagValue<double> value, RealRule rule, const std::string& help);
  void text(const std::string& flag, FlagValue<std::string> value, const std::string& help);
  // One value or more after the flag, which may be repeated.
  void texts(const std::string& flag, std::vector<std::string>& values, const std::string& help);
  // Text of any kind; it may be empty. `type` is its name in --help: "PATH" for a file.
  void free_text(const std::string& flag, std::string& value, const std::string& help,
                 const char* type = "TEXT");
  // Texts that are not empty: one after the flag, which may be repeated.
  void free_texts(const std::string& flag, std::vector<std::string>& values, const std::string& help);
  void choice(const std::string& flag, FlagValue<std::string> value, const std::vector<std::string>& names,
              const std::string& help);
  void toggle(const std::string& flag, bool& value, const std::string& help);
  // A value that may be left out: --flag alone gives "".
  void optional_text(const std::string& flag, std::optional<std::string>& value, const std::string& help);
  // Declares --config, which must come before all other flags: these override it.
  void config_file();
  // Says that ranks of one program may be given different values of a flag.
  void allow_another_value_per_rank(const std::string& flag) { per_rank_.insert(flag); }
  bool may_differ_between_ranks(const std::string& flag) const { return per_rank_.contains(flag); }

  // Of a flag that is given more than once, the last value counts. False when the command line only asked for
  // help or the version, which has then been printed.
  bool parse(int argc, const char* const* argv);

  // Sets flags to the values of an object that settings() gave, at this stage or another, before parse().
  // Throws UserError as Configuration::apply() does.
  void apply(const nlohmann::json& settings) const;
  // What --config holds, by key; empty where it was not given.
  const nlohmann::json& file_settings() const { return *file_settings_; }
  // Whether a flag is on the command line itself.
  bool is_given(const std::string& flag) const;
  // All settings as they stand, by key.
  Json settings() const;
  // The keys of the flags that not every stage has.
  std::set<std::string> stage_keys() const;
  // The flags that are no settings, each with "no" or with "yes" and the values that it was given.
  std::vector<std::pair<std::string, std::string>> call() const;

 private:
  CLI::Option* option(const std::string& flag, const std::string& help, const std::string& type,
                      const std::string& default_value, std::function<void(const std::string&)> set);
  CLI::Option* list(const std::string& flag, std::vector<std::string>& values, const std::string& help);
  template <class T, class Parse>
  void add(const std::string& flag, FlagValue<T> value, const std::string& help, const std::string& type,
           std::string_view json_type, bool (*is_right)(const nlohmann::json&), const Parse& parse);
  void add_key(const std::string& flag, std::function<Json()> get,
               std::function<void(const nlohmann::json&)> set);
  void refuse_flag_of_other_stages(const std::string& flag) const;
  [[noreturn]] void refuse(const std::string& argument) const;

  std::unique_ptr<CLI::App> app_;
  std::optional<int> stage_;
  std::span<const StageFlag> stage_flags_;
  std::set<std::string> per_rank_;
  std::string group_;
  bool in_config_ = true;
  Configuration configuration_;
  std::unique_ptr<nlohmann::json> file_settings_;
};

// The value of a choice(): one of an enumeration whose names are given in its order.
template <class Enum>
Enum chosen(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<Enum>(std::ranges::find(names, name) - names.begin());
}

inline constexpr const char* kOutOfMemory =
    "out of memory; a smaller model, --batch-size or --block-size needs less";

// A message without control characters, and of limited length: it may quote any input.
std::string printable(std::string message);

// What a program that ends with this error returns: 2 for a UserError, 75 for Stopped, 1 for all others.
int exit_code_of(const std::exception& error);

// Runs a program. Returns what `body` returns. An error that it throws is printed as one line on standard
// error, and its exit_code_of() is returned.
int run_program(const char* argv0, const std::function<int()>& body);

// Writes out what std::cout and stdout still hold. Throws std::runtime_error where something could not be
// written, now or before.
void flush_output();

}  // namespace stagegpt
