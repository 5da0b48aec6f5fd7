// A run's curves and samples for TensorBoard: `tensorboard --logdir RUN`.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "common/io/append_file.h"
#include "common/logging/tensorboard_records.h"

namespace stagegpt {

// One event file, made when there is something to write, with the next number of a run's. What cannot be
// written is reported, once: nothing that a run needs is in it.
class TensorBoardLog {
 public:
  // Of the run in `directory` that has done `steps_done` steps: readers drop what older files have of later
  // ones.
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
