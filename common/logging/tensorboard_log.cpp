#include "common/logging/tensorboard_log.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/checkpoint/run_directory.h"

namespace stagegpt {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The next number in the name: TensorBoard reads files in the order of their names.
std::filesystem::path next_event_file(const std::filesystem::path& directory) {
  int last = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    int number = 0;
    if (!name.starts_with(kEventFile)) continue;
    std::from_chars(name.data() + kEventFile.size(), name.data() + name.size(), number);
    last = std::max(last, number);
  }
  char digits[16];
  std::snprintf(digits, sizeof digits, "%06d", last + 1);
  return directory / concat(kEventFile, digits);
}

}  // namespace

TensorBoardLog::TensorBoardLog(std::filesystem::path directory, std::int64_t steps_done,
                               std::function<void(const std::string&)> report)
    : directory_(std::move(directory)), steps_done_(steps_done), report_(std::move(report)) {}

void TensorBoardLog::add(std::int64_t step, std::span<const Scalar> scalars) {
  append(scalars_record(wall_time(), step, scalars));
}

void TensorBoardLog::add_text(std::int64_t step, std::string_view tag, std::string_view text) {
  append(text_record(wall_time(), step, tag, text));
}

void TensorBoardLog::append(std::string_view record) {
  try {
    std::string bytes;
    if (!file_) {
      path_ = next_event_file(directory_);
      file_.emplace(path_);
      bytes = version_record(wall_time()) + restart_record(wall_time(), steps_done_ + 1);
    }
    bytes += record;
    if (!file_->add(bytes)) warn(concat("cannot write ", path_, ": ", std::strerror(errno)));
  } catch (const std::runtime_error& error) {
    warn(error.what());
  }
}

void TensorBoardLog::warn(const std::string& why) {
  if (!std::exchange(warned_, true))
    report_(concat("warning: ", why, "; TensorBoard will not show later steps"));
}

}  // namespace stagegpt
