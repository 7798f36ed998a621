// A network of an embedding, two linear layers and a shared bias, for tests.
#pragma once
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/gradient.h"
#include "autograd/transformer_functions.h"
#include "distributed/agreement.h"

namespace frugal::distributed {

struct SmallNetwork {
  Variable table, first, bias, second, unused;

  explicit SmallNetwork(DType dtype = DType::f64, int64_t hidden = 37)
      : table(make({50, 11}, 1, dtype)),
        first(make({hidden, 11}, 2, dtype)),
        bias(make({hidden}, 3, dtype)),
        second(make({5, hidden}, 4, dtype)),
        unused(make({7}, 5, dtype)) {}
  NamedVariables parameters() const {
    return {
        {"table", table}, {"first", first}, {"bias", bias}, {"second", second}, {"unused", unused}};
  }
  // The sum of the losses of samples [begin, end) of a fixed batch.
  Variable loss(int64_t begin, int64_t end) const {
    std::vector<int64_t> ids, targets;
    for (int64_t i = begin; i < end; ++i) {
      ids.push_back(i * 7 % 50);
      targets.push_back(i % 5);
    }
    const Variable x = embedding(Tensor::from(ids, {end - begin}), table);
    const Variable h = tanh(linear(x, first, bias));
    return cross_entropy(linear(h, second), Tensor::from(targets, {end - begin}), {.sum = true});
  }

 private:
  static Variable make(const Shape& shape, uint64_t seed, DType dtype) {
    const Tensor value = Tensor::randn(shape, {seed, 0}, dtype);
    return Variable::parameter(value);
  }
};

// The samples of a batch that a rank takes.
inline std::pair<int64_t, int64_t> samples_of(int64_t batch, const Communicator& ranks) {
  const Bounds bounds = even_bounds(batch, ranks.size());
  const auto r = static_cast<size_t>(ranks.rank());
  return {bounds[r], bounds[r + 1]};
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

}  // namespace frugal::distributed
