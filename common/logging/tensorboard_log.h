// Writes a run's curves and samples for TensorBoard: `tensorboard --logdir RUN`.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "common/io/append_file.h"
#include "common/logging/tensorboard_records.h"

namespace stagegpt {

// Writes one event file with the next free number in the run's directory. It is created when there is
// something to write. An error is reported once and does not end the run, because a run does not need this
// file.
class TensorBoardLog {
 public:
  // For the run in `directory` that has done `steps_done` steps. TensorBoard drops later steps of older
  // files. `report` prints a warning.
  TensorBoardLog(std::filesystem::path directory, std::int64_t steps_done,
                 std::function<void(const std::string&)> report);

  void add(std::int64_t step, std::span<const Scalar> scalars);
  void add_text(std::int64_t step, std::string_view tag, std::string_view text);

 private:
  void append(std::string_view record);
  void warn(const std::string& why);

  std::filesystem::path directory_, path_;
  std::int64_t steps_done_;
  std::optional<AppendFile> file_;
  std::function<void(const std::string&)> report_;
  bool warned_ = false;
};

}  // namespace stagegpt
