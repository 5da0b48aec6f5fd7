// Ctrl-C while a text is generated.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/system/stop_signals.h"

namespace stagegpt::test {
namespace {

TEST(TextInterruptDeathTest, a_second_signal_ends_the_program) {
  const auto interrupt_twice = [] {
    const TextInterrupt interrupt;
    if (TextInterrupt::requested()) std::exit(1);
    std::raise(SIGINT);
    if (!TextInterrupt::requested()) std::exit(2);
    std::raise(SIGINT);
    std::exit(3);
  };
  EXPECT_EXIT(interrupt_twice(), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace stagegpt::test
