// Training steps whose saved tensors lie in a file.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/offload_policy.h"
#include "tests/compress/identity.h"
#include "tests/integration/images.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

struct Setting {
  int bits = 4;
  bool recipes = true;
  int64_t slice_bytes = 0;
};

const std::vector<Setting> kSettings = {{0, false, 0}, {0, true, 0}, {0, true, 5 * kImage},
                                        {4, false, 0}, {4, true, 0}, {4, true, 5 * kImage}};

std::shared_ptr<FixedPolicy> fixed(const Setting& setting) {
  FixedPolicyOptions options;
  options.bits = setting.bits;
  options.recipes = setting.recipes;
  options.min_elements = 0;
  options.slice_bytes = setting.slice_bytes;
  return std::make_shared<FixedPolicy>(options);
}

struct Moved {
  explicit Moved(const Setting& setting, int64_t window, int64_t max_bytes = 0) {
    std::string pattern = (std::filesystem::temp_directory_path() / "frugal_off_XXXXXX").string();
    folder = mkdtemp(pattern.data());
    OffloadOptions options;
    options.directory = folder;
    options.window = window;
    options.max_bytes = max_bytes;
    policy = std::make_unique<OffloadPolicy>(fixed(setting), options, 0);
  }
  ~Moved() {
    CHECK(std::filesystem::is_empty(folder));
    std::filesystem::remove(folder);
  }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;
  bool is_empty() const {
    return policy->store().resident_bytes() == 0 && policy->store().file().used_bytes() == 0;
  }
  std::string folder;
  std::unique_ptr<OffloadPolicy> policy;
};

// What OffloadPolicy moves, kept in memory: raw tensors are copied, and so taken in slices.
class Copying final : public SavePolicy {
 public:
  explicit Copying(std::shared_ptr<SavePolicy> inner) : inner_(std::move(inner)) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    SaveInfo seen = info;
    if (info.rebuilt != Rebuilt::none) seen.rebuilt = Rebuilt::exact;
    Decision decision = inner_->decide(seen, value);
    if (decision.codec != nullptr) return decision;
    if (value.storage()->category() == Category::input) return decision;
    decision.codec = &identity_;
    if (decision.what == Decision::raw) decision.what = Decision::pack;
    return decision;
  }
  int64_t slice_bytes() const override { return inner_->slice_bytes(); }

 private:
  std::shared_ptr<SavePolicy> inner_;
  Identity identity_;
};

// Residual blocks, a smooth function and one that throws in backward if asked to.
struct OffloadedNet {
  explicit OffloadedNet(Device on = kCpu, int blocks = 3) : device(on) {
    CategoryScope scope(Category::input);
    x = Variable(values({kN, kSide, kSide, kC}, device, 1), true);
    for (int i = 0; i < 2 * blocks; ++i)
      weights.push_back(Variable::parameter(values({kC, 3, 3, kC}, device, i + 2)));
  }

  Variable block(const Variable& in, size_t i) const {
    Conv2dOptions options;
    options.padding = {1, 1};
    const Variable a = batch_norm_relu(conv2d(in, weights[i], {}, options), {}, {}, {});
    return batch_norm_add_relu(conv2d(a, weights[i + 1], {}, options), in, {}, {}, {});
  }

  Variable forward(SavePolicy* policy, bool checkpoints = false, bool throws = false) const {
    PolicyScope scope(policy);
    begin_step(1);
    Variable y = batch_norm_relu(scale(x, 1), {}, {}, {});
    for (size_t i = 0; i < weights.size(); i += 2) {
      if (i == 2 && throws)
        y = record("refuse", {y}, y.value(), {},
                   [](const Backward&) -> Grads { throw Error("refused"); }, {});
      const auto f = [this, i](const Variables& in) { return block(in[0], i); };
      y = checkpoints ? checkpoint(f, {y}) : f({y});
    }
    return sum(gelu(y));
  }

  std::vector<std::vector<double>> step(SavePolicy* policy, bool checkpoints = false) {
    backward(forward(policy, checkpoints));
    return gradients();
  }

  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all{x.grad().to_vector()};
    for (const Variable& w : weights) all.push_back(w.grad().to_vector());
    return all;
  }

  int64_t live() const { return allocator(device).report().live_total; }

  Device device;
  Variable x;
  Variables weights;
};

}  // namespace

