// The environment of OpenMP. It is read before main, so the program is restarted with another one.
#pragma once

#include <optional>

namespace stagegpt {

// Makes threads that wait for each other spin briefly and then sleep: sets GOMP_SPINCOUNT and, as the library
// has already read it, executes the program again with the same arguments. Returns in the new process, and in
// any process that has GOMP_SPINCOUNT or OMP_WAIT_POLICY set from the beginning, or a variable that binds
// threads to cores (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY); set one of them to debug or trace a single
// process. Call it first thing in main, after StopSignals are there: signals that arrive during the restart
// are kept for the new process.
//
// By default threads of GNU OpenMP spin for some 300,000 turns, about 10 ms. On a machine that runs other
// programs too they take the time that the thread they wait for needs, and a step of `nano` takes seven times
// as long. On an idle machine short spins cost some 4 % (bench/notes/cpu.md).
void restart_with_short_spins();

// OMP_NUM_THREADS, or the first number of its list; nothing if it is not set, or not from 1 to 1024.
std::optional<int> threads_of_environment();

}  // namespace stagegpt
