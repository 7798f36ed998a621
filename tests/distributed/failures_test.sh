#!/usr/bin/env bash
# A job of two ranks in which something fails must end, with a status other than 0 and with a message that says who and
# why. Runs each case of failures_test.cpp.
# usage: failures_test.sh MPIEXEC NUMPROC_FLAG TEST_DISTRIBUTED
set -euo pipefail
mpiexec=$1 flag=$2 program=$3

run() {  # CASE
  code=0
  out=$(timeout 120 "$mpiexec" "$flag" 2 "$program" -ns "-tc=failure: $1" 2>&1) || code=$?
  [ "$code" -ne 0 ] || { echo "$1: expected a failure, got exit status 0: $out"; exit 1; }
  [ "$code" -ne 124 ] || { echo "$1: the job hangs: $out"; exit 1; }
  [[ $out != *"the job goes on"* ]] || { echo "$1: a rank went on: $out"; exit 1; }
}
expect() {  # TEXT
  [[ $out == *"$1"* ]] || { echo "expected output with '$1', got: $out"; exit 1; }
}

run "one rank aborts"
expect "rank 1: the disk is full"
[ "$(grep -ac "the disk is full" <<<"$out")" -eq 1 ] || { echo "expected the message once, got: $out"; exit 1; }
run "one rank does not come"
expect "rank 0: [distributed] waited "  # a second, or more on a busy machine
expect " seconds in all_reduce of 1000 f32 (sum): the weights"
expect "nothing came from rank 1"
run "one rank is killed"
run "one rank fails"
expect "a damaged file"
run "ranks do different things"
expect "[distributed] expected all ranks to do the same, got "
expect "all_reduce of 1000 f32 (sum): the gradients"
expect "broadcast of 1000 f32 from rank 0: the buffers"
run "ranks cut a tensor into different shares"
expect "the ranks cut a tensor into different shares"
run "a rank sends what another one does not expect"
expect "all_to_all, 300 bytes from rank 0 to 1 and 0 back: the codes"
expect "all_to_all, 0 bytes from rank 0 to 1 and 0 back: the codes"
run "gradients come in another order"
expect "all_reduce of 100 f32 (sum): gradient of parameter 0, first"
expect "all_reduce of 100 f32 (sum): gradient of parameter 1, second"
run "a rank has fewer gradients"
expect "all_reduce of 100 f32 (sum): gradient of parameter 1, second"
expect "the end of a backward pass with 1 leaves"

# Ranks that agree to end may end with any status, and none cuts another one short.
code=0
out=$(timeout 120 "$mpiexec" "$flag" 2 "$program" -ns "-tc=end: all ranks agree" 2>&1) || code=$?
[ "$code" -eq 3 ] || { echo "expected exit status 3, got $code: $out"; exit 1; }
expect "the last words of rank 0"

# A starter of another MPI: the process finds nobody.
code=0
out=$(env PMI_SIZE=2 timeout 120 "$program" -tc="a barrier*" 2>&1) || code=$?
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] || { echo "expected a failure, got exit status $code: $out"; exit 1; }
expect "expected 2 ranks, as PMI_SIZE of the environment says, but "
expect " reached no other process"
echo "all failures end the job"
