// Late arguments: captured updates take the rates and counts of each rerun, and a guard holds them
// back.
#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_late.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "optim/averaged.h"
#include "optim/optimizers.h"
#include "optim/registry.h"
#include "tests/cuda/gpu.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

NamedVariables parameters_of(int count) {
  NamedVariables all;
  for (int i = 0; i < count; ++i) {
    const Shape shape = i % 5 == 0 ? Shape{3, 4} : Shape{2};
    Variable p = Variable::parameter(
        to_device(normals(shape, static_cast<uint64_t>(i), DType::f32), gpu::kCuda));
    p.set_grad(to_device(normals(shape, 5000 + static_cast<uint64_t>(i), DType::f32), gpu::kCuda));
    all.emplace_back(std::to_string(i), p);
  }
  return all;
}

std::vector<double> values_of(const NamedVariables& all, const Optimizer& optimizer) {
  std::vector<double> values;
  const auto add = [&](const Tensor& x) {
    for (const double v : to_device(x, kCpu).to_vector()) values.push_back(v);
  };
  for (const auto& entry : all) add(entry.second.value());
  for (const auto& entry : optimizer.state()) add(entry.second);
  return values;
}

Tensor flag(int value) { return Tensor::full({}, value, DType::u8, gpu::kCuda); }

}  // namespace

TEST_CASE("rerun updates have the rates and counts of their step, of more tables than one") {
  if (!gpu::available()) return;
  using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>&)>;
  for (const Kind& kind : kinds()) {
    const std::string& name = kind.name;
    const Maker make = [&](const auto& g) { return kind.make(g, {}, {.least_elements = 0}); };
    CAPTURE(name);
    const auto averaged = [&make](const NamedVariables& all) {
      return std::make_unique<Averaged>(make({{all, 0.5, 0.1}}), all, EmaOptions{});
    };
    const int count = name == "sgd" ? 700 : 20;  // more than a table lists, and a block holds
    const NamedVariables one = parameters_of(count), two = parameters_of(count);
    const auto run = averaged(one), rerun = averaged(two);
    run->step(0.1);  // makes the state
    rerun->step(0.1);
    cuda::LateArguments late;
    cuda::Graph graph;
    const Tensor guard = flag(1);
    graph.capture([&] {
      Tensor::full({int64_t{1} << 20}, 255, DType::u8, gpu::kCuda);  // its memory is free again
      late.capture(guard, [&] { rerun->step(0.1); });
    });
    rerun->take_back();
    CHECK(values_of(one, *run) == values_of(two, *rerun));  // nothing has run
    for (int i = 0; i < 3; ++i) {
      CAPTURE(i);
      const double lr = 0.1 / (1 + i);
      const int64_t launches = emulator::launches != nullptr ? emulator::launches() : 0;
      late.renew([&] { rerun->step(lr); });
      if (emulator::launches != nullptr) CHECK(emulator::launches() == launches);
      graph.rerun();
      run->step(lr);
      CHECK(values_of(one, *run) == values_of(two, *rerun));
    }
    ops::fill(guard, 0);
    late.renew([&] { rerun->step(0.1); });
    graph.rerun();
    rerun->take_back();
    CHECK(values_of(one, *run) == values_of(two, *rerun));
  }
}

TEST_CASE("what is renewed must be what was captured") {
  if (!gpu::available()) return;
  const NamedVariables all = parameters_of(4);
  Sgd whole({{all}}, {}), part({{{all.begin(), all.begin() + 2}}}, {});
  whole.step(0.1);
  part.step(0.1);
  cuda::LateArguments late;
  cuda::Graph graph;
  CHECK_FALSE(late.captured());
  graph.capture([&] { late.capture(flag(1), [&] { whole.step(0.1); }); });
  CHECK(late.captured());
  CHECK_THROWS_WITH_AS(late.renew([] {}), doctest::Contains("expected 1 late arguments"), Error);
  CHECK_THROWS_WITH_AS(late.renew([&] { part.step(0.1); }),
                       doctest::Contains("expected a late argument as captured"), Error);
  CHECK_THROWS_WITH_AS(late.renew([&] { ops::fill(all[0].second.grad(), 0); }),
                       doctest::Contains("with_late"), Error);
  late.renew([&] { whole.step(0.1); });
  const double before = all[0].second.value().item();
  graph.rerun();
  CHECK(all[0].second.value().item() != before);
}

}  // namespace frugal::optim
