// A library for LD_PRELOAD: a program that has started itself again (see brief_waits.h) gets SIGTERM before
// its main function begins.
#include <csignal>
#include <cstdlib>

namespace {

[[gnu::constructor]] void signal_early() {
  if (getenv("GOMP_SPINCOUNT") != nullptr) raise(SIGTERM);
}

}  // namespace
