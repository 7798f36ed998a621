#include "ops/optimizer/sgd8bit.h"

#include <algorithm>
#include <array>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/blockwise_codes.h"
#include "ops/optimizer/sgd_loops.h"
#include "ops/optimizer/trained.h"

namespace frugal::ops {
namespace {

void sgd8bit_update(const Sgd8bitUpdate& u) {
  const int64_t n = u.parameter.numel();
  with_real(u.parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = SgdFactors<T>::of(u.step);
    T* p = u.parameter.mut<T>();
    const T* g = u.gradient.data<T>();
    uint8_t* codes = u.velocity.codes.mut<uint8_t>();
    float* scales = u.velocity.scales.mut<float>();
    const StateMap map = u.velocity.map;
    parallel_for(0, u.velocity.scales.numel(), 64, [&](int64_t begin, int64_t end) {
      std::array<T, kStateBlock> v;
      for (int64_t block = begin; block < end; ++block) {
        const int64_t at = block * kStateBlock, count = std::min(kStateBlock, n - at);
        decode_block(codes + at, scales[block], count, map, v.data());
        sgd_loop(p + at, g + at, v.data(), count, factors);
        encode_block(v.data(), count, map, codes + at, scales[block], u.key, at);
      }
    });
  });
}

}  // namespace

void sgd8bit_steps_kernel(Cpu, const std::vector<Sgd8bitUpdate>& updates) {
  for (const Sgd8bitUpdate& u : updates) sgd8bit_update(u);
}

void sgd8bit_steps(const std::vector<Sgd8bitUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<Sgd8bitUpdate> dense = updates;
  for (Sgd8bitUpdate& u : dense) {
    check_trained("sgd8bit", u.parameter, device);
    check_shape("sgd8bit", "the gradient", u.gradient, u.parameter.shape());
    check_same("sgd8bit", u.parameter, {&u.gradient});
    check_blockwise("sgd8bit", "the velocity", u.velocity, StateMap::with_sign, u.parameter);
    u.gradient = contiguous(u.gradient);
  }
  dispatch(device, [&](auto backend) { sgd8bit_steps_kernel(backend, dense); });
  for (const Sgd8bitUpdate& u : dense)
    for (const Tensor* written : {&u.parameter, &u.velocity.codes, &u.velocity.scales})
      written->bump_version();
}

}  // namespace frugal::ops
