// Parses and writes safetensors files, including invalid ones, for tests of readers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "tests/support/program.h"

namespace stagegpt::test {

struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;

  bool operator==(const RawTensor&) const = default;
};

using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors read_safetensors(const std::filesystem::path& path) {
  const std::string file = read_bytes(path);
  RawTensors tensors;
  for (const auto& [name, view] : parse_safetensors(std::as_bytes(std::span(file)))) {
    const std::string bytes(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
    tensors[name] = {view.dtype, view.shape, bytes};
  }
  return tensors;
}

inline void write_safetensors(const std::filesystem::path& path, const RawTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream(path, std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(&length), sizeof length) << text << data;
}

}  // namespace stagegpt::test