TEST_CASE("a step with its saved tensors in a file gives the same bits") {
  for (const Setting& setting : kSettings)
    for (int64_t window : {int64_t{0}, 3 * kFull}) {
      CAPTURE(setting.bits);
      CAPTURE(setting.recipes);
      CAPTURE(setting.slice_bytes);
      CAPTURE(window);
      OffloadedNet there, here;
      Copying copying(fixed(setting));
      SavePolicy* const alone = setting.bits == 0 && setting.slice_bytes > 0 ? &copying : nullptr;
      const std::shared_ptr<FixedPolicy> plain = fixed(setting);
      const auto expected = here.step(alone != nullptr ? alone : plain.get());
      Moved moved(setting, window);
      const int64_t before = there.live();
      const bool equal = there.step(moved.policy.get()) == expected;
      CHECK(equal);
      CHECK(moved.is_empty());
      // Gradients accumulate, and the second step takes the places that the first one left, up to
      // the order in which the thread gave them back.
      const int64_t length = moved.policy->store().file().file_bytes();
      CHECK(there.step(moved.policy.get()) == here.step(alone != nullptr ? alone : plain.get()));
      CHECK(moved.is_empty());
      if (window == 0) {
        CHECK(moved.policy->store().stats().written > 0);
        CHECK(moved.policy->store().file().file_bytes() < 3 * length / 2);
      }
      there.x.zero_grad();
      for (Variable& w : there.weights) w.zero_grad();
      CHECK(there.live() == before);
    }
}

TEST_CASE("checkpoint segments keep their inputs in the file") {
  for (int bits : {0, 4}) {
    const Setting setting{bits, true, 0};
    OffloadedNet here, there;
    const auto plain = fixed(setting);
    Moved moved(setting, 0);
    const bool equal = there.step(moved.policy.get(), true) == here.step(plain.get(), true);
    CHECK(equal);
    CHECK(moved.policy->store().stats().written > 0);
    CHECK(moved.is_empty());
  }
}

TEST_CASE("whatever ends a graph, nothing of it stays in memory or in the file") {
  for (const Setting& setting : kSettings)
    for (int64_t window : {int64_t{0}, kFull}) {
      CAPTURE(setting.bits);
      CAPTURE(window);
      OffloadedNet net;
      Moved moved(setting, window);
      const int64_t before = net.live();
      { const Variable loss = net.forward(moved.policy.get()); }
      CHECK(moved.is_empty());
      CHECK(net.live() == before);
      {
        const Variable loss = net.forward(moved.policy.get(), false, true);
        CHECK_THROWS_WITH_AS(backward(loss), "refused", Error);
      }
      CHECK(moved.is_empty());
      net.x.zero_grad();
      for (Variable& w : net.weights) w.zero_grad();
      CHECK(net.live() == before);
    }
}

TEST_CASE("saved tensors take no more memory than the window") {
  for (int bits : {0, 4}) {
    const Setting setting{bits, false, 0};
    OffloadedNet net;
    const int64_t all = [&] {
      Moved moved(setting, int64_t{1} << 40);
      const Variable loss = net.forward(moved.policy.get());
      return moved.policy->store().resident_bytes();
    }();
    const int64_t window = all / 4, largest = bits == 0 ? kFull : kFull / 6;
    Moved moved(setting, window);
    const int64_t before = allocator(kCpu).report().of(Category::packed);
    allocator(kCpu).reset_peak();
    net.step(moved.policy.get());
    const int64_t peak = allocator(kCpu).report().peak[static_cast<size_t>(Category::packed)];
    CHECK(peak <= before + window + largest);
    CHECK(moved.policy->store().stats().written >= all - window - largest);
  }
}

TEST_CASE("a full file stops the step, not the policy") {
  const Setting setting{4, false, 0};
  OffloadedNet net, small(kCpu, 1), other(kCpu, 1);
  Moved moved(setting, kFull / 2, kFull / 2);
  const int64_t before = net.live();
  CHECK_THROWS_WITH_AS(net.forward(moved.policy.get()),
                       doctest::Contains("[offload] expected to write "), Error);
  CHECK(moved.is_empty());
  CHECK(net.live() == before);
  const bool equal = small.step(moved.policy.get()) == other.step(fixed(setting).get());
  CHECK(equal);
  CHECK(moved.is_empty());
}

TEST_CASE("on meta a step counts the window and writes nothing") {
  for (int bits : {0, 4}) {
    OffloadedNet net(kMeta);
    Moved moved({bits, true, 0}, kFull / 4);
    const int64_t before = net.live();
    {
      const Variable loss = net.forward(moved.policy.get());
      const int64_t resident = moved.policy->store().resident_bytes();
      CHECK(resident > 0);
      CHECK(resident <= (bits == 0 ? kFull : kFull / 4));
      // Beside it, masks, statistics and the last output.
      if (bits == 0) CHECK(net.live() - before < resident + 2 * kFull);
      backward(loss);
    }
    net.x.zero_grad();
    for (Variable& w : net.weights) w.zero_grad();
    CHECK(net.live() == before);
    CHECK(moved.is_empty());
    CHECK(moved.policy->store().file().file_bytes() == 0);
  }
}
