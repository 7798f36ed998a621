// The cores that threads of ours may use. Internal.
#pragma once
#include <sched.h>

namespace frugal {

// The cores that this process may use; empty: unknown. GNU OpenMP binds the first thread to one
// core before main() where OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY ask for that. Here all
// cores among which OpenMP places its threads count.
cpu_set_t usable_cores();

// Lets the calling thread use all these cores. A thread, or a program that execv() starts, has the
// cores of the thread that starts it: without this call, a thread that is not OpenMP's shares the
// one core of the first thread.
void use_all_cores();

}  // namespace frugal
