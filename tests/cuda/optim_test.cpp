// Optimizers on CUDA against the same on the CPU, over several steps.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/rng.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/adam.h"
#include "ops/optimizer/blockwise.h"
#include "ops/optimizer/clip.h"
#include "ops/optimizer/sgd.h"
#include "optim/averaged.h"
#include "optim/clip.h"
#include "optim/gradient_sketch.h"
#include "optim/optimizers.h"
#include "optim/registry.h"
#include "tests/cuda/compare.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

using gpu::distance;

using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>&)>;

// Several chunks, an odd count, a matrix of one row, a scalar.
const std::vector<Shape> kParameterShapes{{5}, {150, 70}, {1, 33}, {}, {4096}, {3, 3, 8}};

NamedVariables parameters_on(Device device) {
  NamedVariables all;
  for (size_t i = 0; i < kParameterShapes.size(); ++i) {
    const Tensor value = normals(kParameterShapes[i], 10 + i, DType::f32);
    all.emplace_back(std::string(1, static_cast<char>('a' + i)),
                     Variable::parameter(to_device(value, device)));
  }
  return all;
}

void set_gradients(const NamedVariables& all, int step) {
  for (size_t i = 0; i < all.size(); ++i) {
    Variable p = all[i].second;
    const auto seed = 100 * static_cast<uint64_t>(step) + i;
    if (i == 2 && step == 1)
      p.zero_grad();  // left out of one step
    else
      p.set_grad(to_device(normals(kParameterShapes[i], seed, DType::f32), p.device()));
  }
}

std::vector<ParameterGroup> groups_of(const NamedVariables& all) {
  ParameterGroup decayed, plain;
  decayed.weight_decay = 0.1;
  decayed.lr_scale = 0.5;
  for (const auto& entry : all)
    (entry.second.value().dim() > 1 ? decayed : plain).parameters.push_back(entry);
  return {decayed, plain};
}

std::vector<Variable> variables(const NamedVariables& all) {
  std::vector<Variable> list;
  for (const auto& entry : all) list.push_back(entry.second);
  return list;
}

}  // namespace

TEST_CASE("optimizers on CUDA take the CPU's steps") {
  if (!gpu::available()) return;
  std::vector<std::pair<std::string, Maker>> makers = {
      {"without momentum",
       [](const auto& g) {
         return make("sgd", g, {{"momentum", 0.0}});
       }},
      {"nesterov",
       [](const auto& g) {
         return make("sgd", g, {{"nesterov", true}});
       }},
      {"sgd_8bit, nesterov", [](const auto& g) {
         return make("sgd_8bit", g, {{"nesterov", true}}, {.least_elements = 0, .seed = 3});
       }}};
  for (const Kind& kind : kinds())
    makers.emplace_back(kind.name, [name = kind.name](const auto& g) { return make(name, g); });
  for (const auto& [name, maker] : makers) {
    CAPTURE(name);
    const NamedVariables host = parameters_on(kCpu), device = parameters_on(gpu::kCuda);
    auto one = maker(groups_of(host)), two = maker(groups_of(device));
    for (int step = 0; step < 4; ++step) {
      set_gradients(host, step);
      set_gradients(device, step);
      if (step == 2) {  // what was saved goes on, wherever it comes from
        const auto saved = one->state();
        two = maker(groups_of(device));
        two->load_state(saved);
      }
      one->step(0.01);
      two->step(0.01);
    }
    for (size_t i = 0; i < host.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(host[i].second.value(), device[i].second.value()) <= 2e-6);
    }
    for (const auto& [entry, tensor] : two->state())
      if (entry.rfind("steps/", 0) != 0) CHECK(tensor.device() == gpu::kCuda);
  }
}

TEST_CASE("a step on CUDA takes as many launches, however many parameters there are") {
  if (!gpu::available() || emulator::launches == nullptr) return;
  const auto count = [](const Maker& make) {
    const NamedVariables all = parameters_on(gpu::kCuda);
    const auto optimizer = make(groups_of(all));
    set_gradients(all, 0);
    optimizer->step(0.01);  // makes the state
    const int64_t before = emulator::launches();
    optimizer->step(0.01);
    return emulator::launches() - before;
  };
  const std::map<std::string, int64_t> launches = {{"lamb", 3}, {"lars", 3}, {"adafactor", 5}};
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    const auto wanted = launches.find(kind.name);
    CHECK(count([&](const auto& g) { return kind.make(g, {}, {.least_elements = 0}); }) ==
          (wanted == launches.end() ? 1 : wanted->second));
  }
}

