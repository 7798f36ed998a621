// Initial weights. Values depend only on the seed and the order of construction.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/rng.h"
#include "core/tensor.h"

namespace frugal::models {

// Where and how the tensors of a model are made. Layers take it by reference and draw from `rng`.
struct LaterDraws;
struct Init {
  Rng rng{0};
  Device device = kCpu;                         // on `meta` tensors have only shapes
  std::shared_ptr<LaterDraws> later = nullptr;  // notes all draws, and makes some of them later
};

// Draws of one network, numbered from 0. Those that are `waiting` give tensors on `meta` at first,
// for weights that are packed before they are all there (models/pack.h).
struct LaterDraws {
  std::set<int64_t> waiting;
  struct Draw {
    int64_t number = 0;
    std::function<Tensor()> make;  // draws the values, on the host
  };
  std::map<uint64_t, Draw> of_storage;          // by Storage::id() of the tensor that was given
  const Draw* find(const Tensor& given) const;  // null: it was not drawn
};

// Layers that are made without an Init draw from this one of their thread: seed 0, on the CPU. So
// their values depend on the order in which the thread makes its layers. Assign to it for another
// seed or device: default_init() = {Rng(7)}.
Init& default_init();

// Where the values of a tensor for `device` are computed: on the host; on meta nowhere.
inline Device drawn_on(Device device) { return device == kMeta ? kMeta : kCpu; }

// All of them return f32 tensors of category `parameter`. fan_in is the number of inputs of one
// output, fan_out the number of outputs of one input.
Tensor uniform(Init& init, const Shape& shape, double bound);  // U(-bound, bound)
Tensor normal(Init& init, const Shape& shape, double deviation);
// N(0, 2/fan). Ref: He et al. 2015, equation 10.
Tensor kaiming_normal(Init& init, const Shape& shape, int64_t fan);
Tensor constant(Init& init, const Shape& shape, double value, DType dtype = DType::f32);
Tensor batch_counter(const Init& init);  // 0, [] i64: num_batches_tracked, which the host counts

}  // namespace frugal::models
