// What a step leaves behind when it ends early, when widths change under it, and when it fails:
// nothing, and the next step is right.
#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <set>

#include "autograd/checkpoint.h"
#include "autograd/record.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/offload_policy.h"
#include "tests/integration/random_graph.h"
#include "tests/integration/storage.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr uint64_t kAccountedGraphs = 60;

// Throws at the `fault`-th time that a tensor is packed or that packed bytes are asked for.
struct Faults {
  int64_t seen = 0, fault = -1;
  void pass() {
    if (seen++ == fault) throw Error("planted");
  }
};

class FaultyPacked final : public Packed {
 public:
  FaultyPacked(std::unique_ptr<Packed> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}
  Tensor unpack() const override { return faults_.pass(), inner_->unpack(); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    return faults_.pass(), inner_->unpack_rows(begin, end);
  }
  Tensor unpack_sign() const override { return faults_.pass(), inner_->unpack_sign(); }
  bool carries_sign() const override { return inner_->carries_sign(); }
  bool serves_one_op() const override { return inner_->serves_one_op(); }
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override {
    return faults_.pass(), inner_->unpack_sign_rows(begin, end);
  }
  bool run(PackedPass& pass) const override { return faults_.pass(), inner_->run(pass); }
  bool knows_variance() const override { return inner_->knows_variance(); }
  bool loses_nothing() const override { return inner_->loses_nothing(); }

 private:
  std::unique_ptr<Packed> inner_;
  Faults& faults_;
};

// A policy whose codec fails as told.
class FaultyPolicy final : public SavePolicy, private Codec {
 public:
  explicit FaultyPolicy(const FixedPolicyOptions& options) : inner_(options) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner_.decide(info, value);
    if (decision.codec != nullptr) decision.codec = this;
    return decision;
  }
  int64_t slice_bytes() const override { return inner_.slice_bytes(); }
  Faults& faults() { return faults_; }

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    faults_.pass();
    return std::make_unique<FaultyPacked>(inner_.codec().pack(tensor, info), faults_);
  }
  FixedPolicy inner_;
  mutable Faults faults_;
};

FixedPolicyOptions options_of(int bits, int64_t group, bool recipes, int64_t slice_bytes = 0) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.group = group;
  options.recipes = recipes;
  options.min_elements = 0;
  options.slice_bytes = slice_bytes;
  return options;
}

Variables forward(RandomGraph& graph, SavePolicy* policy, uint64_t step, uint64_t batch = 0) {
  PolicyScope scope(policy);
  begin_step(step);
  return graph.forward(batch);
}

Numbers gradients(RandomGraph& graph, SavePolicy* policy, uint64_t step) {
  graph.zero_grad();
  graph.backward(forward(graph, policy, step));
  Numbers all = graph.gradients();
  graph.zero_grad();
  return all;
}

void check_ready() {
  CHECK(!recomputing());
  CHECK(grad_enabled());
  CHECK(CategoryScope::current() == Category::activation);
}

bool equal(const Numbers& a, const Numbers& b) { return a == b; }

}  // namespace

TEST_CASE("a codec that throws anywhere leaves nothing, and the next step is right") {
  int64_t thrown = 0;
  for (const int64_t slice_bytes : {int64_t{0}, int64_t{512}})
    for (uint64_t seed = 0; seed < kAccountedGraphs; ++seed) {
      CAPTURE(slice_bytes);
      CAPTURE(seed);
      RandomGraph graph(seed);
      FaultyPolicy policy(options_of(4, 256, true, slice_bytes));
      const CategoryBytes before = live();
      const RngKey drawn = graph.rng();
      const Numbers expected = gradients(graph, &policy, seed);
      const auto all = static_cast<uint64_t>(std::exchange(policy.faults().seen, 0));
      if (all == 0) continue;
      for (uint64_t trial = 0; trial < 4; ++trial) {
        // The last of them among others.
        policy.faults() = {0, trial == 0
                                  ? static_cast<int64_t>(all) - 1
                                  : static_cast<int64_t>(uniform_int({seed, 5}, trial, all))};
        CAPTURE(policy.faults().fault);
        CHECK_THROWS_WITH_AS(gradients(graph, &policy, seed), "planted", Error);
        ++thrown;
        graph.zero_grad();
        const bool clean = live() == before;
        CHECK(clean);
        check_ready();
        policy.faults() = {};
        CHECK(equal(gradients(graph, &policy, seed), expected));
      }
      CHECK(graph.rng() == drawn);
    }
  CHECK(thrown > 6 * static_cast<int64_t>(kAccountedGraphs));
}