TEST_CASE("more parameters than one launch lists") {
  if (!gpu::available()) return;
  std::vector<ops::SgdUpdate> updates;
  std::vector<ops::AdamUpdate> others;
  std::vector<Tensor> all;
  for (int i = 0; i < 1100; ++i) {
    const auto full = [](double value) { return Tensor::full({3}, value, DType::f32, gpu::kCuda); };
    updates.push_back({full(i), full(1), {}, {0.5, 0, 0, false}});
    others.push_back({full(i), full(1), full(0), full(0), {}});
    all.push_back(full(1));
  }
  ops::sgd_steps(updates);
  ops::adam_steps(others);
  const Tensor norm = ops::joint_norm(all);
  ops::clip_to(all, norm, 30);
  for (const size_t i : {size_t{0}, size_t{499}, size_t{500}, size_t{1099}}) {
    CHECK(updates[i].parameter.item(2) == static_cast<double>(i) - 0.5);
    CHECK(others[i].m.item(1) == doctest::Approx(0.1));
    CHECK(all[i].item() == static_cast<float>(30 / (norm.item() + 1e-6)));
  }
  CHECK(norm.item() == std::sqrt(3 * 1100.0));
}

TEST_CASE("every optimizer on more parameters than one launch lists") {
  if (!gpu::available()) return;
  const auto stepped = [](const Maker& make, Device device) {
    ParameterGroup group;
    for (int i = 0; i < 500; ++i) {
      const Shape shape = i % 3 == 0 ? Shape{3} : Shape{2, 5};
      Variable p = Variable::parameter(
          to_device(normals(shape, static_cast<uint64_t>(i), DType::f32), device));
      p.set_grad(to_device(normals(shape, 1000 + static_cast<uint64_t>(i), DType::f32), device));
      group.parameters.emplace_back(std::to_string(i), p);
    }
    make({group})->step(0.1);
    std::vector<Tensor> values;
    for (const auto& entry : group.parameters) values.push_back(entry.second.value());
    return values;
  };
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    const Maker make = [&](const auto& g) { return kind.make(g, {}, {.least_elements = 0}); };
    const auto here = stepped(make, kCpu), there = stepped(make, gpu::kCuda);
    double most = 0;
    for (size_t i = 0; i < here.size(); ++i) most = std::max(most, distance(here[i], there[i]));
    CHECK(most < 1e-5);
  }
}

TEST_CASE("clipping, averages and sketches on CUDA") {
  if (!gpu::available()) return;
  const NamedVariables host = parameters_on(kCpu), device = parameters_on(gpu::kCuda);
  set_gradients(host, 0);
  set_gradients(device, 0);
  const auto a = variables(host), b = variables(device);
  CHECK(grad_norm(a) == doctest::Approx(grad_norm(b)).epsilon(1e-9));
  const auto sketch = sketch_of_gradients(a), other = sketch_of_gradients(b);
  CHECK((sketch - other).squared_norm() <= 1e-12 * sketch.squared_norm());
  GradientSketch alone;
  alone.add(b[1].grad(), 5);
  CHECK((alone - sketch_of_values({Variable(Tensor::zeros({5})), Variable(a[1].grad())}))
            .squared_norm() <= 1e-12 * sketch.squared_norm());
  CHECK(clip_grad_norm(a, 1) == doctest::Approx(clip_grad_norm(b, 1)).epsilon(1e-9));
  clip_grad_value(a, 0.01);
  clip_grad_value(b, 0.01);
  Ema one(host, {}), two(device, {});
  for (size_t i = 0; i < host.size(); ++i) {
    CHECK(distance(a[i].grad(), b[i].grad()) <= 1e-8);
    Variable p = a[i], q = b[i];
    p.set_value(normals(kParameterShapes[i], 50 + i, DType::f32));
    q.set_value(to_device(p.value(), gpu::kCuda));
  }
  one.update();
  two.update();
  for (size_t i = 0; i < host.size(); ++i) CHECK(distance(one.average(i), two.average(i)) <= 1e-6);
  two.load_state(one.state());
  CHECK(two.average(1).device() == gpu::kCuda);
  two.update();
}

