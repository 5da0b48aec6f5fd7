#include "common/app/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <stdexcept>

#include "common/app/configuration.h"
#include "common/app/flag_values.h"
#include "common/app/help_text.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/file.h"
#include "common/io/mapping_faults.h"
#include "common/io/status_line.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

// Rewords messages of CLI11, such as "--steps: 1 required N missing".
[[noreturn]] void refuse_values(const std::string& message) {
  const auto says = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  const std::string name = message.substr(0, message.find_first_of(": "));
  if (says("disallowed flag override")) user_error("--", name, ": takes no value");
  if (says("missing")) user_error(name, ": expected a value");
  user_error(message);
}

}  // namespace

CommandLine::CommandLine(const std::string& program, const std::string& description, std::optional<int> stage,
                         std::span<const StageFlag> stage_flags)
    : app_(std::make_unique<CLI::App>(description, std::filesystem::path(program).filename())),
      stage_(stage),
      stage_flags_(stage_flags),
      file_settings_(std::make_unique<nlohmann::json>(nlohmann::json::object())) {
  app_->allow_extras();
  app_->get_formatter()->column_width(kHelpColumn);
}

CommandLine::~CommandLine() = default;

void CommandLine::version(const Version& version) {
  app_->set_version_flag("--version", version_text(app_->get_name(), version),
                         "print the version, the commit and the build, then exit");
}

void CommandLine::footer(const std::string& text) { app_->footer(text); }

CLI::Option* CommandLine::option(const std::string& flag, const std::string& help, const std::string& type,
                                 const std::string& default_value,
                                 std::function<void(const std::string&)> set) {
  return app_->add_option_function<std::string>(flag, std::move(set), help)
      ->type_name(type)
      ->default_str(default_value)
      ->take_last()
      ->group(group_);
}

// A flag with a value: `parse` reads it from text, `is_right` says whether JSON is of its type.
template <class T, class Parse>
void CommandLine::add(const std::string& flag, FlagValue<T> value, const std::string& help,
                      const std::string& type, std::string_view json_type,
                      bool (*is_right)(const nlohmann::json&), const Parse& parse) {
  option(flag, help, type, value.is_optional() ? "" : concat(*value.get()),
         [value, parse](const std::string& text) { value.set(parse(text)); });
  add_key(
      flag, [value] { return or_null(value.get()); },
      [value, flag, parse, json_type, is_right](const nlohmann::json& json) {
        if (value.is_optional() && json.is_null()) return value.clear();
        value.set(parse(config_text(flag, json, is_right(json), json_type)));
      });
}

void CommandLine::add_key(const std::string& flag, std::function<Json()> get,
                          std::function<void(const nlohmann::json&)> set) {
  if (in_config_) configuration_.add({config_key(flag), std::move(set), std::move(get)});
}

namespace {

bool is_number(const nlohmann::json& json) { return json.is_number(); }
bool is_text(const nlohmann::json& json) { return json.is_string(); }

}  // namespace

void CommandLine::integer(const std::string& flag, FlagValue<std::int64_t> value, std::int64_t min,
                          std::int64_t max, const std::string& help) {
  add(flag, value, help, "N", "a whole number", is_number,
      [=](const std::string& text) { return parse_integer(flag, text, min, max); });
}

void CommandLine::real(const std::string& flag, FlagValue<double> value, RealRule rule,
                       const std::string& help) {
  add(flag, value, help, "X", "a number", is_number,
      [=](const std::string& text) { return parse_real(flag, text, rule); });
}

void CommandLine::text(const std::string& flag, FlagValue<std::string> value, const std::string& help) {
  add(flag, value, help, "PATH", "a text", is_text,
      [=](const std::string& text) { return not_empty(flag, text); });
}

void CommandLine::choice(const std::string& flag, FlagValue<std::string> value,
                         const std::vector<std::string>& names, const std::string& help) {
  add(flag, value, help + ": " + joined(names), "NAME", "a text", is_text,
      [=](const std::string& text) { return one_of(flag, text, names); });
}

CLI::Option* CommandLine::list(const std::string& flag, std::vector<std::string>& values,
                               const std::string& help) {
  const auto add = [&values, flag](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) values.push_back(not_empty(flag, text));
  };
  return app_->add_option_function<std::vector<std::string>>(flag, add, help)->group(group_);
}

void CommandLine::texts(const std::string& flag, std::vector<std::string>& values, const std::string& help) {
  list(flag, values, help)->type_name("PATH");
}

void CommandLine::free_text(const std::string& flag, std::string& value, const std::string& help,
                            const char* type) {
  add(flag, FlagValue(value), help, type, "a text", is_text, [](const std::string& text) { return text; });
}

void CommandLine::free_texts(const std::string& flag, std::vector<std::string>& values,
                             const std::string& help) {
  list(flag, values, help)
      ->expected(1)
      ->allow_extra_args(false)  // with it, brackets would be read as a list
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
}

