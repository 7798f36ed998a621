#!/usr/bin/env bash
# PyTorch's library for C++, libtorch 1.13 and 2.6: schedules give other rates than those of Python with one name and
# the same arguments. StepLR lets the rate fall one step later, for the first time after step_size + 1 steps. In 2.6,
# ReduceLROnPlateauScheduler with the mode max begins with the smallest positive float as the best metric so far, not
# with minus infinity. No metric below 0, as a log-likelihood, is ever better, so the rate falls and falls while the
# metric rises. Nothing warns. A training that was written anew in C++ is another one.
# Seen, a rate of 1 and StepLR(step_size=3, gamma=0.1): in Python the fourth step has 0.1 and the seventh 0.01, in C++
# the fifth and the eighth. ReduceLROnPlateau(mode="max", patience=2) and ten evaluations that rise from -5 to -4.1: the
# rate stays 1 in Python and is 0.001 in the end in C++. For evaluations that rise from 5 to 5.9 both keep 1, and for
# those that fall from 5 to 4.1 both end at 0.001. The mode min has Python's rates for metrics of both signs.
# Frugal: a schedule is one function of the step, which C++ and Python share (optim/schedule.h);
# tests/optim/optim_test.cpp, "schedules meet their closed forms". Early stopping takes any first evaluation for better
# than none; tests/train/early_stop_test.cpp, "a metric below 0 that stands still is not better".
# docs/guide/configs.md, "optim and schedule", says it to those who come from libtorch.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libtorch-dev=1.13.1*' 'python3-torch=1.13.1*' g++
packages trixie 'libtorch-dev=2.6.0*' 'python3-torch=2.6.0*' g++
cat >"$work/step.cpp" <<'END_OF_PROGRAM'
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdio>
#include <vector>
#if __has_include(<torch/optim/schedulers/reduce_on_plateau_scheduler.h>)
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#define HAS_PLATEAU
#endif

static torch::optim::SGD optimizer() {
  return torch::optim::SGD(std::vector<torch::Tensor>{torch::zeros(1, torch::requires_grad())},
                           torch::optim::SGDOptions(1));
}
static void print_rate(torch::optim::SGD& each) {
  std::printf(" %.3g", each.param_groups()[0].options().get_lr());
}

int main() {
  torch::optim::SGD stepped = optimizer();
  torch::optim::StepLR step(stepped, 3, 0.1);
  std::printf("StepLR");
  for (int i = 0; i < 8; ++i) {
    print_rate(stepped);
    stepped.step();
    step.step();
  }
  std::puts("");
#ifdef HAS_PLATEAU
  using Plateau = torch::optim::ReduceLROnPlateauScheduler;
  for (const auto mode : {Plateau::min, Plateau::max})
    for (const double first : {5, -5})
      for (const double change : {0.1, -0.1}) {
        torch::optim::SGD judged = optimizer();
        Plateau plateau(judged, mode, 0.1, 2);
        for (int i = 0; i < 10; ++i) plateau.step(first + i * change);
        std::printf("%s from %g by %g", mode == Plateau::min ? "min" : "max", first, change);
        print_rate(judged);
        std::puts("");
      }
#endif
}
END_OF_PROGRAM
libraries=/usr/lib/x86_64-linux-gnu
libraries=$libraries/blas:$libraries/lapack
for suite in bookworm trixie; do
  cp "$work/step.cpp" "$work/$suite/tmp"
  inside "$suite" LD_LIBRARY_PATH="$libraries" g++ -std=c++17 -I/usr/include/torch/csrc/api/include /tmp/step.cpp \
    -o /tmp/step -ltorch -ltorch_cpu -lc10 || not_tried "libtorch of $suite does not compile"
  inside "$suite" LD_LIBRARY_PATH="$libraries" /tmp/step | sed 's/^/C++ /' | tee "$work/$suite.out"
  python_in "$suite" -W ignore -c '
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR


def optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)


def rate(each):
    return "%.3g" % each.param_groups[0]["lr"]


stepped, rates = optimizer(), []
step = StepLR(stepped, 3, 0.1)
for i in range(8):
    rates.append(rate(stepped))
    stepped.step()
    step.step()
print("StepLR", *rates)
for mode in "min", "max":
    for first in 5, -5:
        for change in 0.1, -0.1:
            judged = optimizer()
            plateau = ReduceLROnPlateau(judged, mode, 0.1, 2)
            for i in range(10):
                plateau.step(first + i * change)
            print(mode, "from %d by %g" % (first, change), rate(judged))
' | sed 's/^/Python /' | tee -a "$work/$suite.out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/$suite.out"; done <<'END_OF_LINES'
C++ StepLR 1 1 1 1 0.1 0.1 0.1 0.01
Python StepLR 1 1 1 0.1 0.1 0.1 0.01 0.01
Python min from 5 by 0.1 0.001
Python min from 5 by -0.1 1
Python min from -5 by 0.1 0.001
Python min from -5 by -0.1 1
Python max from 5 by 0.1 1
Python max from 5 by -0.1 0.001
Python max from -5 by 0.1 1
Python max from -5 by -0.1 0.001
END_OF_LINES
done
while read -r line; do expect "trixie: $line" grep -qxF "$line" "$work/trixie.out"; done <<'END_OF_LINES'
C++ min from 5 by 0.1 0.001
C++ min from 5 by -0.1 1
C++ min from -5 by 0.1 0.001
C++ min from -5 by -0.1 1
C++ max from 5 by 0.1 1
C++ max from 5 by -0.1 0.001
C++ max from -5 by 0.1 0.001
C++ max from -5 by -0.1 0.001
END_OF_LINES
done_with_it
