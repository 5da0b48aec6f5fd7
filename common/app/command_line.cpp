#include "common/app/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <numeric>

#include "common/error.h"

namespace stagegpt {
namespace {

struct StageFlag {
  std::string_view name;
  std::vector<int> stages;
};

// Flags that not every stage has.
const std::vector<StageFlag>& stage_flags() {
  static const std::vector<StageFlag> flags = {
      {"--cpu-matmul", {0, 1}},     {"--threads", {0, 1}},          {"--device", {2, 3}},
      {"--precision", {2, 3}},      {"--recompute", {2, 3}},        {"--comm", {1, 3}},
      {"--comm-algorithm", {1, 3}}, {"--watchdog-seconds", {1, 3}}, {"--transport", {3}},
      {"--share-gpu", {3}},
  };
  return flags;
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({substituted, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

// ", did you mean X?" for the nearest name, where one is near.
std::string suggestion(std::string_view given, const std::vector<std::string>& names) {
  const auto nearest = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return edit_distance(given, name); });
  if (nearest == names.end() || edit_distance(given, *nearest) > std::max<std::size_t>(2, given.size() / 3))
    return "";
  return concat(", did you mean ", *nearest, "?");
}

// The whole of `text` as a number, or nothing: no spaces, no trailing characters, no overflow.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t min,
                           std::int64_t max) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < min || *value > max) {
    user_error(flag, ": expected a whole number from ", min, " to ", max, ", not '", text, "'");
  }
  return *value;
}

double parse_real(const std::string& flag, const std::string& text, RealRule rule) {
  const auto value = parse_number<double>(text);
  // Kernels compute in f32: a number must be one there, neither infinite nor lost to zero.
  const double size = value ? std::abs(*value) : 0;
  const bool fits =
      size <= std::numeric_limits<float>::max() && (size == 0 || size >= std::numeric_limits<float>::min());
  if (!value || !fits || !rule.accepts(*value)) {
    user_error(flag, ": expected ", rule.expected, ", not '", text, "'");
  }
  return *value;
}

std::string not_empty(const std::string& flag, const std::string& text) {
  if (text.empty()) user_error(flag, ": expected a value, not an empty one");
  return text;
}

std::string one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& names) {
  if (std::ranges::find(names, text) == names.end()) {
    user_error(flag, ": expected one of ", joined(names), ", not '", text, "'", suggestion(text, names));
  }
  return text;
}

// CLI11 counts values: "--steps: 1 required N missing". Says it as a user would.
[[noreturn]] void refuse_values(const std::string& message) {
  const auto says = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  const std::string name = message.substr(0, message.find_first_of(": "));
  if (says("disallowed flag override")) user_error("--", name, ": takes no value");
  if (says("missing")) user_error(name, ": expected a value");
  if (says("received")) user_error(name, ": given more than once");
  user_error(message);
}

// On one line, and no long one, whatever the user's input holds.
std::string printable(std::string message) {
  constexpr std::size_t kLongest = 1000;
  if (message.size() > kLongest) message.replace(kLongest, std::string::npos, "...");
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return message;
}

// Results that did not reach their file are a failure.
void flush_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written");
  }
}

}  // namespace

CommandLine::CommandLine(const std::string& program, const std::string& description, std::optional<int> stage)
    : app_(description, program), stage_(stage) {
  app_.allow_extras();
  app_.get_formatter()->column_width(34);
}

CLI::Option* CommandLine::option(const std::string& flag, const std::string& help, const std::string& type,
                                 const std::string& default_value,
                                 std::function<void(const std::string&)> set) {
  return app_.add_option_function<std::string>(flag, std::move(set), help)
      ->type_name(type)
      ->default_str(default_value)
      ->group(group_);
}

void CommandLine::integer(const std::string& flag, std::int64_t& value, std::int64_t min, std::int64_t max,
                          const std::string& help) {
  option(flag, help, "N", std::to_string(value),
         [&value, flag, min, max](const std::string& text) { value = parse_integer(flag, text, min, max); });
}

void CommandLine::integer(const std::string& flag, std::optional<std::int64_t>& value, std::int64_t min,
                          std::int64_t max, const std::string& help) {
  option(flag, help, "N", "",
         [&value, flag, min, max](const std::string& text) { value = parse_integer(flag, text, min, max); });
}

void CommandLine::real(const std::string& flag, double& value, RealRule rule, const std::string& help) {
  option(flag, help, "X", concat(value),
         [&value, flag, rule](const std::string& text) { value = parse_real(flag, text, rule); });
}

void CommandLine::real(const std::string& flag, std::optional<double>& value, RealRule rule,
                       const std::string& help) {
  option(flag, help, "X", "",
         [&value, flag, rule](const std::string& text) { value = parse_real(flag, text, rule); });
}

void CommandLine::text(const std::string& flag, std::string& value, const std::string& help) {
  option(flag, help, "PATH", value,
         [&value, flag](const std::string& text) { value = not_empty(flag, text); });
}

void CommandLine::text(const std::string& flag, std::optional<std::string>& value, const std::string& help) {
  option(flag, help, "PATH", "", [&value, flag](const std::string& text) { value = not_empty(flag, text); });
}

void CommandLine::texts(const std::string& flag, std::vector<std::string>& values, const std::string& help) {
  const auto add = [&values, flag](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) values.push_back(not_empty(flag, text));
  };
  app_.add_option_function<std::vector<std::string>>(flag, add, help)->type_name("PATH")->group(group_);
}

void CommandLine::choice(const std::string& flag, std::string& value, const std::vector<std::string>& names,
                         const std::string& help) {
  option(flag, help + ": " + joined(names), "NAME", value,
         [&value, flag, names](const std::string& text) { value = one_of(flag, text, names); });
}

void CommandLine::choice(const std::string& flag, std::optional<std::string>& value,
                         const std::vector<std::string>& names, const std::string& help) {
  option(flag, help + ": " + joined(names), "NAME", "",
         [&value, flag, names](const std::string& text) { value = one_of(flag, text, names); });
}

void CommandLine::toggle(const std::string& flag, bool& value, const std::string& help) {
  app_.add_flag(flag, value, help)->disable_flag_override()->group(group_);
}

bool CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_.help();
    return false;
  } catch (const CLI::ParseError& error) {
    refuse_values(error.what());
  }
  if (const auto extras = app_.remaining(); !extras.empty()) refuse(extras.front());
  return true;
}

void CommandLine::refuse(const std::string& argument) const {
  if (!argument.starts_with('-') || argument == "--")
    user_error("unexpected argument '", argument, "'; see --help");
  const std::string flag = argument.substr(0, argument.find('='));
  const auto other = std::ranges::find(stage_flags(), flag, &StageFlag::name);
  if (stage_ && other != stage_flags().end()) {
    std::string stages;
    for (int stage : other->stages) stages += concat(stages.empty() ? "" : " and ", stage);
    user_error(flag, ": stage ", *stage_, " has no use for it; it belongs to stage",
               other->stages.size() > 1 ? "s " : " ", stages);
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app_.get_options()) known.push_back(option->get_name());
  user_error("unknown flag ", flag, suggestion(flag, known), "; see --help");
}

int run_program(const char* argv0, const std::function<int()>& body) {
  const std::string name = std::filesystem::path(argv0).filename();
  try {
    const int code = body();
    flush_output();
    return code;
  } catch (const UserError& error) {
    std::cerr << name << ": " << printable(error.what()) << '\n';
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << name << ": out of memory; a smaller model, --batch-size or --block-size needs less\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << printable(error.what()) << '\n';
    return 1;
  }
}

}  // namespace stagegpt
