#include "common/app/command_line.h"
#include "common/app/train_flags.h"
#include "common/base/json.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static TrainFlags flags;
  static CommandLine& command_line = *[] {
    auto* made =
        new CommandLine("stage0_train", "train", 0);  // made once, because it is slow; it refers to `flags`
    flags.add(*made);
    return made;
  }();
  const auto read = [&] {
    command_line.apply(parse_json(test::text_of(data, size)));
    return command_line.settings();
  };
  const auto use = [](const Json& settings) {
    command_line.apply(parse_json(settings.dump()));
    check(command_line.settings() == settings, "other settings are read than were printed");
  };
  return test::read_then_use(read, use);
}
