#include "common/logging/metrics_log.h"

#include <iostream>

#include "common/base/json.h"

namespace stagegpt {
namespace {

constexpr int kMetricsVersion = 3;

// The step of a line; 0 for anything else.
std::int64_t step_of(std::string_view line) {
  try {
    const nlohmann::json json = parse_json(line);
    return json.is_object() ? json.value("step", std::int64_t{0}) : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

struct Kept {
  std::string lines;
  std::int64_t steps = 0;
};

// The lines of steps up to `steps_done`, each once and in order.
Kept kept_lines(std::string_view text, std::int64_t steps_done) {
  Kept kept;
  std::int64_t last = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    const std::int64_t step = step_of(text.substr(0, end));
    if (step > last && step <= steps_done) {
      kept.lines += text.substr(0, end + 1);
      ++kept.steps;
      last = step;
    }
    text.remove_prefix(end + 1);
  }
  return kept;
}

// Rewrites a file with only the lines that are kept. Returns its path.
const std::filesystem::path& drop_lines(const std::filesystem::path& path, std::int64_t steps_done) {
  Kept kept;
  std::error_code ignored;
  const bool something = file_exists(path) && std::filesystem::file_size(path, ignored) > 0;
  if (something) kept = kept_lines(MappedFile(path, "metrics.jsonl").text(), steps_done);
  if (kept.steps < steps_done) {
    std::cerr << "note: " << path << " lacks " << steps_done - kept.steps << " of the steps up to "
              << steps_done << '\n';
  }
  if (something) replace_file(path, kept.lines);
  return path;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t steps_done)
    : path_(path), file_(drop_lines(path, steps_done)) {}

void MetricsLog::add(const Json& fields) {
  Json line = {{"version", kMetricsVersion}};
  line.update(fields);
  file_.add(line.dump() + '\n');
}

void MetricsLog::add_to_last(const Json& fields) {
  constexpr std::string_view kEnd = "}\n";
  sync();
  std::string lines(MappedFile(path_, "metrics.jsonl").text());
  if (!lines.ends_with(kEnd)) throw std::runtime_error(concat(path_, " does not end with an object"));
  lines.resize(lines.size() - kEnd.size());
  replace_file(path_, lines + ',' + fields.dump().substr(1) + '\n');
  file_ = AppendFile(path_);
}

bool last_line_lacks(const std::filesystem::path& path, std::int64_t step, const char* field) {
  std::error_code ignored;
  if (!file_exists(path) || std::filesystem::file_size(path, ignored) == 0) return false;
  const MappedFile file(path, "metrics.jsonl");
  std::string_view line = file.text();
  if (line.ends_with('\n')) line.remove_suffix(1);
  line = line.substr(line.rfind('\n') + 1);
  if (step_of(line) != step) return false;
  const nlohmann::json json = parse_json(line);
  return json.value("version", 0) == kMetricsVersion && !json.contains(field);
}

}  // namespace stagegpt
