#!/usr/bin/env bash
# LLVM's OpenMP, libomp 14 and 19: a process that runs a parallel region keeps a file in /dev/shm, named after its
# number, and only a return from main() or exit() removes it. A process that ends by _exit() or by a signal leaves it
# for ever. With 14 so does every child of fork(), which gets a file of its own and ends by _exit(), as those of
# multiprocessing and of test programs do. Nothing else reads such a file, and it is memory.
# Seen: no file after a return, one after _exit(), one after SIGTERM; after a fork whose child calls _exit(), one with
# 14 and none with 19. A file has 1,024 bytes and takes a page. libgomp makes none.
# Frugal: its own builds take GCC's libgomp. Those for libFuzzer and ThreadSanitizer take libomp, and tools/campaign.sh
# removes the files of processes that are gone.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libomp5-14=1:14.0.6*' gcc libc6-dev
packages trixie 'libomp5-19=1:19.1.7*' libgomp1
cat >"$work/bookworm/tmp/ends.c" <<'END_OF_PROGRAM'
#include <signal.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int n = 0;
#pragma omp parallel
#pragma omp atomic
  ++n;
  if (strcmp(argv[1], "_exit") == 0) _exit(0);
  if (strcmp(argv[1], "signal") == 0) raise(SIGTERM);
  if (strcmp(argv[1], "fork") == 0 && fork() == 0) _exit(0);
  return argc == 2 && n > 0 ? 0 : 1;
}
END_OF_PROGRAM
inside bookworm gcc -O1 -fopenmp /tmp/ends.c -o /tmp/ends || not_tried "the program does not compile"
cp "$work/bookworm/tmp/ends" "$work/trixie/tmp/"
# How many files a process leaves that ends in this way. /dev is the system's own.
left_by() {
  local suite=$1 library=$2 way=$3
  ls /dev/shm >"$work/before"
  inside "$suite" LD_PRELOAD="$library" /tmp/ends "$way" >/dev/null 2>&1 || true
  sleep 0.2 # the child may end a little later
  comm -13 "$work/before" <(ls /dev/shm) | grep KMP_REGISTERED >"$work/new" || true
  wc -l <"$work/new"
  sed 's#^#/dev/shm/#' "$work/new" | xargs -r rm -f
}
for suite in bookworm trixie; do
  libomp=$(cd "$work/$suite" && ls usr/lib/llvm-*/lib/libomp.so.5) || not_tried "$suite has no libomp"
  inside "$suite" LD_PRELOAD="/$libomp" /tmp/ends return || not_tried "the program does not run in $suite"
  for way in return _exit signal fork; do
    files=$(left_by "$suite" "/$libomp" "$way")
    echo "$suite, $way: $files left"
    wanted=1
    case $suite-$way in *-return | trixie-fork) wanted=0 ;; esac
    expect "$suite: $wanted after $way" [ "$files" = "$wanted" ]
  done
done
for way in _exit fork; do expect "libgomp: none after $way" [ "$(left_by bookworm '' "$way")" = 0 ]; done
done_with_it
