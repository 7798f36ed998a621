// How long a thread that waits for work keeps its core busy.
#pragma once

namespace frugal {

// GNU OpenMP's threads spin before they sleep: 300,000 rounds by default, or without end with
// OMP_WAIT_POLICY=active. Where another process wants the core, the work itself then waits for the
// spinning threads. With kSpinCount rounds a quiet machine is as fast as with the default, and a
// waiting thread leaves its core 15 times as soon. Figures: docs/guide/embedding.md.
inline constexpr int kSpinCount = 20000;

// The part of a core that each thread of this process gets now: 1 if no other process wants the
// cores, about 0.5 if each core has another busy thread. Keeps all cores busy for 16 milliseconds
// and returns the share of the thread that got the least.
double share_of_cores();

// Restarts this program with another GOMP_SPINCOUNT, because the OpenMP runtime reads its
// environment before main() and never again. The value is 0 (a waiting thread sleeps) if other
// processes use the cores now, else kSpinCount. The process keeps its id. Does nothing if the
// environment has GOMP_SPINCOUNT or OMP_WAIT_POLICY, or if the program cannot be restarted. Takes
// 16 milliseconds on a quiet machine and twice as long on a busy one.
// REQUIRES: this is the first statement of main(), with main's argv. Code that ran before, such as
// static constructors, runs twice.
void limit_spinning(char** argv);

}  // namespace frugal