TEST_CASE("clipping and the check before a step on CUDA have the CPU's bits") {
  if (!gpu::available()) return;
  const double inf = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = normals({9000}, 3, DType::f32);
  for (const double length : {3.0, 1.0, 0.5, inf, nan}) {
    CAPTURE(length);
    const Tensor norm = Tensor::full({}, length, DType::f64);
    const Tensor here = ops::clone(x), there = to_device(x, gpu::kCuda);
    ops::clip_to({here}, norm, 1);
    ops::clip_to({there}, to_device(norm, gpu::kCuda), 1);
    CHECK(distance(here, there) == 0);
    CHECK((distance(here, x) == 0) == (length != 3));
  }
  CHECK(ops::joint_norm({Tensor::empty({0}, DType::f32, gpu::kCuda)}).item() == 0);
  const Tensor none = Tensor::full({700}, -100, DType::i64), labels = Tensor::full({7, 100}, -100);
  Tensor one = ops::clone(none), some = ops::clone(labels);
  one.mut<int64_t>()[699] = 0;
  some.mut<float>()[699] = 0;
  for (const Tensor& target : {none, labels, one, some})
    for (const double loss : {1.0, inf, nan})
      for (const double length : {2.0, inf, nan, -1.0}) {
        CAPTURE(loss);
        CAPTURE(length);
        const bool counts = target.item(699) == 0;
        const bool may = (loss == 1 || !counts) && std::isfinite(length);
        const Tensor value = Tensor::full({}, loss, DType::f32);
        const Tensor norm = length < 0 ? Tensor() : Tensor::full({}, length, DType::f64);
        CHECK((ops::may_step(value, target, -100, norm).item() != 0) == may);
        const Tensor norm_there = norm.defined() ? to_device(norm, gpu::kCuda) : norm;
        CHECK((ops::may_step(to_device(value, gpu::kCuda), to_device(target, gpu::kCuda), -100,
                             norm_there)
                   .item() != 0) == may);
      }
}

TEST_CASE("bytes of 8-bit states on CUDA are the CPU's") {
  if (!gpu::available()) return;
  for (const int64_t n : {1, 255, 256, 5003})
    for (const ops::StateMap map : {ops::StateMap::with_sign, ops::StateMap::positive})
      for (const bool draws : {false, true}) {
        CAPTURE(n);
        Tensor x = normals({n}, 7, DType::f32, 1e-3);
        if (n > 1000) {
          x.mut<float>()[300] = std::numeric_limits<float>::quiet_NaN();
          for (int64_t i = 512; i < 768; ++i) x.mut<float>()[i] = 0;
        }
        const std::optional<RngKey> key = draws ? std::optional<RngKey>({3, 4}) : std::nullopt;
        const auto a = ops::quantize_blockwise(x, map, key);
        const auto b = ops::quantize_blockwise(to_device(x, gpu::kCuda), map, key);
        CHECK(distance(a.scales, b.scales) == 0);
        CHECK(a.codes.to_vector() == b.codes.to_vector());
        CHECK(distance(ops::dequantize_blockwise(a), ops::dequantize_blockwise(b)) == 0);
      }
}

TEST_CASE("updates of several parameters must be of one device and dtype") {
  const Tensor p = Tensor::zeros({2}), on_meta = Tensor::zeros({2}, DType::f32, kMeta);
  CHECK_THROWS_WITH_AS(ops::sgd_steps({{p, p, {}, {0.1, 0.9, 0, false}}}),
                       doctest::Contains("[sgd] expected a velocity exactly when"), Error);
  const ops::SgdStep plain{0.1, 0, 0, false};
  CHECK_THROWS_WITH_AS(ops::sgd_steps({{p, p, {}, plain}, {on_meta, on_meta, {}, plain}}),
                       doctest::Contains("[sgd] expected all parameters on one device"), Error);
  CHECK_THROWS_WITH_AS(ops::joint_norm({Tensor::zeros({2}, DType::bf16, kMeta)}),
                       doctest::Contains("[joint_norm] expected the parameter of dtype f32"),
                       Error);
}

}  // namespace frugal::optim
