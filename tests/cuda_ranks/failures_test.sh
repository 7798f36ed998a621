#!/usr/bin/env bash
# A job of two ranks in which an operation on CUDA tensors fails must end, with a status other than 0 and with a message
# that says why. Runs each case of failures_test.cpp. Then: ranks that cannot use NCCL say why, and go on.
# usage: failures_test.sh MPIEXEC NUMPROC_FLAG TEST_CUDA_RANKS
set -euo pipefail
mpiexec=$1 flag=$2 program=$3

run() {  # CASE [FAULT of NCCL's stand-in]
  code=0
  out=$(FRUGAL_EMULATOR_NCCL=${2:-} timeout 120 "$mpiexec" "$flag" 2 "$program" -ns "-tc=failure: $1" 2>&1) || code=$?
  [ "$code" -ne 0 ] || { echo "$1: expected a failure, got exit status 0: $out"; exit 1; }
  [ "$code" -ne 124 ] || { echo "$1: the job hangs: $out"; exit 1; }
  [[ $out != *"the job goes on"* ]] || { echo "$1: a rank went on: $out"; exit 1; }
}
expect() {  # TEXT
  [[ $out == *"$1"* ]] || { echo "expected output with '$1', got: $out"; exit 1; }
}

run "a rank does not come"
expect "rank 0: [distributed] waited "  # a second, or more on a busy machine
expect " seconds in all_gather of 2 u8: all_reduce of 1000 f32 (sum): the weights"
expect "nothing came from rank 1"
run "an operation never ends" hang
expect "[distributed] waited "  # a second, or more on a busy machine
expect " seconds in all_reduce of 1000 f32 (sum): the third (operation 2 of NCCL): it runs on this GPU"
run "an operation never ends" error
expect "rank 1: [nccl] ncclCommGetAsyncError: remote process exited"
expect "in all_reduce of 1000 f32 (sum): the third (operation 2 of NCCL)"
run "ranks do different things"
expect "[distributed] expected all ranks to do the same, got "
expect "all_reduce of 1000 f32 (sum): the gradients"
expect "broadcast of 1000 f32 from rank 0: the buffers"
run "channels in different orders"
expect "[distributed] expected all ranks to do the same, got "
expect "channel 1, all_reduce of 1000 f32 (sum): a number"
run "a rank sends what another one does not expect"
expect "[distributed] expected all ranks to do the same, got all_to_all of u8: the codes: rank 0 sends 300 elements to rank 1, which expects 0"
run "a rank fails"
expect "a damaged file"

goes_on() {  # NAME=VALUE...
  out=$(env FRUGAL_TEST_NCCL=0 "$@" timeout 120 "$mpiexec" "$flag" 2 "$program" -ns "-tc=NCCL serves*" 2>&1) ||
    { echo "$*: expected that the ranks go on, got: $out"; exit 1; }
  expect "warning: [nccl] ranks exchange CUDA tensors through the memory of the host: "
}
goes_on FRUGAL_NCCL=off
expect "on rank 0 the environment has FRUGAL_NCCL=off"
goes_on FRUGAL_EMULATOR_NCCL=old
expect "on rank 0 expected NCCL 2.10.0 or newer, got NCCL 2.8.4"
goes_on LD_LIBRARY_PATH=
expect "on rank 0 [library] expected the library libfrugal_emulated_nccl.so, got none"
goes_on FRUGAL_EMULATOR_DEVICES=1
expect "ranks 0 and 1 share the GPU 0000:01:00.0, and NCCL wants one for each"
echo "all failures end the job"
