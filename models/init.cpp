#include "models/init.h"

#include <cmath>

#include "core/parallel.h"
#include "core/random/draws.h"

namespace frugal::models {
namespace {

// draw(key, first, to, count) writes elements of a stream, as core/random/draws.h does.
template <class Draw>
Tensor filled(Init& init, const Shape& shape, Draw draw) {
  CategoryScope scope(Category::parameter);
  const RngKey key = init.rng.next();
  const auto make = [key, shape, draw](Device device) {
    Tensor tensor = Tensor::empty(shape, DType::f32, device);
    float* values = tensor.mut<float>();
    if (values == nullptr) return tensor;  // meta
    parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
      draw(key, static_cast<uint64_t>(begin), values + begin, end - begin);
    });
    return tensor;
  };
  if (init.later == nullptr) return to_device(make(drawn_on(init.device)), init.device);
  const auto number = static_cast<int64_t>(init.later->of_storage.size());
  const bool waits = init.later->waiting.contains(number);
  Tensor tensor = waits ? make(kMeta) : to_device(make(drawn_on(init.device)), init.device);
  init.later->of_storage[tensor.storage()->id()] = {number, [make] { return make(kCpu); }};
  return tensor;
}

}  // namespace

const LaterDraws::Draw* LaterDraws::find(const Tensor& given) const {
  const auto found = of_storage.find(given.storage()->id());
  return found == of_storage.end() ? nullptr : &found->second;
}

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
