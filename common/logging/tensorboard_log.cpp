#include "common/logging/tensorboard_log.h"

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/utf8.h"

namespace stagegpt {
namespace {

// The bytes of a number in little-endian order.
template <class T>
std::string little_endian(T number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

// Builds a protobuf message. Fields are given by their numbers in the .proto files.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    append_varint(value);
    return *this;
  }
  Message& real64(int field, double value) {
    key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real32(int field, float value) {
    key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  // A text, bytes, or another message.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    append_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  const std::string& encoded() const { return bytes_; }

 private:
  void key(int field, int wire_type) { append_varint(static_cast<std::uint64_t>(field << 3 | wire_type)); }
  void append_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
Message event(double wall_time, std::int64_t step) {
  return Message().real64(1, wall_time).varint(2, static_cast<std::uint64_t>(step));
}

// Markdown that shows a text verbatim: a code block, indented by four spaces.
std::string as_markdown(std::string_view text) {
  std::string out = "    ";
  each_character(text, [&](std::string_view character) {
    out += character;
    if (character == "\n") out += "    ";
  });
  return out;
}

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

std::string version_record(double wall_time) {
  return tfrecord(event(wall_time, 0).bytes(3, "brain.Event:2").encoded());
}

std::string restart_record(double wall_time, std::int64_t step) {
  constexpr int kStart = 1;
  const Message session_log = Message().varint(1, kStart);  // status
  return tfrecord(event(wall_time, step).message(7, session_log).encoded());
}

std::string scalars_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {  // Summary.Value: tag 1, simple_value 2
    summary.message(1, Message().bytes(1, scalar.tag).real32(2, static_cast<float>(scalar.value)));
  }
  return tfrecord(event(wall_time, step).message(5, summary).encoded());
}

std::string text_record(double wall_time, std::int64_t step, std::string_view tag, std::string_view text) {
  constexpr int kString = 7, kTensorData = 2;  // DataType, DataClass
  // TensorProto: dtype 1, tensor_shape 2 (a scalar has no dimensions), string_val 8.
  const Message tensor = Message().varint(1, kString).message(2, Message()).bytes(8, as_markdown(text));
  // SummaryMetadata: plugin_data 1 (plugin_name 1), data_class 4.
  const Message metadata = Message().message(1, Message().bytes(1, "text")).varint(4, kTensorData);
  // Summary.Value: tag 1, tensor 8, metadata 9.
  const Message value = Message().bytes(1, tag).message(8, tensor).message(9, metadata);
  return tfrecord(event(wall_time, step).message(5, Message().message(1, value)).encoded());
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  std::string record = length + little_endian(masked_crc32c(length));
  record += bytes;
  return record + little_endian(masked_crc32c(bytes));
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  // Castagnoli's polynomial, reflected.
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xa282ead8u;
}

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
