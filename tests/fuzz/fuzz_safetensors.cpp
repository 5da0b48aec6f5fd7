#include <map>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = test::bytes_of(data, size);
  const auto use = [&](const std::map<std::string, SafetensorsView>& tensors) {
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : tensors) {
      bytes += tensor.bytes.size();
      std::size_t numel = 1;
      for (const std::int64_t extent : tensor.shape) {
        check(!__builtin_mul_overflow(numel, extent, &numel), name, ": the elements are too many to count");
      }
      if (!is_floating_point(tensor)) continue;
      const std::size_t element = tensor.dtype == "F32" ? 4 : 2;
      check(numel * element == tensor.bytes.size(), name, ": another number of elements");
      std::vector<float> values(numel);
      to_floats(tensor, 0, values);
    }
    check(bytes <= size, "more bytes than the file has");
  };
  return test::read_then_use([&] { return parse_safetensors(file); }, use);
}
