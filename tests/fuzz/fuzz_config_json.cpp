#include "common/base/json.h"
#include "common/checkpoint/hugging_face_config.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto use = [](const Gpt2Config& config) {
    const std::string text = config_json(config, std::nullopt);
    check(config_json(parse_config(parse_json(text)), std::nullopt) == text,
          "another model is read than was written");
  };
  return test::read_then_use([&] { return parse_config(parse_json(test::text_of(data, size))); }, use);
}
