#include "common/logging/metrics_log.h"

#include <iostream>

#include "common/base/json.h"

namespace stagegpt {
namespace {

constexpr int kMetricsVersion = 4;

struct Line {
  std::int64_t step = 0;
  MetricsLog::Seconds seconds = {};
};

// Step 0 for anything that is no line of metrics.
Line parse_line(std::string_view text) {
  try {
    const nlohmann::json json = parse_json(text);
    if (!json.is_object()) return {};
    const auto seconds = [&](const char* name) {
      const auto field = json.find(name);
      return field != json.end() && field->is_number() ? field->get<double>() : 0;
    };
    return {json.value("step", std::int64_t{0}), {seconds("seconds"), seconds("validation_seconds")}};
  } catch (const std::exception&) {  // an incomplete line
  }
  return {};
}

struct Kept {
  std::string lines;
  std::int64_t steps = 0;
  MetricsLog::Seconds seconds = {};
};

// The lines of steps up to `steps_done`, each once and in order.
Kept kept_lines(std::string_view text, std::int64_t steps_done) {
  Kept kept;
  std::int64_t last = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    const Line line = parse_line(text.substr(0, end));
    if (line.step > last && line.step <= steps_done) {
      kept.lines += text.substr(0, end + 1);
      ++kept.steps;
      kept.seconds.training += line.seconds.training;
      kept.seconds.validation += line.seconds.validation;
      last = line.step;
    }
    text.remove_prefix(end + 1);
  }
  return kept;
}

// Rewrites a file with only the lines that are kept. Returns the seconds of their steps.
MetricsLog::Seconds drop_lines(const std::filesystem::path& path, std::int64_t steps_done) {
  Kept kept;
  std::error_code ignored;
  const bool something = file_exists(path) && std::filesystem::file_size(path, ignored) > 0;
  if (something) kept = kept_lines(MappedFile(path, "metrics.jsonl").text(), steps_done);
  if (kept.steps < steps_done) {
    std::cerr << "note: " << path << " lacks " << steps_done - kept.steps << " of the steps up to "
              << steps_done << '\n';
  }
  if (something) replace_file(path, kept.lines);
  return kept.seconds;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t steps_done)
    : seconds_before_(drop_lines(path, steps_done)), file_(path) {}

void MetricsLog::add(const Json& fields) {
  Json line = {{"version", kMetricsVersion}};
  line.update(fields);
  file_.add(line.dump() + '\n');
}

}  // namespace stagegpt
