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

#include "common/io/hashed_file.h"

namespace stagegpt {

// A tensor inside a file.
struct SafetensorsView {
  std::string dtype;  // "F32", "F16", "BF16", …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // not aligned
};

// The tensors of a whole file, by name. Nothing but the header is copied. Throws UserError for anything but
// tensors of known types whose bytes, as their shapes demand, cover the file without gap or overlap.
std::map<std::string, SafetensorsView> parse_safetensors(std::span<const std::byte> file);

// Whether the type is F32, F16 or BF16.
bool is_floating_point(const SafetensorsView& tensor);
// Elements [begin, begin + out.size()) of a tensor of such a type, as f32.
void to_floats(const SafetensorsView& tensor, std::int64_t begin, std::span<float> out);

// Writes f32 tensors, in the order in which they are announced.
class SafetensorsWriter {
 public:
  struct Announced {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  // Writes the header. Failures throw as OutputFile's do.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Announced>& tensors);

  // The elements of the next tensor.
  void append(std::span<const float> values);
  // Returns when the file is on the disk.
  FileEntry finish();

 private:
  HashedFile file_;
  std::uint64_t missing_bytes_ = 0;
};

}  // namespace stagegpt