void CommandLine::toggle(const std::string& flag, bool& value, const std::string& help) {
  app_->add_flag(flag, value, help)->disable_flag_override()->group(group_);
  add_key(
      flag, [&value] { return Json(value); },
      [&value, flag](const nlohmann::json& json) {
        config_text(flag, json, json.is_boolean(), "true or false");
        value = json.get<bool>();
      });
}

void CommandLine::optional_text(const std::string& flag, std::optional<std::string>& value,
                                const std::string& help) {
  option(flag, help, "[PATH]", "", [&value](const std::string& text) { value = text; })->expected(0, 1);
}

void CommandLine::config_file() {
  option("--config",
         "JSON file of settings, as --print-config prints them (null: not set); flags override it", "PATH",
         "", [this](const std::string& path) {
           const MappedFile file(path, "--config");
           try {
             const nlohmann::json settings = parse_json(file.text());
             if (settings.is_object()) {
               for (const auto& [key, value] : settings.items()) {
                 refuse_flag_of_other_stages(flag_of_key(key));
               }
             }
             configuration_.apply(settings);
             for (const auto& [key, value] : settings.items()) (*file_settings_)[config_key(key)] = value;
           } catch (const UserError& error) {
             user_error("--config: \"", path, "\": ", error.what());
           }
         });
}

void CommandLine::apply(const nlohmann::json& settings) const {
  configuration_.apply(settings, stage_keys());
}

bool CommandLine::is_given(const std::string& flag) const { return app_->get_option(flag)->count() > 0; }

Json CommandLine::settings() const { return configuration_.values(); }

std::set<std::string> CommandLine::stage_keys() const {
  std::set<std::string> keys;
  for (const StageFlag& flag : stage_flags_) keys.insert(config_key(flag.name));
  return keys;
}

std::vector<std::pair<std::string, std::string>> CommandLine::call() const {
  const Json settings = configuration_.values();
  std::vector<std::pair<std::string, std::string>> flags;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string flag = option->get_name();
    if (settings.contains(config_key(flag))) continue;
    std::string text = option->count() == 0 ? "no" : "yes";
    for (const std::string& value : option->reduced_results()) text += value == "true" ? "" : ' ' + value;
    flags.emplace_back(flag, text);
  }
  return flags;
}

bool CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::optional<std::size_t> width = terminal_width(STDOUT_FILENO);
    std::cout << (width ? fitted_help(app_->help(), *width) : app_->help());
    return false;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return false;
  } catch (const CLI::ParseError& error) {
    refuse_values(error.what());
  }
  if (const auto extras = app_->remaining(); !extras.empty()) refuse(extras.front());
  return true;
}

// Does nothing for a flag that this program or another one of its stage has, and for one that no stage has.
void CommandLine::refuse_flag_of_other_stages(const std::string& flag) const {
  std::vector<int> stages;
  for (const StageFlag& other : stage_flags_) {
    if (other.name == flag) stages.push_back(other.stage);
  }
  const bool is_known = app_->get_option_no_throw(flag) != nullptr;
  if (!stage_ || is_known || stages.empty() || std::ranges::find(stages, *stage_) != stages.end()) return;
  std::string numbers;
  for (const int stage : stages) numbers += concat(numbers.empty() ? "" : " and ", stage);
  user_error(flag, ": stage ", *stage_, " has no use for it; it belongs to stage",
             stages.size() > 1 ? "s " : " ", numbers);
}

void CommandLine::refuse(const std::string& argument) const {
  if (!argument.starts_with('-') || argument == "--")
    user_error("unexpected argument '", argument, "'; see --help");
  const std::string flag = argument.substr(0, argument.find('='));
  refuse_flag_of_other_stages(flag);
  refuse_removed_flag(flag);
  std::vector<std::string> known;
  for (const CLI::Option* option : app_->get_options()) known.push_back(option->get_name());
  user_error("unknown flag ", flag, suggestion(flag, known), "; see --help");
}

namespace {

// Opens /dev/null for a standard stream that is closed. Otherwise the next file that is opened would get its
// number, and messages would be written into that file.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

std::string printable(std::string message) {
  constexpr std::size_t kLongest = 1000;
  if (message.size() > kLongest) message.replace(kLongest, std::string::npos, "...");
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return message;
}

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UserError*>(&error) != nullptr) return 2;
  return dynamic_cast<const Stopped*>(&error) != nullptr ? kExitStopped : 1;
}

int run_program(const char* argv0, const std::function<int()>& body) {
  const bool has_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is then an error of writing, as on a full disk
  const char* slash = std::strrchr(argv0, '/');
  explain_mapping_faults(slash == nullptr ? argv0 : slash + 1);
  const std::string name = std::filesystem::path(argv0).filename();
  try {
    if (!has_output) throw std::runtime_error("standard output is closed: the result would be lost");
    const int code = body();
    flush_output();
    return code;
  } catch (const std::bad_alloc&) {
    std::cerr << concat(name, ": ", kOutOfMemory, '\n');  // in one write: ranks share standard error
    return 1;
  } catch (const std::exception& error) {
    std::cerr << concat(name, ": ", printable(error.what()), '\n');
    return exit_code_of(error);
  }
}

void flush_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written");
  }
}

}  // namespace stagegpt
