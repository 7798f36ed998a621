#!/usr/bin/env bash
# Open MPI 4.1.4 and 5.0.7: MPI_Allreduce adds the ranks' terms in another order for each part of a long array, and in
# another one for short arrays. So equal terms have other sums by their place and by the length of the message: how
# gradients are gathered to messages decides their last digits. All ranks get the same bits.
# Seen, 3 ranks that hold 1, 2^24 and -2^24 in all elements of f32, whose sum is 0 or 1 by the order: of 1 and of 1,000
# elements all are 0. Of 5,000 and 20,000 the first third are 0 and the others 1; of 300,000 all are 0. MPI_Reduce gives
# 1. With 4 ranks, the fourth of which holds 1, MPI_Reduce gives 0 for 1,000 elements, 2 for 5,000 and 1 for 20,000.
# Frugal: each element is added in the order of the ranks, whatever the message (distributed/collectives.h);
# tests/distributed/communicator_test.cpp, "all_reduce adds in the order of the ranks, with the same bits on all of
# them"; docs/design/ranks.md.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libopenmpi-dev=4.1.4*' 'openmpi-bin=4.1.4*' gcc libc6-dev
packages trixie 'openmpi-bin=5.0.7*'
cat >"$work/bookworm/tmp/sums.c" <<'END_OF_PROGRAM'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const float terms[] = {1, 16777216, -16777216, 1};
  const int lengths[] = {1, 1000, 5000, 20000, 300000};
  for (int i = 0; i < 5; ++i) {
    const int n = lengths[i];
    float *own = malloc(n * sizeof(float)), *sum = malloc(n * sizeof(float)), *most = malloc(n * sizeof(float)),
          *least = malloc(n * sizeof(float));
    for (int j = 0; j < n; ++j) own[j] = terms[rank];
    MPI_Allreduce(own, sum, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(sum, most, n, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(sum, least, n, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
    int others = 0, differ = 0;
    for (int j = 0; j < n; ++j) others += sum[j] != sum[0], differ += most[j] != least[j];
    MPI_Reduce(own, least, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
      printf("%d ranks, %d elements: first %g, others %d, ranks differ %d, reduced %g\n", ranks, n, sum[0], others,
             differ, least[0]);
    free(own), free(sum), free(most), free(least);
  }
  MPI_Finalize();
  return 0;
}
END_OF_PROGRAM
# A program that is made for the older version runs with the newer one.
libraries=/usr/lib/x86_64-linux-gnu
inside bookworm gcc "-I$libraries/openmpi/include" /tmp/sums.c -o /tmp/sums -lmpi "-L$libraries/openmpi/lib" \
  "-Wl,-rpath,$libraries/openmpi/lib" || not_tried "the program does not compile"
cp "$work/bookworm/tmp/sums" "$work/trixie/tmp/"
for suite in bookworm trixie; do
  for ranks in 3 4; do
    inside "$suite" UCX_LOG_LEVEL=fatal mpirun.openmpi --allow-run-as-root --oversubscribe -np $ranks /tmp/sums \
      2>/dev/null | tr -d '\r\0' | sed "s/^/$suite: /" | tee "$work/out.$ranks"
  done
  for line in '1 elements: first 0, others 0' '1000 elements: first 0, others 0' '5000 elements: first 0, others 3333' \
    '20000 elements: first 0, others 13333' '300000 elements: first 0, others 0'; do
    expect "$suite: 3 ranks, $line" grep -qx "$suite: 3 ranks, $line, ranks differ 0, reduced 1" "$work/out.3"
  done
  for line in '1000 elements: .* reduced 0' '5000 elements: .* reduced 2' '20000 elements: .* reduced 1'; do
    expect "$suite: 4 ranks, $line" grep -qx "$suite: 4 ranks, $line" "$work/out.4"
  done
done
done_with_it
