// Writes a run's curves and samples for TensorBoard: `tensorboard --logdir RUN`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/io/output_file.h"

namespace stagegpt {

// Encodes TensorBoard's files: TFRecord records, each a tensorflow.Event in protobuf's wire format
// (https://protobuf.dev/programming-guides/encoding). Only the fields that are needed are implemented, of the
// messages
//   Event, SessionLog    tensorflow/core/util/event.proto
//   Summary              tensorflow/core/framework/summary.proto
//   TensorProto          tensorflow/core/framework/tensor.proto
// all in https://github.com/tensorflow/tensorflow.

struct Scalar {
  std::string tag;  // "train/loss": TensorBoard groups curves by the first part
  double value = 0;
};

// Each function returns one record. Times are in seconds since 1970; steps count from 1.

// The first record of a file.
std::string version_record(double wall_time);
// Makes TensorBoard drop the data of `step` and later steps of earlier files: the run was resumed there.
std::string restart_record(double wall_time, std::int64_t step);
std::string scalars_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
// A text, shown verbatim; bytes that are not UTF-8 become U+FFFD.
std::string text_record(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);

// A TFRecord: the length, its checksum, the bytes, their checksum.
std::string tfrecord(std::string_view bytes);
// CRC-32C, rotated and offset by a constant: a plain CRC is weak for data that contains CRCs.
std::uint32_t masked_crc32c(std::string_view bytes);

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
