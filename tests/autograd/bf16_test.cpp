// Every row of the op table in bf16 on the CPU against f64, forward and backward.
#include "ops/precision.h"
#include "tests/autograd/walk.h"
#include "tests/error_bounds.h"

using namespace frugal;
using namespace frugal::walk;

namespace {

// The values that bf16 inputs and their f32 parameters have, in f64.
Variables same_in_f64(const Case& c) {
  const Variables halves = op_table::make_inputs(c, DType::bf16);
  Variables inputs = op_table::make_inputs(c, DType::f64);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor values = ops::cast(halves[i].value(), DType::f64);
    inputs[i] = halves[i].is_held() ? Variable::parameter(values) : Variable(values, true);
  }
  return inputs;
}

void check_rows() {
  each_case([](const Op&, const Case& c) {
    const Result expected = run(c.run, same_in_f64(c));
    const Result got = run(c.run, op_table::make_inputs(c, DType::bf16));
    compare(expected, got, frugal_test::bf16_bound());
  });
}

}  // namespace

TEST_CASE("bf16 on the CPU agrees with f64: products of f32") {
  ops::set_bf16_products(false);
  check_rows();
  ops::set_bf16_products(true);
}

TEST_CASE("bf16 on the CPU agrees with f64: products of bf16, where the processor has them") {
  if (ops::bf16_products()) check_rows();
}
