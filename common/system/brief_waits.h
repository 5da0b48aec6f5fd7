// How OpenMP's threads wait for each other.
#pragma once

namespace stagegpt {

// Makes threads that wait spin briefly and then sleep. GNU OpenMP's spin for some 300,000 turns by default,
// about 10 ms: on a machine that is also doing something else they spin away the very time that the thread
// they wait for needs, and a step of `nano` takes seven times as long; on an idle one a short spin costs some
// 4 % (docs/performance.md). The library reads its setting, GOMP_SPINCOUNT, before main, so the process sets
// it and starts itself again; stop signals that come meanwhile are kept for the new process. Call it first
// thing in main, behind StopSignals. Does nothing when GOMP_SPINCOUNT or OMP_WAIT_POLICY is set: set one of
// them to debug or trace a single process.
void wait_briefly();

}  // namespace stagegpt
