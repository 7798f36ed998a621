// What the tests of the zoo and of layers share.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "core/rng.h"
#include "models/init.h"
#include "models/state.h"
#include "ops/dense/copy.h"

namespace frugal::zoo {

inline models::Init meta_init() {
  models::Init init;
  init.device = kMeta;
  return init;
}

inline int64_t parameter_count(Module& module) {
  int64_t n = 0;
  for (const auto& p : module.parameters()) n += p.parameter->value().numel();
  return n;
}

inline std::vector<std::string> parameter_names(Module& module) {
  std::vector<std::string> names;
  for (const auto& p : module.parameters()) names.push_back(p.name);
  return names;
}

// "name [shape]" of everything in files.
inline std::set<std::string> lines_of(Module& module) {
  std::set<std::string> lines;
  for (const auto& [name, tensor] : models::state_dict(module))
    lines.insert(fmt::format("{} {}", name, tensor.shape()));
  return lines;
}

inline uint64_t fingerprint(const std::set<std::string>& lines) {
  uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  for (const std::string& line : lines)
    for (const char c : line + "\n") value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return value;
}

// A network as torchvision has it: torchvision_zoo_names.py.
struct Published {
  const char* name;
  int64_t parameters;
  size_t tensors;
  uint64_t fingerprint;
};
template <class Net, class OptionsOf>
void check_published(const OptionsOf& options_of, const std::vector<Published>& expected) {
  for (const Published& row : expected) {
    CAPTURE(row.name);
    models::Init init = meta_init();
    Net net(init, options_of(row.name));
    CHECK(parameter_count(net) == row.parameters);
    const auto lines = lines_of(net);
    CHECK(lines.size() == row.tensors);
    CHECK(fingerprint(lines) == row.fingerprint);
  }
}

// Standard normal.
inline Variable randn(const Shape& shape, uint64_t seed, Device device = kCpu) {
  CategoryScope scope(Category::input);
  Tensor x = Tensor::empty(shape, DType::f32, device);
  if (float* values = x.mut<float>(); values != nullptr)
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = normal({seed, 9}, static_cast<uint64_t>(i));
  return Variable(x);
}

// Uniform in [0, bound).
inline Tensor ids(const Shape& shape, int64_t bound, uint64_t seed, Device device = kCpu) {
  CategoryScope scope(Category::input);
  Tensor x = Tensor::empty(shape, DType::i64, device);
  if (int64_t* values = x.mut<int64_t>(); values != nullptr)
    for (int64_t i = 0; i < x.numel(); ++i)
      values[i] = static_cast<int64_t>(
          uniform_int({seed, 8}, static_cast<uint64_t>(i), static_cast<uint64_t>(bound)));
  return x;
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    if (!(d <= largest)) largest = d;  // NaN stays
  }
  return largest;
}

using Gradients = std::vector<Tensor>;

// The gradients of loss(forward(x)) with dropout from `seed`.
inline Gradients gradients(Module& net, const Variable& x, Context context,
                           const std::function<Variable(const Variable&)>& loss,
                           uint64_t seed = 1) {
  Rng rng(seed);
  context.rng = &rng;
  net.zero_grad();
  backward(loss(net.forward(x, context)));
  Gradients all;
  for (const auto& p : net.parameters()) {
    CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
    const Tensor& grad = p.parameter->grad();
    all.push_back(grad.defined() ? ops::contiguous(grad) : grad);
  }
  return all;
}

inline void check_equal(const Gradients& a, const Gradients& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined() || !b[i].defined()) continue;
    double largest = 0;
    for (const double v : a[i].to_vector()) largest = std::max(largest, std::abs(v));
    CAPTURE(i);
    CHECK(largest_difference(a[i], b[i]) <= tolerance * (largest + 1e-6));
  }
}

// Steps of plain gradient descent lower the loss on one batch.
inline void check_learns(Module& net, const Variable& x, const Context& context,
                         const std::function<Variable(const Variable&)>& loss, double rate,
                         int steps = 3) {
  const auto loss_now = [&] {
    NoGrad no_grad;
    Rng rng(1);
    Context now = context;
    now.rng = &rng;
    return loss(net.forward(x, now)).value().item();
  };
  const double before = loss_now();
  for (int s = 0; s < steps; ++s) {
    const Gradients g = gradients(net, x, context, loss);
    const auto parameters = net.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].parameter->value();
      if (!g[i].defined()) continue;
      for (int64_t j = 0; j < value.numel(); ++j)
        value.mut<float>()[j] -= static_cast<float>(rate) * g[i].data<float>()[j];
      value.bump_version();
    }
  }
  const double after = loss_now();
  CHECK(std::isfinite(before));
  CHECK(after < before);
}

// Weights leave in the files' layouts and come back bit for bit into a module with other weights.
inline void check_round_trip(Module& from, Module& to) {
  const models::NamedTensors state = models::state_dict(from);
  models::load_state_dict(to, state);
  const models::NamedTensors again = models::state_dict(to);
  REQUIRE(again.size() == state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    CHECK(again[i].first == state[i].first);
    REQUIRE(largest_difference(again[i].second, state[i].second) == 0);
  }
}

// On meta: forward gives `shape`, and backward a gradient for every parameter.
inline void check_runs_on_meta(Module& net, const Variable& x, const Shape& shape) {
  Context context;
  Rng rng(1);
  context.rng = &rng;
  const Variable y = net.forward(x, context);
  CHECK(y.shape() == shape);
  backward(sum(y));
  for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
}

// Checkpointing gives `net` other gradients by rounding alone and counts batches once, steps learn,
// and weights go into `copy`, which then computes what `net` does.
inline void check_trains(Module& net, Module& copy, const Variable& x, Context context,
                         const std::function<Variable(const Variable&)>& loss, double rate) {
  const auto counted = [&](double batches) {
    for (const auto& b : net.buffers())
      if (b.name.ends_with("num_batches_tracked")) CHECK(b.buffer->item() == batches);
  };
  const Gradients plain = gradients(net, x, context, loss);
  counted(1);
  context.checkpointed_blocks = kAllBlocks;
  check_equal(plain, gradients(net, x, context, loss), 1e-4);
  counted(2);
  context.checkpointed_blocks = 0;
  check_learns(net, x, context, loss, rate);
  check_round_trip(net, copy);
  context.training = false;
  NoGrad no_grad;
  CHECK(largest_difference(net.forward(x, context).value(), copy.forward(x, context).value()) == 0);
}

}  // namespace frugal::zoo
