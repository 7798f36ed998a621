#include "models/init.h"

#include <cmath>

#include "core/parallel.h"

namespace frugal::models {
namespace {

template <class Draw>
Tensor filled(Init& init, const Shape& shape, Draw draw) {
  CategoryScope scope(Category::parameter);
  Tensor tensor = Tensor::empty(shape, DType::f32, drawn_on(init.device));
  const RngKey key = init.rng.next();
  float* values = tensor.mut<float>();
  if (values == nullptr) return tensor;  // meta
  parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = draw(key, static_cast<uint64_t>(i));
  });
  return to_device(tensor, init.device);
}

}  // namespace

Init& default_init() {
  thread_local Init init;
  return init;
}

Tensor uniform(Init& init, const Shape& shape, double bound) {
  return filled(init, shape, [bound](RngKey key, uint64_t i) {
    return static_cast<float>(bound) * (2 * frugal::uniform(key, i) - 1);
  });
}

Tensor normal(Init& init, const Shape& shape, double deviation) {
  return filled(init, shape, [factor = static_cast<float>(deviation)](RngKey key, uint64_t i) {
    return factor * frugal::normal(key, i);
  });
}

Tensor kaiming_normal(Init& init, const Shape& shape, int64_t fan) {
  return normal(init, shape, std::sqrt(2.0 / static_cast<double>(fan)));
}

Tensor constant(Init& init, const Shape& shape, double value, DType dtype) {
  CategoryScope scope(Category::parameter);
  return Tensor::full(shape, value, dtype, init.device);
}

Tensor batch_counter(const Init& init) {
  CategoryScope scope(Category::parameter);
  return Tensor::zeros({}, DType::i64, drawn_on(init.device));
}

}  // namespace frugal::models
