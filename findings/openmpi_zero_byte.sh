#!/usr/bin/env bash
# Open MPI 5.0.7 ends its message about too few slots with a zero byte; 4.1.4 does not.
# Seen: `mpirun -np 99 true` where there are fewer slots: 1 byte of 0 on standard error (4.1.4: none). A program that
# quotes the message as a C string loses what it says behind it.
# Frugal: apps/cli/child_process.cpp takes zero bytes out of what mpirun says.
. "$(dirname "$0")/packages.sh"
packages bookworm 'openmpi-bin=4.1.4*'
packages trixie 'openmpi-bin=5.0.7*'

zeros() {  # SUITE: prints how many there are
  inside "$1" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --host localhost:1 -np 99 true >"$work/out" 2>&1 || true
  grep -qa "not enough slots" "$work/out" || not_tried "mpirun says otherwise: $(tr -d '\0' <"$work/out" | head -n 5)"
  tr -cd '\0' <"$work/out" | wc -c
}
old=$(zeros bookworm)
new=$(zeros trixie)
echo "zero bytes in the message: $old of 4.1.4, $new of 5.0.7"
expect "4.1.4 prints text" [ "$old" -eq 0 ]
expect "5.0.7 prints a zero byte, too" [ "$new" -gt 0 ]
done_with_it