TEST_CASE("an allocation that fails anywhere leaves nothing, and the next step is right") {
  OffloadOptions file;
  file.directory = std::filesystem::temp_directory_path().string();
  file.window = 2048;
  OffloadPolicy moved(std::make_shared<FixedPolicy>(options_of(4, 256, true)), file, 0);
  FixedPolicy fixed(options_of(2, 64, true, 512));
  int thrown = 0;
  for (uint64_t seed = 0; seed < kAccountedGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    for (SavePolicy* policy : std::initializer_list<SavePolicy*>{nullptr, &fixed, &moved}) {
      const CategoryBytes before = live();
      const Numbers expected = gradients(graph, policy, seed);
      for (uint64_t trial = 0; trial < 6; ++trial) {
        const auto n = static_cast<int64_t>(uniform_int({seed, 6}, trial, trial < 3 ? 40 : 300));
        CAPTURE(n);
        allocator(kCpu).fail_after(n);
        try {
          gradients(graph, policy, seed);
        } catch (const OutOfMemory&) {
          ++thrown;
        }
        allocator(kCpu).fail_after(-1);
        graph.zero_grad();
        const bool clean = live() == before;
        CHECK(clean);
        CHECK(moved.store().resident_bytes() == 0);
        CHECK(moved.store().file().used_bytes() == 0);
        check_ready();
      }
      CHECK(equal(gradients(graph, policy, seed), expected));
    }
  }
  CHECK(thrown > 6 * static_cast<int>(kAccountedGraphs));
}

TEST_CASE("an op that throws in backward, alone and within a checkpoint, leaves nothing") {
  for (const bool checkpointed : {false, true}) {
    CAPTURE(checkpointed);
    FixedPolicy policy(options_of(3, 64, true));
    const Variable w = Variable::parameter(random_values({1, 1}, {8, 8}, DType::f32, kCpu));
    const Variable x(random_values({1, 2}, {64, 8}, DType::f32, kCpu), true);
    Rng rng(5);
    bool throws = false;
    const auto f = [&](const Variables& in) {
      const Variable a = dropout(gelu(linear(in[0], w)), 0.5, rng.next());
      const Variable b =
          record("refuse", {a}, a.value(), {save(a)}, [&throws](const Backward& back) -> Grads {
            if (throws) throw Error("planted");
            return {mul(Variable(back.dy()), Variable(back.saved(0))).value()};
          });
      return batch_norm_add_relu(linear(b, w), in[0], {}, {}, {});
    };
    auto step = [&] {
      rng.restore({5, 0});
      PolicyScope scope(&policy);
      begin_step(1);
      const Variable y = scale(x, 2), z = checkpointed ? checkpoint(f, {y}, &rng) : f({y});
      backward(mean(mul(z, z)));
      return Numbers{x.grad().to_vector(), w.grad().to_vector()};
    };
    auto clear = [&] { Variable(x).zero_grad(), Variable(w).zero_grad(); };
    const CategoryBytes before = live();
    const Numbers expected = step();
    clear();
    for (int i = 0; i < 2; ++i) {
      throws = true;
      CHECK_THROWS_WITH_AS(step(), "planted", Error);
      clear();
      CHECK(rng.state() == RngKey{5, 1});
      check_ready();
      const bool clean = live() == before;
      CHECK(clean);
      throws = false;
      CHECK(equal(step(), expected));
      clear();
    }
  }
}

TEST_CASE("widths and groups change in mid-run, with graphs of both alive") {
  FixedPolicy wide(options_of(8, 256, true)), narrow(options_of(2, 64, false, 512));
  for (uint64_t seed = 0; seed < kAccountedGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    const CategoryBytes before = live();
    // With batch 1, no leaf is saved as it is: two graphs that are alive would share its codes.
    auto alone = [&](SavePolicy& policy, uint64_t step) {
      graph.backward(forward(graph, &policy, step, 1));
      Numbers all = graph.gradients();
      graph.zero_grad();
      return all;
    };
    const Numbers a = alone(wide, 1), b = alone(narrow, 2);
    Variables first = forward(graph, &wide, 1, 1), second = forward(graph, &narrow, 2, 1);
    graph.backward(std::move(second));
    CHECK(equal(graph.gradients(), b));
    graph.zero_grad();
    graph.backward(std::move(first));
    CHECK(equal(graph.gradients(), a));
    graph.zero_grad();
    const bool clean = live() == before;
    CHECK(clean);
    CHECK(equal(alone(narrow, 2), b));
  }
}

