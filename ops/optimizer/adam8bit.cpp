#include "ops/optimizer/adam8bit.h"

#include <algorithm>
#include <array>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/adam_loops.h"
#include "ops/optimizer/blockwise_codes.h"
#include "ops/optimizer/trained.h"

namespace frugal::ops {
namespace {

void adam8bit_update(const Adam8bitUpdate& all) {
  // Not a structured binding: Clang 16 captures none in a parallel loop.
  const auto& parameter = all.parameter;
  const auto& gradient = all.gradient;
  const auto& m = all.m;
  const auto& v = all.v;
  const auto& step = all.step;
  const auto& key = all.key;
  const int64_t n = parameter.numel();
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = AdamFactors<T>::of(step);
    uint8_t* m_codes = m.codes.mut<uint8_t>();
    uint8_t* v_codes = v.codes.mut<uint8_t>();
    float* m_scales = m.scales.mut<float>();
    float* v_scales = v.scales.mut<float>();
    parallel_for(0, m.scales.numel(), 64, [&](int64_t begin, int64_t end) {
      std::array<T, kStateBlock> first, second;
      for (int64_t block = begin; block < end; ++block) {
        const int64_t at = block * kStateBlock, count = std::min(kStateBlock, n - at);
        decode_block(m_codes + at, m_scales[block], count, m.map, first.data());
        decode_block(v_codes + at, v_scales[block], count, v.map, second.data());
        adam_loop(parameter.mut<T>() + at, gradient.data<T>() + at, first.data(), second.data(),
                  count, factors);
        encode_block(first.data(), count, m.map, m_codes + at, m_scales[block], {}, at);
        encode_block(second.data(), count, v.map, v_codes + at, v_scales[block], key, at);
      }
    });
  });
}

}  // namespace

void adam8bit_steps_kernel(Cpu, const std::vector<Adam8bitUpdate>& updates) {
  for (const Adam8bitUpdate& u : updates) adam8bit_update(u);
}

void adam8bit_steps(const std::vector<Adam8bitUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<Adam8bitUpdate> dense = updates;
  for (Adam8bitUpdate& u : dense) {
    check_trained("adam8bit", u.parameter, device);
    check_shape("adam8bit", "the gradient", u.gradient, u.parameter.shape());
    check_same("adam8bit", u.parameter, {&u.gradient});
    check_blockwise("adam8bit", "the first moment", u.m, StateMap::with_sign, u.parameter);
    check_blockwise("adam8bit", "the second moment", u.v, StateMap::positive, u.parameter);
    FRUGAL_CHECK(u.step.step >= 1, "[adam8bit] expected a step of at least 1, got {}", u.step.step);
    u.gradient = contiguous(u.gradient);
  }
  dispatch(device, [&](auto backend) { adam8bit_steps_kernel(backend, dense); });
  for (const Adam8bitUpdate& u : dense)
    for (const Tensor* written : {&u.parameter, &u.m.codes, &u.m.scales, &u.v.codes, &u.v.scales})
      written->bump_version();
}

}  // namespace frugal::ops
