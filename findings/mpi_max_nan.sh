#!/usr/bin/env bash
# Open MPI 4.1.4 and 5.0.7, MPICH 4.0.2 and 4.2.1: MPI_MAX compares floats by > alone, which is false for NaN. Whether a
# NaN of one rank comes through, and what becomes of the other ranks' numbers, depends on the rank and on the algorithm.
# Seen, MPI_Allreduce of one float of four ranks that hold 1, 2, 3, 4, one of them NaN instead. Open MPI: NaN for rank
# 0; 2 for rank 2, although a rank holds 4; 4 and 3 for ranks 1 and 3. MPICH gives the ranks different results: with NaN
# at rank 0 they get 4, 4, 4 and NaN. Ranks that decide by it whether to go on then decide differently. MPI_SUM gives
# all ranks NaN.
# Frugal: maxima are taken by code of ours (distributed/collectives.h), and are NaN on all ranks if one has NaN;
# tests/distributed/communicator_test.cpp, "all_reduce keeps NaN and infinity, whichever rank has them".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libopenmpi-dev=4.1.4*' openmpi-bin 'libmpich-dev=4.0.2*' mpich gcc libc6-dev
packages trixie 'openmpi-bin=5.0.7*' 'mpich=4.3.0+really4.2.1*'
cat >"$work/bookworm/tmp/largest.c" <<'END_OF_PROGRAM'
#include <math.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const MPI_Op ops[] = {MPI_MAX, MPI_SUM};
  for (int op = 0; op < 2; ++op)
    for (int bad = 0; bad < ranks; ++bad) {
      const float own = rank == bad ? NAN : (float)(rank + 1);
      float result, all[16];
      MPI_Allreduce(&own, &result, 1, MPI_FLOAT, ops[op], MPI_COMM_WORLD);
      MPI_Gather(&result, 1, MPI_FLOAT, all, 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
      if (rank != 0) continue;
      printf("%s, NaN at rank %d:", op == 0 ? "max" : "sum", bad);
      for (int i = 0; i < ranks; ++i) isnan(all[i]) ? printf(" NaN") : printf(" %g", all[i]);
      printf("\n");
    }
  MPI_Finalize();
  return 0;
}
END_OF_PROGRAM
# Programs that are made for the older versions run with the newer ones.
libraries=/usr/lib/x86_64-linux-gnu
for library in openmpi mpich; do
  names=(-lmpi "-Wl,-rpath,$libraries/openmpi/lib" "-L$libraries/openmpi/lib")
  [ "$library" = openmpi ] || names=(-lmpich)
  inside bookworm gcc "-I$libraries/$library/include" /tmp/largest.c -o "/tmp/$library" "${names[@]}" ||
    not_tried "the program does not compile"
  cp "$work/bookworm/tmp/$library" "$work/trixie/tmp/"
done
for suite in bookworm trixie; do
  for library in openmpi mpich; do
    started=(mpirun.openmpi --allow-run-as-root --oversubscribe)
    [ "$library" = openmpi ] || started=(mpirun.mpich)
    inside "$suite" UCX_LOG_LEVEL=fatal "${started[@]}" -np 4 "/tmp/$library" 2>/dev/null | tr -d '\r\0' |
      sed "s/^/$suite, $library: /" | tee "$work/out"
    case $library in
      openmpi) seen=('0: NaN NaN NaN NaN' '1: 4 4 4 4' '2: 2 2 2 2' '3: 3 3 3 3') ;;
      mpich) seen=('0: 4 4 4 NaN' '1: 4 4 NaN 4' '2: 4 NaN 4 2' '3: NaN 3 2 3') ;;
    esac
    for line in "${seen[@]}"; do
      expect "$suite, $library: max, rank $line" grep -qx "$suite, $library: max, NaN at rank $line" "$work/out"
    done
    expect "$suite, $library: sums are NaN for all" [ "$(grep -c 'sum, .*: NaN NaN NaN NaN$' "$work/out")" = 4 ]
  done
done
done_with_it