TEST_CASE("an adaptive policy's widths, all in one step, are those of quantizers side by side") {
  // One quantizer for each width, by the number of the entry.
  class ByEntry final : public SavePolicy {
   public:
    ByEntry() {
      for (int bits = 1; bits <= 16; ++bits) {
        QuantizeOptions options;
        options.bits = bits;
        quantizers_.emplace_back(options);
      }
    }
    Decision decide(const SaveInfo& info, const Tensor& value) override {
      const Decision decision = keep_.decide(info, value);
      if (decision.what != Decision::pack) return decision;
      const auto at = static_cast<size_t>(info.seq % 16);
      return {Decision::pack, &quantizers_[at], decision.carry_sign};
    }

   private:
    FixedPolicy keep_{options_of(4, 256, false)};
    std::deque<Quantizer> quantizers_;
  };
  AdaptivePolicy::State widths;
  for (uint64_t seq = 0; seq < 400; ++seq) {
    AdaptivePolicy::Item item;
    item.seq = seq;
    item.bits = static_cast<int>(seq % 16) + 1;
    widths.items.push_back(item);
  }
  int different = 0;
  for (uint64_t seed = 0; seed < kAccountedGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    AdaptiveOptions options;
    options.keep = options_of(0, 256, false);
    AdaptivePolicy adaptive(options);
    adaptive.restore(widths);
    ByEntry apart;
    const CategoryBytes before = live();
    Variables one = forward(graph, &adaptive, seed, 1), two = forward(graph, &apart, seed, 1);
    // Widths that change while a graph waits for its backward are those of the next step.
    std::set<int> bits;
    for (const AdaptivePolicy::Item& item : adaptive.items()) {
      bits.insert(item.bits);
      adaptive.measured(item.seq, item.seq % 3 == 0 ? 5.0 : 0.1, 1);
    }
    adaptive.allocate();
    different += bits.size() > 3;
    graph.backward(std::move(one));
    const Numbers mixed = graph.gradients();
    graph.zero_grad();
    graph.backward(std::move(two));
    CHECK(equal(graph.gradients(), mixed));
    graph.zero_grad();
    gradients(graph, &adaptive, seed + 1);
    const bool clean = live() == before;
    CHECK(clean);
  }
  CHECK(different > 20);
}

TEST_CASE("codes of a shared tensor and of its views are kept once, and go with the last") {
  FixedPolicy policy(options_of(4, 256, false));
  const Variable x(random_values({3, 1}, {32, 16, 16}, DType::f32, kCpu), true);
  const int64_t codes = policy.codec().packed_bytes({32, 16, 16});
  const CategoryBytes before = live();
  auto packed = [&] {
    return live()[static_cast<size_t>(Category::packed)] -
           before[static_cast<size_t>(Category::packed)];
  };
  {
    PolicyScope scope(&policy);
    begin_step(0);
    const Variable y = scale(x, 1), flat = reshape(y, {512, 16}), turned = transpose(y, 0, 1);
    Variable squares = mul(y, y), logs = mul(flat, flat), third = mul(turned, turned);
    CHECK(packed() == (codes + 63) / 64 * 64);
    backward(sum(squares));
    squares = {};
    CHECK(packed() == (codes + 63) / 64 * 64);
    // `y` itself was walked by that; what is left of the graph only holds the codes.
    logs = {};
    CHECK(packed() == (codes + 63) / 64 * 64);
    third = {};
    CHECK(packed() == 0);
  }
  Variable(x).zero_grad();
  const bool clean = live() == before;
  CHECK(clean);
}

TEST_CASE("a tensor written in place stops backward, leaves nothing, and the next step is right") {
  for (const int bits : {0, 4}) {
    CAPTURE(bits);
    FixedPolicyOptions options = options_of(bits, 256, false);
    FixedPolicy policy(options);
    const Variable x(random_values({3, 2}, {64, 8}, DType::f32, kCpu), true);
    auto step = [&](bool write) {
      PolicyScope scope(&policy);
      begin_step(0);
      const Variable y = scale(x, 1), z = mul(y, tanh(y));
      if (write) {
        y.value().mut<float>()[0] = 7;
        y.value().bump_version();
      }
      backward(sum(mul(z, z)));
      return Numbers{x.grad().to_vector()};
    };
    const CategoryBytes before = live();
    const Numbers expected = step(false);
    Variable(x).zero_grad();
    // Codes do not care what happens to the tensor that they were made from.
    if (bits == 0)
      CHECK_THROWS_WITH_AS(step(true), doctest::Contains("[mul] expected the"), Error);
    else
      CHECK(equal(step(true), expected));
    Variable(x).zero_grad();
    const bool clean = live() == before;
    CHECK(clean);
    CHECK(equal(step(false), expected));
    Variable(x).zero_grad();
  }
}

TEST_CASE("gradients that accumulated before a failure stay as they were, and go on") {
  FaultyPolicy policy(options_of(4, 64, true));
  int tried = 0;
  for (uint64_t seed = 0; seed < kAccountedGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    const CategoryBytes before = live();
    policy.faults() = {};
    graph.backward(forward(graph, &policy, 1, 0));
    const Numbers one = graph.gradients();
    const int64_t to_first = policy.faults().seen;
    { const Variables roots = forward(graph, &policy, 2, 1); }
    const int64_t packs = policy.faults().seen - to_first;
    CHECK(equal(graph.gradients(), one));
    if (packs > 0) {
      policy.faults() = {0, packs - 1};
      CHECK_THROWS_WITH_AS(forward(graph, &policy, 2, 1), "planted", Error);
      CHECK(equal(graph.gradients(), one));
      ++tried;
    }
    policy.faults() = {};
    graph.backward(forward(graph, &policy, 2, 1));
    const Numbers two = graph.gradients();
    graph.zero_grad();
    const bool clean = live() == before;
    CHECK(clean);
    graph.backward(forward(graph, &policy, 1, 0));
    graph.backward(forward(graph, &policy, 2, 1));
    CHECK(equal(graph.gradients(), two));
    graph.zero_grad();
  }
  CHECK(tried > 20);
}
