#include "common/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "common/json.h"

namespace stagegpt {
namespace {

constexpr int kVersion = 1;

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

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t steps_done) : path_(path) {
  Kept kept;
  std::error_code ignored;
  const bool something = file_exists(path) && std::filesystem::file_size(path, ignored) > 0;
  if (something) kept = kept_lines(MappedFile(path, "metrics.jsonl").text(), steps_done);
  if (kept.steps < steps_done) {
    std::cerr << "note: " << path << " lacks " << steps_done - kept.steps << " of the steps up to "
              << steps_done << '\n';
  }
  if (something) replace_file(path, kept.lines);
  constexpr int kMode = 0666;
  file_ = FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode));
  if (!file_.is_open()) fail_to_write(path_);
}

void MetricsLog::add(const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line = {{"version", kVersion}};
  line.update(fields);
  unwritten_ += line.dump() + '\n';
  flush();
}

void MetricsLog::sync() {
  if (!flush() || fsync(file_.get()) != 0) fail_to_write(path_);
}

bool MetricsLog::flush() {
  while (!unwritten_.empty()) {
    const ssize_t written = write(file_.get(), unwritten_.data(), unwritten_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    unwritten_.erase(0, static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace stagegpt
