#include <doctest/doctest.h>

#include <thread>

#include "autograd/functions.h"
#include "autograd/saved_tensor.h"

using namespace frugal;

namespace {

// Writes down which step and number each saved tensor has.
class StepRecorder : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    seen.emplace_back(info.step, info.seq);
    return {};
  }
  std::vector<std::pair<uint64_t, uint64_t>> seen;
};

using Numbering = std::vector<std::pair<uint64_t, uint64_t>>;

void save_one() {
  const Variable a(Tensor::of({1, 2}), true);
  exp(a);
}

// Each case in a thread of its own, which has begun no step.
template <class F>
Numbering seen_by(F f) {
  StepRecorder policy;
  std::thread([&] { f(policy); }).join();
  return policy.seen;
}

}  // namespace

TEST_CASE("a policy's scope starts a step") {
  CHECK(seen_by([](StepRecorder& policy) {
          for (int step = 0; step < 3; ++step) {
            const PolicyScope scope(&policy);
            save_one();
            save_one();
          }
        }) == Numbering{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}});
}

TEST_CASE("who calls begin_step() numbers the steps") {
  CHECK(seen_by([](StepRecorder& policy) {
          for (const uint64_t step : {7, 5}) {
            begin_step(step);
            const PolicyScope scope(&policy);
            save_one();
          }
          for (const uint64_t step : {3, 4}) {
            const PolicyScope scope(&policy);
            begin_step(step);
            save_one();
          }
          const PolicyScope scope(&policy, 9);
          save_one();
        }) == Numbering{{7, 0}, {5, 0}, {3, 0}, {4, 0}, {9, 0}});
}

TEST_CASE("without a number, a step follows the last one") {
  CHECK(seen_by([](StepRecorder& policy) {
          {
            const PolicyScope scope(&policy, 40);
            save_one();
          }
          const PolicyScope scope(&policy);
          save_one();
        }) == Numbering{{40, 0}, {41, 0}});
}

TEST_CASE("scopes inside of a step start none") {
  CHECK(seen_by([](StepRecorder& policy) {
          const PolicyScope scope(&policy);
          save_one();
          {
            const PolicyScope inner(&policy);
            save_one();
          }
          {
            const PolicyScope raw(nullptr);
            save_one();
            const PolicyScope again(&policy);
            save_one();
          }
          save_one();
        }) == Numbering{{0, 0}, {0, 1}, {0, 2}, {0, 3}});
  // Without a policy nothing is numbered, so a scope of none starts no step.
  CHECK(seen_by([](StepRecorder& policy) {
          for (int step = 0; step < 2; ++step) {
            {
              const PolicyScope raw(nullptr);
              save_one();
            }
            const PolicyScope scope(&policy);
            save_one();
          }
        }) == Numbering{{0, 0}, {1, 0}});
}
