// Every row of the op table: CUDA against the CPU, forward and backward, f32 and bf16.
// FRUGAL_TEST_OPS=name,name walks these rows only.
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/autograd/walk.h"
#include "tests/cuda/gpu.h"
#include "tests/error_bounds.h"

namespace frugal::walk {
namespace {

// Whether FRUGAL_TEST_OPS, if set, names the row.
bool is_wanted(const std::string& name) {
  const char* list = std::getenv("FRUGAL_TEST_OPS");
  if (list == nullptr) return true;
  std::istringstream names(list);
  for (std::string each; std::getline(names, each, ',');)
    if (each == name) return true;
  return false;
}

template <class F>
void each_wanted(F f) {
  each_case([&](const Op& op, const Case& c) {
    if (is_wanted(op.name)) f(op, c);
  });
}

}  // namespace

TEST_CASE("f32 on CUDA agrees with the CPU") {
  if (!gpu::available()) return;
  each_wanted([](const Op& op, const Case& c) {
    const Result expected = run(c.run, op_table::make_inputs(c, DType::f32));
    const Result got = run(c.run, op_table::make_inputs(c, DType::f32, gpu::kCuda));
    compare(expected, got, op.tolerance);
  });
}

TEST_CASE("bf16 on CUDA agrees with f32 on the CPU") {
  if (!gpu::available()) return;
  each_wanted([](const Op&, const Case& c) {
    // The CPU gets these values rounded to bf16.
    Variables rounded = op_table::make_inputs(c, DType::f32);
    for (Variable& x : rounded)
      if (!x.is_held())
        x = Variable(ops::cast(ops::cast(x.value(), DType::bf16), DType::f32), true);
    const Result expected = run(c.run, rounded);
    const Result got = run(c.run, op_table::make_inputs(c, DType::bf16, gpu::kCuda));
    compare(expected, got, frugal_test::bf16_bound());
  });
}

TEST_CASE("CUDA gives the same bits again") {
  if (!gpu::available()) return;
  each_wanted([](const Op&, const Case& c) {
    const Result first = run(c.run, op_table::make_inputs(c, DType::f32, gpu::kCuda));
    const Result second = run(c.run, op_table::make_inputs(c, DType::f32, gpu::kCuda));
    CHECK(first.output == second.output);
    CHECK(first.grads == second.grads);
  });
}

TEST_CASE("CUDA keeps the bytes that the CPU keeps") {
  if (!gpu::available()) return;
  each_wanted([](const Op&, const Case& c) {
    const auto kept = [&](Device device) {
      const Variables inputs = op_table::make_inputs(c, DType::f32, device);
      const int64_t before = live_bytes(device);
      const Variable y = c.run(inputs);
      return live_bytes(device) - before;
    };
    CHECK(kept(gpu::kCuda) == kept(kMeta));
  });
}

}  // namespace frugal::walk
