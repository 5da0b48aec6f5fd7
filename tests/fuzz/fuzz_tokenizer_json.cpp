#include "common/base/json.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_use.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return test::read_then_use([&] { return parse_tokenizer_json(parse_json(test::text_of(data, size))); },
                             [](const auto& tokenizer) { test::use_tokenizer(*tokenizer); });
}
