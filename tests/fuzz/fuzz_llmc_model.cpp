#include "common/checkpoint/llmc_files.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto use = [](const ModelFile& model) {
    for (const ParameterTable table = gpt2_parameter_table(model.config); const auto& row : table.rows()) {
      std::vector<float> values(static_cast<std::size_t>(row.shape.numel()));
      model.values(row.number, 0, values);
    }
  };
  return test::read_then_use([&] { return parse_llmc_model(test::bytes_of(data, size), "--model"); }, use);
}
