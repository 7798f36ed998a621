#!/usr/bin/env bash
# GNU OpenMP (GCC 12 and 14) binds the first thread to one core before main() where OMP_PROC_BIND, OMP_PLACES or
# GOMP_CPU_AFFINITY asks for bound threads. All threads that are not OpenMP's, and all programs that the process starts
# by exec, get that one core, too: a std::thread competes with the first thread, and a program that starts itself again
# computes with one thread from then on.
# Seen with two cores or more: without a binding a thread has all cores. With OMP_PROC_BIND=true or GOMP_CPU_AFFINITY it
# has 1 before any parallel region, the program that exec starts has omp_get_max_threads() == 1, and
# omp_get_num_procs() still says all.
# Frugal: core/cores.h (use_all_cores); tests/data/loader_test.cpp, "workers have all cores where OpenMP binds the first
# thread to one", and tests/apps/spin_test.cpp, "a restarted program has all cores where OpenMP binds its threads".
. "$(dirname "$0")/packages.sh"
cores=$(nproc)
[ "$cores" -ge 2 ] || not_tried "a machine with one core"
packages bookworm 'libgomp1=12.2*' gcc libc6-dev
packages trixie 'libgomp1=14.2*'
cat >"$work/bookworm/tmp/cores.c" <<'END_OF_PROGRAM'
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

static void* ask(void* count) {
  *(int*)count = cores();
  return NULL;
}

// Prints the cores of another thread, what OpenMP says of cores, and its threads; then again after exec.
int main(int count, char** words) {
  pthread_t thread;
  int other = -1;
  pthread_create(&thread, NULL, ask, &other);
  pthread_join(thread, NULL);
  printf("%s thread %d, procs %d, threads %d\n", count > 1 ? "again" : "first", other, omp_get_num_procs(),
         omp_get_max_threads());
  fflush(stdout);
  if (count == 1) execl(words[0], words[0], "again", (char*)NULL);
  return 0;
}
END_OF_PROGRAM
inside bookworm gcc -fopenmp -pthread /tmp/cores.c -o /tmp/cores || not_tried "the program does not compile"
cp "$work/bookworm/tmp/cores" "$work/trixie/tmp"
list=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status | tr ',' ' ')
for suite in bookworm trixie; do
  inside "$suite" /tmp/cores | sed "s/^/$suite, free: /" | tee "$work/free"
  inside "$suite" GOMP_CPU_AFFINITY="$list" /tmp/cores | sed "s/^/$suite, bound: /" | tee "$work/bound"
  expect "$suite: a thread has all cores, also after exec" \
    [ "$(grep -c "thread $cores, procs $cores, threads $cores$" "$work/free")" -eq 2 ]
  expect "$suite: where threads are bound it has one, and OpenMP says all" \
    grep -q "first thread 1, procs $cores, threads $cores$" "$work/bound"
  expect "$suite: after exec OpenMP has one thread" grep -q "again thread 1, .*threads 1$" "$work/bound"
done
done_with_it
