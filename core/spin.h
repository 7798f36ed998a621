// How long a thread that waits for work keeps its core busy.
#pragma once

namespace frugal {

// GNU OpenMP's threads spin for a long time before they sleep: by default 300,000 rounds, or
// without end with OMP_WAIT_POLICY=active. Where another process wants the core, the work itself
// then waits for the spinning threads. With so many rounds, threads still meet without a system
// call on a quiet machine, and leave the core soon on a busy one. Figures: docs/guide/embedding.md.
inline constexpr int kSpinCount = 4000;

// Restarts this program with GOMP_SPINCOUNT=kSpinCount, because the OpenMP runtime reads its
// environment before main() and never again. The process keeps its id. Does nothing where the
// environment has GOMP_SPINCOUNT or OMP_WAIT_POLICY, and where the program cannot be restarted.
// REQUIRES: the first statement of main(), with main's argv; what ran before runs twice.
void limit_spinning(char** argv);

}  // namespace frugal
