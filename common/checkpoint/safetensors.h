// Hugging Face's safetensors: eight bytes with the length of a JSON header (little-endian), the header, then
// tensors without gaps, row-major. Layout: docs/file_formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/io/content_hash.h"

namespace stagegpt {

// A view of a tensor in a file.
struct SafetensorsView {
  std::string dtype;  // "F32", "F16", "BF16", …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // may be unaligned
};

// The tensors of a file, by name. Only the header is copied. Throws UserError unless all tensors have known
// types, have as many bytes as their shapes require, and cover the file without gaps or overlaps.
std::map<std::string, SafetensorsView> parse_safetensors(std::span<const std::byte> file);

// Whether the type is F32, F16 or BF16.
bool is_floating_point(const SafetensorsView& tensor);
// Converts elements [begin, begin + out.size()) of a tensor of such a type to f32.
void to_floats(const SafetensorsView& tensor, std::int64_t begin, std::span<float> out);

// Writes f32 tensors in the order given to the constructor.
class SafetensorsWriter {
 public:
  struct TensorInfo {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  // Writes the header. Errors are those of OutputFile.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors);

  // Appends elements of the current tensor. The next tensor begins when it is complete.
  void append(std::span<const float> values);
  // Returns when the file is on the disk.
  FileEntry finish();

 private:
  HashedFile file_;
  std::uint64_t missing_bytes_ = 0;
};

}  // namespace stagegpt
