#include "ops/optimizer/lion.h"

#include <algorithm>
#include <array>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/blockwise_codes.h"
#include "ops/optimizer/trained.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

template <class T>
void lion_loop(T* __restrict p, const T* __restrict g, T* __restrict m, int64_t n,
               const LionFactors<T>& f) {
  for (int64_t i = 0; i < n; ++i) {
    const T direction = f.beta1 * m[i] + f.rest1 * g[i];
    const T sign = static_cast<T>(direction > 0) - static_cast<T>(direction < 0);
    p[i] -= f.lr * (sign + f.decay * p[i]);
    m[i] = f.beta2 * m[i] + f.rest2 * g[i];
  }
}

template <class Update>
void check_update(const char* op, Update& u, Device device) {
  check_trained(op, u.parameter, device);
  check_shape(op, "the gradient", u.gradient, u.parameter.shape());
  check_same(op, u.parameter, {&u.gradient});
  u.gradient = contiguous(u.gradient);
}

}  // namespace

void lion_steps_kernel(Cpu, const std::vector<LionUpdate>& updates) {
  for (const LionUpdate& u : updates)
    with_real(u.parameter.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T *p = u.parameter.mut<T>(), *m = u.m.mut<T>();
      const T* g = u.gradient.data<T>();
      const auto factors = LionFactors<T>::of(u.step);
      parallel_for(0, u.parameter.numel(), kCopyGrain, [&](int64_t begin, int64_t end) {
        lion_loop(p + begin, g + begin, m + begin, end - begin, factors);
      });
    });
}

void lion_steps(const std::vector<LionUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<LionUpdate> dense = updates;
  for (LionUpdate& u : dense) {
    check_update("lion", u, device);
    check_shape("lion", "the momentum", u.m, u.parameter.shape());
    check_same("lion", u.parameter, {&u.m});
  }
  dispatch(device, [&](auto backend) { lion_steps_kernel(backend, dense); });
  for (const LionUpdate& u : dense)
    for (const Tensor* written : {&u.parameter, &u.m}) written->bump_version();
}

void lion8bit_steps_kernel(Cpu, const std::vector<Lion8bitUpdate>& updates) {
  for (const Lion8bitUpdate& u : updates)
    with_real(u.parameter.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t n = u.parameter.numel();
      T* p = u.parameter.mut<T>();
      const T* g = u.gradient.data<T>();
      uint8_t* codes = u.m.codes.mut<uint8_t>();
      float* scales = u.m.scales.mut<float>();
      const auto factors = LionFactors<T>::of(u.step);
      parallel_for(0, u.m.scales.numel(), 64, [&](int64_t begin, int64_t end) {
        std::array<T, kStateBlock> m;
        for (int64_t block = begin; block < end; ++block) {
          const int64_t at = block * kStateBlock, count = std::min(kStateBlock, n - at);
          decode_block(codes + at, scales[block], count, u.m.map, m.data());
          lion_loop(p + at, g + at, m.data(), count, factors);
          encode_block(m.data(), count, u.m.map, codes + at, scales[block], u.key, at);
        }
      });
    });
}

void lion8bit_steps(const std::vector<Lion8bitUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<Lion8bitUpdate> dense = updates;
  for (Lion8bitUpdate& u : dense) {
    check_update("lion8bit", u, device);
    check_blockwise("lion8bit", "the momentum", u.m, StateMap::with_sign, u.parameter);
  }
  dispatch(device, [&](auto backend) { lion8bit_steps_kernel(backend, dense); });
  for (const Lion8bitUpdate& u : dense)
    for (const Tensor* written : {&u.parameter, &u.m.codes, &u.m.scales}) written->bump_version();
}

}  // namespace frugal::ops
