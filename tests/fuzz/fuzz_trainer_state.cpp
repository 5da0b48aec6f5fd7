#include "common/checkpoint/trainer_state.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto use = [](const TrainerState& state) {
    const std::string text = to_json_text(state);
    check(to_json_text(parse_trainer_state(text)) == text, "another state is read than was written");
  };
  return test::read_then_use([&] { return parse_trainer_state(test::text_of(data, size)); }, use);
}
