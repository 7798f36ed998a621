#include "ops/precision.h"

#include <algorithm>
#include <atomic>

namespace frugal::ops {
namespace {

std::atomic<MatmulPrecision> chosen_precision{MatmulPrecision::f32};
std::atomic<bool> chosen_deterministic{true};
std::atomic<int64_t> chosen_workspace{int64_t{512} << 20};

}  // namespace

void set_matmul_precision(MatmulPrecision precision) { chosen_precision = precision; }
MatmulPrecision matmul_precision() { return chosen_precision; }
void set_deterministic(bool deterministic) { chosen_deterministic = deterministic; }
bool deterministic() { return chosen_deterministic; }
void set_convolution_workspace(int64_t bytes) { chosen_workspace = bytes; }
int64_t convolution_workspace() { return chosen_workspace; }

int64_t library_workspace(int64_t limit, bool convolutions) {
  // Enough for every kernel of cuBLASLt on Hopper and later GPUs; kernels of Ampere need less.
  constexpr int64_t kOfProducts = int64_t{32} << 20;
  return convolutions ? limit : std::min(limit, kOfProducts);
}

}  // namespace frugal::ops
