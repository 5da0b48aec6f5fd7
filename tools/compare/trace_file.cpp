#include "tools/compare/trace_file.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"

namespace stagegpt {

TraceFile::TraceFile(const std::filesystem::path& path) : path_(path), file_(path, "trace") {
  naming(path, [&] {
    for (const auto& [name, tensor] : parse_safetensors(file_.bytes())) add(name, tensor);
  });
}

void TraceFile::add(const std::string& numbered, const SafetensorsView& tensor) {
  constexpr std::size_t kDigits = 5;
  const bool is_numbered =
      numbered.size() > kDigits + 1 && numbered[kDigits] == ' ' &&
      std::all_of(numbered.begin(), numbered.begin() + kDigits, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_numbered) user_error("not a trace: unexpected tensor name '", numbered.substr(0, 80), "'");
  const std::string name = numbered.substr(kDigits + 1);
  if (tensor.dtype != "F32" || tensor.shape.empty()) {
    user_error("not a trace: '", name.substr(0, 80), "': expected F32 of 1 or more dimensions, got ",
               tensor.dtype, " of ", tensor.shape.size());
  }
  if (!tensors_.emplace(name, tensor).second) {
    user_error("not a trace: '", name.substr(0, 80), "' occurs twice");
  }
  names_.push_back(name);
}

std::vector<float> TraceFile::values(const std::string& name, std::int64_t rows) const {
  const SafetensorsView& tensor = tensors_.at(name);
  const std::int64_t row =
      std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<std::size_t>((rows < 0 ? tensor.shape[0] : rows) * row));
  to_floats(tensor, 0, values);
  return values;
}

}  // namespace stagegpt
