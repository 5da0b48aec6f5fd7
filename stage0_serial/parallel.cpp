#include "stage0_serial/parallel.h"

#include <unistd.h>

#include <cstdlib>

namespace stagegpt {
namespace {

// Threads of GNU OpenMP that wait for each other spin for some 300,000 turns by default, about 10 ms: on a
// machine that is also doing something else they spin away the very time that the thread they wait for needs,
// and a step of `nano` takes seven times as long (docs/performance.md). A short spin costs nothing measurable
// on an idle machine. The library reads the setting before main, so the only way to choose it from inside is
// to start again.
[[gnu::constructor]] void wait_briefly(int, char** argv, char**) {
  if (getenv("GOMP_SPINCOUNT") != nullptr || getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "2000", 0);
  execv("/proc/self/exe", argv);  // where this fails, threads spin longer
}

}  // namespace

Parallel::Parallel(int threads) : threads_(threads) {}

}  // namespace stagegpt
