#!/usr/bin/env bash
# METIS 5.1.0: a partition changes two things of the whole program. It seeds the C library's rand(), by default with one
# number, so whatever the program draws afterwards is the same after each partition, whatever it was seeded with. And
# while a partition runs, METIS handles SIGTERM and SIGABRT itself: it takes a SIGTERM that somebody sends as its own
# way to report an error, returns an error, and the program goes on. metis.h mentions neither.
# Seen, METIS_PartGraphRecursive() and METIS_PartGraphKway() of a ring into 4 parts: after srand(1), srand(2) and
# srand(3) the next three numbers of rand() differ; with a partition between they are equal. While a partition runs,
# sigaction() of another thread says that the handler of SIGTERM is not the program's, and afterwards it is again.
# Frugal: data/graph/graph_partition.cpp gives METIS another state of rand() and puts the handlers back;
# tests/data/graph/graph_batches_test.cpp, "a partition leaves the C library's random numbers alone" and "a partition is
# found while somebody sends SIGTERM, which is handled afterwards".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libmetis-dev=5.1.0*' gcc libc6-dev
cat >"$work/bookworm/tmp/process.c" <<'END_OF_PROGRAM'
#include <metis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSmall = 400, kLarge = 400000 };

/* A ring of n nodes into 4 parts. */
static void partition(int n, int kway) {
  idx_t *ends = malloc((n + 1) * sizeof(idx_t)), *next = malloc(2 * n * sizeof(idx_t));
  idx_t *part = malloc(n * sizeof(idx_t)), nodes = n, one = 1, parts = 4, cut;
  for (int i = 0; i <= n; ++i) ends[i] = 2 * i;
  for (int i = 0; i < n; ++i) next[2 * i] = (i + 1) % n, next[2 * i + 1] = (i + n - 1) % n;
  if ((kway ? METIS_PartGraphKway : METIS_PartGraphRecursive)(&nodes, &one, ends, next, NULL, NULL, NULL, &parts, NULL,
                                                              NULL, NULL, &cut, part) != METIS_OK)
    puts("no partition");
  free(ends), free(next), free(part);
}

static void ours(int number) { (void)number; }
static volatile int done;
static void* run(void* unused) {
  (void)unused;
  for (int i = 0; i < 3; ++i) partition(kLarge, 0);
  done = 1;
  return NULL;
}
static int is_ours(void) {
  struct sigaction now;
  sigaction(SIGTERM, NULL, &now);
  return now.sa_handler == ours;
}

int main(void) {
  for (int way = 0; way < 3; ++way)
    for (int seed = 1; seed <= 3; ++seed) {
      srand(seed);
      if (way > 0) partition(kSmall, way - 1);
      const int a = rand(), b = rand(), c = rand();
      printf("%s: %d %d %d\n", way == 0 ? "alone" : way == 1 ? "recursive" : "kway", a, b, c);
    }
  signal(SIGTERM, ours);
  pthread_t thread;
  long other = 0;
  pthread_create(&thread, NULL, run, NULL);
  while (!done) other += !is_ours();
  pthread_join(thread, NULL);
  printf("SIGTERM meanwhile: %s, afterwards: %s\n", other > 0 ? "another handler" : "ours",
         is_ours() ? "ours" : "another handler");
}
END_OF_PROGRAM
inside bookworm gcc -pthread -o /tmp/process /tmp/process.c -lmetis
inside bookworm /tmp/process | tee "$work/out"
for way in alone:3 recursive:1 kway:1; do
  expect "${way%:*}: numbers after three seeds are ${way#*:} different" \
    [ "$(grep "^${way%:*}: " "$work/out" | sort -u | wc -l)" = "${way#*:}" ]
done
expect "METIS handles SIGTERM while it runs" \
  grep -qxF 'SIGTERM meanwhile: another handler, afterwards: ours' "$work/out"
done_with_it
