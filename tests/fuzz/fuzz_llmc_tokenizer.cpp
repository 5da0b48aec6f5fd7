#include "common/data/tokenizers/llmc_tokenizer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_use.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return test::read_then_use([&] { return parse_llmc_tokenizer(test::bytes_of(data, size)); },
                             [](const auto& tokenizer) { test::use_tokenizer(*tokenizer); });
}
