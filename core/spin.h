// How long a thread that waits for work keeps its core busy.
#pragma once

namespace frugal {

// GNU OpenMP's threads spin for a long time before they sleep: by default 300,000 rounds, or
// without end with OMP_WAIT_POLICY=active. Where another process wants the core, the work itself
// then waits for the spinning threads. With so many rounds, a quiet machine is as fast as with the
// default, and a thread leaves its core 15 times as soon. Figures: docs/guide/embedding.md.
inline constexpr int kSpinCount = 20000;

// The part of a core that each thread of this process gets now: 1 where no other process wants the
// cores, about 0.5 where each core has another busy thread. Keeps all cores busy for 16
// milliseconds and returns the share of the thread that got least.
double share_of_cores();

// Restarts this program with a GOMP_SPINCOUNT of its own, because the OpenMP runtime reads its
// environment before main() and never again: 0 (a waiting thread sleeps) where other processes use
// the cores now, else kSpinCount. The process keeps its id. Does nothing where the environment has
// GOMP_SPINCOUNT or OMP_WAIT_POLICY, and where the program cannot be restarted. Takes 16
// milliseconds on a quiet machine and twice as long on a busy one.
// REQUIRES: the first statement of main(), with main's argv; what ran before runs twice.
void limit_spinning(char** argv);

}  // namespace frugal
