#include "common/checkpoint/llmc_files.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto use = [&](const LlmcModel& model) {
    const auto weights = std::as_bytes(model.weights);
    check(weights.data() + weights.size() == test::bytes_of(data, size).data() + size,
          "the weights are not the rest of the file");
  };
  return test::read_then_use([&] { return parse_llmc_model(test::bytes_of(data, size), "--model"); }, use);
}
