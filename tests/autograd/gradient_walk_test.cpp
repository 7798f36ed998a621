// Gradients, precision, layouts: finite differences check f64, f64 checks f32, contiguous checks
// strided.
#include "autograd/checkpoint.h"
#include "ops/dense/copy.h"
#include "tests/autograd/walk.h"

using namespace frugal;
using namespace frugal::walk;

TEST_CASE("every gradient equals central differences in f64") {
  constexpr double kStep = 1e-6;
  each_case([](const Op&, const Case& c) {
    if (!c.smooth) return;
    Variables inputs = op_table::make_inputs(c, DType::f64);
    const Result exact = run(c.run, inputs);
    auto objective = [&] {
      NoGrad no_grad;
      const Variable y = c.run(inputs);
      const std::vector<double> values = y.value().to_vector(),
                                dy = projection(y.value()).to_vector();
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) sum += values[i] * dy[i];
      return sum;
    };
    for (size_t k = 0; k < inputs.size(); ++k) {
      double* x = inputs[k].value().mut<double>();
      for (int64_t i = 0; i < inputs[k].value().numel(); ++i) {
        const double at = x[i];
        x[i] = at + kStep;
        const double above = objective();
        x[i] = at - kStep;
        const double below = objective();
        x[i] = at;
        const double expected = (above - below) / (2 * kStep);
        const double got = exact.grads[k].empty() ? 0 : exact.grads[k][static_cast<size_t>(i)];
        CAPTURE(k);
        CAPTURE(i);
        REQUIRE(got == doctest::Approx(expected).epsilon(1e-6).scale(1));
      }
    }
  });
}

TEST_CASE("f32 agrees with f64") {
  each_case([](const Op& op, const Case& c) {
    const Result fine = run(c.run, op_table::make_inputs(c, DType::f64));
    const Result coarse = run(c.run, op_table::make_inputs(c, DType::f32));
    CHECK(distance(fine.output, coarse.output) <=
          op.tolerance * std::max(1.0, largest(fine.output)));
    for (size_t k = 0; k < fine.grads.size(); ++k)
      CHECK(distance(fine.grads[k], coarse.grads[k]) <=
            op.tolerance * std::max(1.0, largest(fine.grads[k])));
  });
}

TEST_CASE("an input's layout does not matter") {
  each_case([](const Op&, const Case& c) {
    const Variables dense = op_table::make_inputs(c, DType::f32);
    Variables strided;
    for (const Variable& x : dense) {
      // These values lie in memory with the axes in the opposite order, and a hole after each
      // element.
      const Tensor& value = x.value();
      Shape shape;
      for (int axis = value.dim() - 1; axis >= 0; --axis) shape.push_back(value.shape()[axis]);
      shape.push_back(2);
      const Tensor room = Tensor::zeros(shape);
      std::vector<int> axes;
      for (int axis = value.dim() - 1; axis >= 0; --axis) axes.push_back(axis);
      const Tensor view = room.select(-1, 0).permute(axes);
      ops::copy_into(view, value);
      strided.push_back(x.is_held() ? Variable::parameter(view) : Variable(view, true));
    }
    const Result a = run(c.run, dense), b = run(c.run, strided);
    CHECK(a.output == b.output);
    CHECK(a.grads == b.grads);
  });
}

TEST_CASE("a checkpoint gives the same bits") {
  each_case([](const Op&, const Case& c) {
    const Result plain = run(c.run, op_table::make_inputs(c, DType::f32));
    const Result recomputed =
        run([&](const Variables& inputs) { return checkpoint(c.run, inputs); },
            op_table::make_inputs(c, DType::f32));
    CHECK(plain.output == recomputed.output);
    CHECK(plain.grads == recomputed.grads);
  });
}

TEST_CASE("mistakes are refused with their op and what was expected") {
  for (const Op& op : op_table::rows())
    for (const op_table::Failure& failure : op.failures) {
      CAPTURE(op.name);
      CAPTURE(failure.message);
      std::string message;
      try {
        failure.run();
      } catch (const Error& error) {
        message = error.what();
      }
      CHECK_MESSAGE(message.find(failure.message) != std::string::npos, message);
      CHECK(message.starts_with("["));
    }
}
