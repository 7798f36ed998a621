#!/usr/bin/env bash
# FANN 2.2.0, the Fast Artificial Neural Network library: what it calls the mean square error depends on the activation
# of the last layer. Where that is one of -1 to 1, as sigmoid_symmetric (a tanh), each difference is halved before it is
# squared, so equal outputs and equal targets have a quarter of the error. fann_train_on_data() stops at an error that
# one asks for, so such a network stops at twice the distance. fann_get_MSE() is said to read the mean square error.
# Seen, one output that lies 0.5 beside its target: 0.25 for linear, sigmoid, linear_piece, elliot, gaussian, sin and
# cos; 0.0625 for sigmoid_symmetric, linear_piece_symmetric, elliot_symmetric, gaussian_symmetric and sin_symmetric.
# Linear is unbounded, and counts in full. fann_get_bit_fail(), which counts outputs further away than 0.35, says 1 for
# the first and 0 for the others. So networks with other last layers are not compared by these numbers.
# Frugal: the loss and the metric know outputs and targets alone (ops/loss/mse.h, train/metrics/metrics.h);
# tests/ops/loss/mse_test.cpp, "mse: loss and gradient follow the definition". docs/guide/using.md names FANN.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libfann-dev=2.2.0*' gcc libc6-dev
cat >"$work/bookworm/tmp/error.c" <<'END_OF_PROGRAM'
#include <fann.h>
#include <stdio.h>

int main(void) {
  const enum fann_activationfunc_enum last[] = {
      FANN_LINEAR,        FANN_SIGMOID,        FANN_SIGMOID_SYMMETRIC,
      FANN_LINEAR_PIECE,  FANN_LINEAR_PIECE_SYMMETRIC,
      FANN_ELLIOT,        FANN_ELLIOT_SYMMETRIC,
      FANN_GAUSSIAN,      FANN_GAUSSIAN_SYMMETRIC,
      FANN_SIN_SYMMETRIC, FANN_SIN,            FANN_COS};
  for (unsigned i = 0; i < sizeof last / sizeof *last; ++i) {
    struct fann* network = fann_create_standard(2, 1, 1);
    fann_set_activation_function_output(network, last[i]);
    struct fann_train_data* data = fann_create_train(1, 1, 1);
    data->input[0][0] = 0;
    data->output[0][0] = fann_run(network, data->input[0])[0] - 0.5f;
    fann_reset_MSE(network);
    fann_test_data(network, data);
    printf("%s %.4f %u\n", FANN_ACTIVATIONFUNC_NAMES[last[i]] + 5, fann_get_MSE(network), fann_get_bit_fail(network));
    fann_destroy_train(data);
    fann_destroy(network);
  }
}
END_OF_PROGRAM
inside bookworm sh -c 'gcc -O1 /tmp/error.c -o /tmp/error -lfann -lm && /tmp/error' | tee "$work/out"
for name in LINEAR SIGMOID LINEAR_PIECE ELLIOT GAUSSIAN SIN COS; do
  expect "$name has the error and is counted" grep -qx "$name 0.2500 1" "$work/out"
done
for name in SIGMOID LINEAR_PIECE ELLIOT GAUSSIAN SIN; do
  expect "${name}_SYMMETRIC has a quarter and is not" grep -qx "${name}_SYMMETRIC 0.0625 0" "$work/out"
done
done_with_it
