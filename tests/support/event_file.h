// Reads TensorBoard's event files by the definition of the format: framing, checksums, protobuf fields.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt::test {

// CRC-32C bit by bit: the polynomial 0x1EDC6F41, reflected (RFC 3720, appendix B.4).
inline std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

template <class T>
T take_number(std::string_view& bytes) {
  T number{};
  if (bytes.size() < sizeof number) throw std::runtime_error("a record is cut off");
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

// The bytes of each record; the test fails if a checksum is wrong or bytes remain.
inline std::vector<std::string> records_of(std::string_view file) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
  };
  std::vector<std::string> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = take_number<std::uint64_t>(file);
    EXPECT_EQ(take_number<std::uint32_t>(file), masked(length_bytes));
    if (length > file.size()) throw std::runtime_error("a record is longer than the file");
    records.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(take_number<std::uint32_t>(file), masked(records.back()));
  }
  return records;
}

// A protobuf message: numbers (varint or fixed) and bytes by field.
struct WireMessage {
  explicit WireMessage(std::string_view rest) {
    while (!rest.empty()) {
      const std::uint64_t key = varint(rest);
      const int field = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0:
          numbers[field] = varint(rest);
          break;
        case 1:
          numbers[field] = take_number<std::uint64_t>(rest);
          break;
        case 5:
          numbers[field] = take_number<std::uint32_t>(rest);
          break;
        case 2: {
          const std::uint64_t length = varint(rest);
          if (length > rest.size()) throw std::runtime_error("a field is longer than its message");
          bytes[field].emplace_back(rest.substr(0, length));
          rest.remove_prefix(length);
          break;
        }
        default:
          throw std::runtime_error("an unknown wire type");
      }
    }
  }
  static std::uint64_t varint(std::string_view& rest) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = take_number<std::uint8_t>(rest);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  std::map<int, std::uint64_t> numbers;
  std::map<int, std::vector<std::string>> bytes;
};

struct EventRecord {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool restart = false;  // a SessionLog with the status START
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

inline EventRecord parse_event(std::string_view record) {
  WireMessage event(record);
  EventRecord out;
  out.wall_time = std::bit_cast<double>(event.numbers.at(1));
  out.step = static_cast<std::int64_t>(event.numbers[2]);
  if (event.bytes.contains(3)) out.version = event.bytes[3][0];
  if (event.bytes.contains(7)) out.restart = WireMessage(event.bytes[7][0]).numbers.at(1) == 1;
  if (!event.bytes.contains(5)) return out;
  const WireMessage summary(event.bytes[5][0]);
  for (const std::string& bytes : summary.bytes.at(1)) {
    WireMessage value(bytes);
    const std::string tag = value.bytes.at(1)[0];
    if (value.numbers.contains(2)) {
      out.scalars[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(value.numbers[2]));
    } else {
      WireMessage tensor(value.bytes.at(8)[0]), metadata(value.bytes.at(9)[0]);
      EXPECT_EQ(tensor.numbers.at(1), 7u);  // DT_STRING
      EXPECT_EQ(WireMessage(metadata.bytes.at(1)[0]).bytes.at(1)[0], "text");
      out.texts[tag] = tensor.bytes.at(8)[0];
    }
  }
  return out;
}

inline std::vector<EventRecord> events_of(std::string_view file) {
  std::vector<EventRecord> events;
  for (const std::string& record : records_of(file)) events.push_back(parse_event(record));
  return events;
}

}  // namespace stagegpt::test
