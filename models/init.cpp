#include "models/init.h"

#include <cmath>

#include "core/draws.h"
#include "core/parallel.h"

namespace frugal::models {
namespace {

// draw(key, first, to, count) writes elements of a stream, as core/draws.h does.
template <class Draw>
Tensor filled(Init& init, const Shape& shape, Draw draw) {
  CategoryScope scope(Category::parameter);
  Tensor tensor = Tensor::empty(shape, DType::f32, drawn_on(init.device));
  const RngKey key = init.rng.next();
  float* values = tensor.mut<float>();
  if (values == nullptr) return tensor;  // meta
  parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
    draw(key, static_cast<uint64_t>(begin), values + begin, end - begin);
  });
  return to_device(tensor, init.device);
}

}  // namespace

Init& default_init() {
  thread_local Init init;
  return init;
}

Tensor uniform(Init& init, const Shape& shape, double bound) {
  return filled(init, shape, [bound](RngKey key, uint64_t first, float* to, int64_t count) {
    draw_uniform(key, first, static_cast<float>(bound), to, count);
  });
}

Tensor normal(Init& init, const Shape& shape, double deviation) {
  return filled(init, shape, [deviation](RngKey key, uint64_t first, float* to, int64_t count) {
    draw_normal(key, first, static_cast<float>(deviation), to, count);
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
