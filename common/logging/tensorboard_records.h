// What TensorBoard reads, in bytes: records of TFRecord, each a tensorflow.Event in protobuf's wire format
// (https://protobuf.dev/programming-guides/encoding). The messages, of which only what is written here
// exists:
//   Event, SessionLog    tensorflow/core/util/event.proto
//   Summary              tensorflow/core/framework/summary.proto
//   TensorProto          tensorflow/core/framework/tensor.proto
// all in https://github.com/tensorflow/tensorflow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stagegpt {

struct Scalar {
  std::string tag;  // "train/loss": curves with the same first part stand together
  double value = 0;
};

// Each function returns one record. Times are in seconds since 1970; steps count from 1.

// The first record of a file.
std::string version_record(double wall_time);
// Has a reader drop all that it knows of `step` and later ones: a run goes on from there.
std::string restart_record(double wall_time, std::int64_t step);
std::string scalars_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
// A text, shown as it is; bytes that are no UTF-8 become U+FFFD.
std::string text_record(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);

// Length, its checksum, the bytes, their checksum.
std::string tfrecord(std::string_view bytes);
// CRC-32C, rotated and shifted: of bytes that hold checksums themselves, plain ones tell little.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace stagegpt
