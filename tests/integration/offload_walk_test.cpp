// Saved tensors in a file under every function of the op table, and under failing allocations.
#include <doctest/doctest.h>
#include <unistd.h>

#include "autograd/engine.h"
#include "bench/op_table/op_table.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/offload_policy.h"
#include "tests/integration/storage.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

std::shared_ptr<FixedPolicy> fixed(int bits, bool recipes) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.recipes = recipes;
  options.min_elements = 0;
  return std::make_shared<FixedPolicy>(options);
}

std::vector<std::vector<double>> gradients(const op_table::Case& c, SavePolicy* policy) {
  PolicyScope scope(policy);
  begin_step(0);
  const Variables inputs = op_table::make_inputs(c, DType::f32);
  const Variable y = c.run(inputs);
  backward(y, Tensor::full(y.shape(), 0.5));
  std::vector<std::vector<double>> all;
  for (const Variable& x : inputs)
    all.push_back(x.grad().defined() ? x.grad().to_vector() : std::vector<double>{});
  return all;
}

}  // namespace

TEST_CASE("every function has the same gradients with what it saves in a file") {
  for (int bits : {0, 4})
    for (int64_t window : {int64_t{0}, int64_t{512}, int64_t{1} << 20}) {
      const auto alone = fixed(bits, true);
      const auto policy = moved(fixed(bits, true), window);
      const PayloadStore& store = policy->store();
      for (const op_table::Op& op : op_table::rows())
        for (const op_table::Case& c : op.cases) {
          CAPTURE(bits);
          CAPTURE(window);
          CAPTURE(op.name);
          CAPTURE(c.name);
          const bool equal = gradients(c, policy.get()) == gradients(c, alone.get());
          CHECK(equal);
          CHECK(store.resident_bytes() == 0);
          CHECK(store.file().used_bytes() == 0);
        }
      // All that an op saves is a few KiB. A window of which less than half is used writes nothing.
      CAPTURE(bits);
      CAPTURE(window);
      CHECK((store.stats().written > 0) == (window < 1 << 20));
      CHECK((store.stats().read > 0) == (window < 1 << 20));
    }
}

TEST_CASE("an allocation that fails anywhere leaves nothing in memory or in the file") {
  for (int bits : {0, 4}) {
    const auto policy = moved(fixed(bits, true), 0);
    const PayloadStore& store = policy->store();
    for (const op_table::Op& op : op_table::rows()) {
      const op_table::Case& c = op.cases.front();
      CAPTURE(op.name);
      const int64_t before = allocator(kCpu).report().live_total;
      // A read ahead that finds no memory is no failure: a few steps that end well are not the end.
      for (int64_t n = 0, ended_well = 0; ended_well < 8; ++n) {
        CAPTURE(n);
        REQUIRE(n < 1000);
        allocator(kCpu).fail_after(n);
        try {
          gradients(c, policy.get());
          ++ended_well;
        } catch (const OutOfMemory&) {
        }
        allocator(kCpu).fail_after(-1);
        CHECK(allocator(kCpu).report().live_total == before);
        CHECK(store.resident_bytes() == 0);
        CHECK(store.file().used_bytes() == 0);
      }
    }
  }
}
