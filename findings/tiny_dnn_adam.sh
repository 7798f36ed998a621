#!/usr/bin/env bash
# tiny-dnn 1.0.0a3, a library for networks in C++: its adam counts updates of tensors, not steps. Adam divides its two
# moments by 1 - 0.9^t and 1 - 0.999^t, where t is the number of the step, since they begin at 0. Here all tensors of
# weights share one t, and each update of each tensor moves it on. A network of 10 layers has 20 tensors, so t is 400
# after 20 steps, and the second correction is mostly gone, though its moment needs a thousand steps. So a layer first
# moves by half of the rate and then by several times of it, and how far depends on the number and the order of the
# layers. fit() forgets the moments and keeps t, so a second fit() with one optimizer begins with large steps, too. The
# header names Adam's paper, by which the first step is the rate, and so is each one while the gradient stays.
# Seen, a gradient that stays nearly as it is: how far the last layer's bias moves in the steps 1, 5 and 20, as a
# multiple of the rate. 1 layer: 0.64, 0.88 and 1.27. 10 layers: 0.51, 1.80 and 3.59. 50 layers: 0.98, 3.64 and 5.80. 1
# layer in a fit() after one of 10,000 steps: 3.16, 5.80 and 6.24. By the paper all of them are 1.00.
# Frugal: each parameter counts its own steps (optim/adam.cpp); tests/optim/adam_test.cpp, "Adam: steps are counted for
# each parameter, and leaves can be updated alone" and "Adam and AdamW follow a plain reference over 20 steps, in both
# dtypes".
. "$(dirname "$0")/packages.sh"
packages bookworm 'tiny-dnn=1.0.0a3*' libcereal-dev libstb-dev libgemmlowp-dev g++
mkdir "$work/bookworm/usr/include/third_party"
ln -s ../stb "$work/bookworm/usr/include/third_party/stb"
cat >"$work/bookworm/tmp/adam.cpp" <<'END_OF_PROGRAM'
#include <tiny_dnn/tiny_dnn.h>

#include <cmath>
#include <cstdio>

using namespace tiny_dnn;

// Fits weights of 1 to a target that is far away, and gives how far the last bias went in each step.
static std::vector<double> moves(network<sequential>& net, adam& optimizer, int steps) {
  const std::vector<vec_t> x{{1.0f}}, y{{10000.0f}};
  const auto bias = [&net] { return double((*net[net.depth() - 1]->weights()[1])[0]); };
  std::vector<double> found;
  double before = bias();
  net.fit<mse>(optimizer, x, y, 1, steps, [] {}, [&] {
    found.push_back(std::fabs(bias() - before) / optimizer.alpha);
    before = bias();
  });
  return found;
}

static network<sequential> chain(int count) {
  network<sequential> net;
  for (int i = 0; i < count; ++i) net << fully_connected_layer<activation::identity>(1, 1);
  net.weight_init(weight_init::constant(1.0f));
  net.bias_init(weight_init::constant(0.0f));
  net.init_weight();
  return net;
}

static void print(const char* what, int count, const std::vector<double>& found) {
  std::printf("%s %d: %.2f %.2f %.2f\n", what, count, found[0], found[4], found[19]);
}

int main() {
  for (const int count : {1, 10, 50}) {
    network<sequential> net = chain(count);
    adam optimizer;
    optimizer.alpha = 1e-6f;
    print("layers", count, moves(net, optimizer, 20));
  }
  network<sequential> net = chain(1), other = chain(1);
  adam optimizer;
  optimizer.alpha = 1e-6f;
  moves(net, optimizer, 10000);
  print("second fit, layers", 1, moves(other, optimizer, 20));
}
END_OF_PROGRAM
inside bookworm sh -c 'g++ -std=c++14 -w /tmp/adam.cpp -o /tmp/adam -pthread && /tmp/adam' | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
layers 1: 0.64 0.88 1.27
layers 10: 0.51 1.80 3.59
layers 50: 0.98 3.64 5.80
second fit, layers 1: 3.16 5.80 6.24
END_OF_LINES
done_with_it
