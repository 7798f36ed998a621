// The engine and the saved-tensor seam, apart from any one op.
#include "autograd/engine.h"

#include <doctest/doctest.h>

#include "autograd/checkpoint.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

using namespace frugal;

namespace {

Variable filled(const Shape& shape, double value, bool requires_grad = true) {
  return Variable(Tensor::full(shape, value), requires_grad);
}

int64_t live() {
  const MemoryReport report = allocator(kCpu).report();
  return report.of(Category::activation) + report.of(Category::packed);
}

// Remembers what it was asked and packs by doubling back: lossy on purpose (adds `shift`).
class ShiftCodec : public Codec {
 public:
  explicit ShiftCodec(double shift) : shift_(shift) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    struct Kept : Packed {
      Tensor tensor;
      Tensor unpack() const override { return ops::clone(tensor); }
    };
    auto packed = std::make_unique<Kept>();
    CategoryScope scope(Category::packed);
    packed->tensor = ops::affine(tensor, 1, shift_);
    return packed;
  }

 private:
  double shift_;
};

class Recorder : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    asked.push_back(info);
    return info.rebuilt != Rebuilt::none && take_recipes ? Decision{Decision::rebuild, nullptr}
                                                         : answer;
  }
  std::vector<SaveInfo> asked;
  Decision answer;
  bool take_recipes = false;
};

}  // namespace

TEST_CASE("a variable used twice gets both gradients, and a diamond is walked once") {
  const Variable x = filled({3}, 2);
  const Variable y = mul(x, x);
  backward(sum(add(y, mul(y, x))));  // x^2 + x^3
  CHECK(x.grad().item() == doctest::Approx(4 + 12));
}

TEST_CASE("gradients of several backward passes add up, in storage of their own") {
  const Variable x = filled({2}, 1), z = filled({2}, 1);
  const Tensor dy = Tensor::full({2}, 1);
  for (int i = 0; i < 3; ++i) backward(add(x, z), dy);
  CHECK(x.grad().item() == 3);
  CHECK(z.grad().item() == 3);
  CHECK(dy.item() == 1);
  CHECK(x.grad().storage()->id() != z.grad().storage()->id());
  CHECK(x.grad().storage()->category() == Category::gradient);
}

TEST_CASE("a second backward, a leaf and a root without dy are refused") {
  const Variable x = filled({2}, 1);
  const Variable y = mul(x, x), loss = sum(y);
  backward(loss);
  CHECK_THROWS_WITH_AS(backward(loss), doctest::Contains("was not walked yet"), Error);
  CHECK_THROWS_WITH_AS(backward(sum(y)), doctest::Contains("mul has freed its saved tensors"),
                       Error);
  CHECK_THROWS_WITH_AS(backward(x), doctest::Contains("got a leaf"), Error);
  CHECK_THROWS_WITH_AS(backward(mul(x, x)), doctest::Contains("a root of one element"), Error);
  CHECK_THROWS_WITH_AS(backward(mul(x, x), Tensor::zeros({3})),
                       doctest::Contains("dy like the root"), Error);
}

TEST_CASE("no graph without grad, and none through detach") {
  const Variable x = filled({2}, 3);
  {
    NoGrad no_grad;
    CHECK(mul(x, x).producer() == nullptr);
  }
  CHECK(mul(x.detach(), x.detach()).producer() == nullptr);
  backward(sum(mul(x, x.detach())));
  CHECK(x.grad().item() == 3);
  const Variable y = filled({2}, 1, false);
  backward(sum(mul(x, y)));
  CHECK(!y.grad().defined());
}

TEST_CASE("edges carry no data: only saved tensors of a chain stay alive") {
  const Variable x = filled({1024}, 0.5);
  const int64_t before = live();
  Variable y = x;
  for (int i = 0; i < 5; ++i) y = scale(y, 2);
  CHECK(live() - before == 4096);  // y itself
  y = tanh(y);
  CHECK(live() - before == 4096);  // tanh keeps its output
  y = add_scalar(y, 1);
  CHECK(live() - before == 8192);
}

TEST_CASE("a tensor saved by several ops is kept once, also through a reshape") {
  const Variable x = filled({32, 32}, 0.5);
  const ShiftCodec codec(0);
  Recorder policy;
  policy.answer = {Decision::pack, &codec};
  const Variable ones = Variable::parameter(Tensor::full({1, 32}, 1));
  const int64_t before = live();
  Variable loss;
  {
    PolicyScope scope(&policy);
    begin_step(7);
    const Variable y = scale(x, 1);
    const Variable flat = reshape(y, {1024});
    loss = add(sum(mul(y, y)), add(sum(linear(y, ones)), sum(mul(flat, flat))));
  }
  CHECK(policy.asked.size() == 1);
  CHECK(policy.asked.front().step == 7);
  CHECK(policy.asked.front().seq == 0);
  CHECK(live() - before == 4096 + 64);  // one packed copy and the loss
  backward(loss);
  CHECK(x.grad().item() == doctest::Approx(2 * 0.5 + 1 + 2 * 0.5));
  CHECK(live() - before == 64);
}

TEST_CASE("the strictest request wins: an index or mask is never lossy") {
  const Variable x = filled({8}, 1);
  const ShiftCodec codec(5);
  Recorder policy;
  policy.answer = {Decision::pack, &codec};
  PolicyScope scope(&policy);
  const Variable y = scale(x, 1);
  const Variable squared = mul(y, y);
  // This saves the tensor again, now as a statistic.
  const Variable strict =
      record("strict", {y}, ops::clone(y.value()), {save_whole(y.value())},
             [](const Backward& b) { return Grads{ops::mul(b.dy(), b.saved(0))}; });
  backward(sum(add(squared, strict)));
  CHECK(x.grad().item() == 2 + 1);
}

TEST_CASE("a constant is saved as it is, whatever the policy, and another leaf is asked about") {
  const Variable weight = Variable::parameter(Tensor::full({8}, 2));
  const ShiftCodec codec(5);
  Recorder policy;
  policy.answer = {Decision::pack, &codec};
  PolicyScope scope(&policy);
  const Variable constant = Variable::constant(Tensor::full({8}, 3));
  CHECK(!constant.requires_grad());
  CHECK(constant.is_held());
  backward(sum(mul(constant, weight)));
  CHECK(policy.asked.empty());
  CHECK(weight.grad().data<float>()[0] == 3);
  backward(sum(mul(Variable(Tensor::full({8}, 3)), weight)));
  CHECK(policy.asked.size() == 1);
  CHECK(weight.grad().data<float>()[0] == 3 + 3 + 5);
}

TEST_CASE("a saved tensor written in place is refused, naming the op that saved it") {
  const Variable x = filled({4}, 1);
  const Variable y = scale(x, 1);
  const Variable loss = sum(log(y));
  y.value().mut<float>()[0] = 2;
  y.value().bump_version();
  CHECK_THROWS_WITH_AS(backward(loss),
                       doctest::Contains("[log] expected the [4] f32 on cpu that it saved"), Error);
}

TEST_CASE("slots are freed during the walk, also after an exception") {
  const Variable x = filled({1024}, 0.5);
  const int64_t before = live();
  std::vector<int64_t> seen;
  auto probe = [&](const Variable& v, bool fail) {
    return record("probe", {v}, ops::clone(v.value()), {},
                  [&seen, &before, fail](const Backward& b) {
                    if (fail) throw Error("in the middle");
                    seen.push_back(live() - before);
                    return Grads{b.dy()};
                  });
  };
  Variable loss = sum(probe(tanh(probe(tanh(probe(x, false)), false)), false));
  backward(loss);
  CHECK(seen == std::vector<int64_t>{2 * 4096 + 64, 4096 + 64, 64});
  loss = sum(tanh(probe(tanh(x), true)));
  CHECK_THROWS_WITH_AS(backward(loss), "in the middle", Error);
  loss = Variable();
  CHECK(live() == before);
  CHECK(allocator(kCpu).report().of(Category::workspace) == 0);
}

TEST_CASE("an op whose backward returns a wrong shape is named") {
  const Variable x = filled({4}, 1);
  const Variable y = record("wrong", {x}, ops::clone(x.value()), {},
                            [](const Backward&) { return Grads{Tensor::zeros({3})}; });
  CHECK_THROWS_WITH_AS(
      backward(sum(y)),
      doctest::Contains("[wrong] expected backward to return a gradient of shape [4]"), Error);
}

TEST_CASE("a long chain is walked and destroyed without recursion") {
  const Variable x = filled({1}, 1);
  Variable y = x;
  for (int i = 0; i < 200000; ++i) y = add_scalar(y, 0);
  backward(sum(y));
  CHECK(x.grad().item() == 1);
  y = x;
  for (int i = 0; i < 200000; ++i) y = add_scalar(y, 0);
  y = Variable();
}

TEST_CASE(
    "recipes: relu over batch norm costs one tensor, one sign, and lives until its last consumer") {
  const Shape shape{16, 64};
  const Variable x = filled(shape, 0);
  for (int64_t i = 0; i < x.value().numel(); ++i)
    x.value().mut<float>()[i] = normal({1, 1}, static_cast<uint64_t>(i));
  const Variable w = Variable::parameter(Tensor::full({64, 64}, 0.01));
  Recorder policy;
  policy.take_recipes = true;
  auto network = [&](SavePolicy* p) {
    PolicyScope scope(p);
    const Variable in = scale(x, 1);
    return sum(linear(relu(batch_norm(in, {}, {}, {})), w));
  };
  const int64_t before = live();
  Variable loss = network(&policy);
  // The norm's input, mean and 1/std, the sign, the loss: the linear layer's input costs nothing.
  CHECK(live() - before == 4096 + 2 * 256 + 128 + 64);
  backward(loss);
  CHECK(live() - before == 64);
  const std::vector<double> rebuilt = x.grad().to_vector();
  Variable(x).zero_grad();
  backward(network(nullptr));
  CHECK(x.grad().to_vector() == rebuilt);
}

TEST_CASE(
    "a recipe's quality is told: exact, unbiased when its source is lossy and it is linear, else "
    "biased") {
  const ShiftCodec codec(0);
  auto qualities = [&](bool lossy, auto f) {
    Recorder policy;
    if (lossy) policy.answer = {Decision::pack, &codec};
    PolicyScope scope(&policy);
    const Variable y = f(scale(filled({8, 4}, 0.5), 1));
    const Variable z = mul(y, y);
    return policy.asked.back().rebuilt;
  };
  auto norm = [](const Variable& v) { return batch_norm_relu(v, {}, {}, {}); };
  auto smooth = [](const Variable& v) { return gelu(v); };
  auto square = [](const Variable& v) {
    return record(
        "square", {v}, ops::mul(v.value(), v.value()), {save(v)},
        [](const Backward& b) { return Grads{ops::mul(b.dy(), b.saved(0))}; },
        biased_recipe([](const Slots& s) { return ops::mul(s.unpack(0), s.unpack(0)); }));
  };
  auto none = [](const Variable& v) { return scale(v, 2); };
  CHECK(qualities(false, norm) == Rebuilt::exact);
  CHECK(qualities(true, norm) == Rebuilt::unbiased);
  CHECK(qualities(false, smooth) == Rebuilt::exact);
  CHECK(qualities(true, smooth) == Rebuilt::biased);
  CHECK(qualities(true, square) == Rebuilt::biased);
  CHECK(qualities(false, none) == Rebuilt::none);
}

TEST_CASE(
    "checkpoints: parameters inside, dropout's stream, nesting, and inputs that need no gradient") {
  const Variable x = filled({64}, 1, false);
  const Variable p = Variable::parameter(Tensor::full({64}, 2));
  auto run = [&](bool outer, bool inner) {
    Variable(p).zero_grad();
    Rng rng(5);
    auto core = [&](const Variables& v) { return dropout(mul(v[0], p), 0.5, rng.next()); };
    auto middle = [&](const Variables& v) {
      const Variable y = inner ? checkpoint(core, v, &rng) : core(v);
      return mul(y, y);
    };
    const Variable y = outer ? checkpoint(middle, {x}, &rng) : middle({x});
    const RngKey after = rng.state();
    backward(sum(y));
    CHECK(rng.state() == after);
    CHECK(!recomputing());
    return p.grad().to_vector();
  };
  const auto plain = run(false, false);
  CHECK(plain[0] + plain[1] + plain[2] + plain[3] != 0);
  CHECK(run(true, false) == plain);
  CHECK(run(false, true) == plain);
  CHECK(run(true, true) == plain);
}

TEST_CASE(
    "a checkpoint keeps its inputs only, through the policy, and counts running statistics once") {
  const Variable x = filled({16, 64}, 0);
  for (int64_t i = 0; i < x.value().numel(); ++i)
    x.value().mut<float>()[i] = normal({2, 1}, static_cast<uint64_t>(i));
  const BatchNormStats stats{Tensor::zeros({64}), Tensor::full({64}, 1)};
  const ShiftCodec codec(0);
  Recorder policy;
  policy.answer = {Decision::pack, &codec};
  const int64_t before = live();
  Variable loss;
  {
    PolicyScope scope(&policy);
    const Variable in = scale(x, 1);
    loss = sum(checkpoint([&](const Variables& v) { return tanh(batch_norm(v[0], {}, {}, stats)); },
                          {in}));
  }
  CHECK(live() - before == 4096 + 64);
  CHECK(policy.asked.size() == 1);
  const auto mean = stats.running_mean.to_vector();
  backward(loss);
  CHECK(stats.running_mean.to_vector() == mean);
  CHECK(x.grad().defined());
}

TEST_CASE("graphs of different steps or policies share no entries") {
  const ShiftCodec codec(0.5);
  Recorder lossy, exact;
  lossy.answer = {Decision::pack, &codec};
  const Variable w = filled({4}, 3);
  const Variable x(Tensor::full({4}, 2.0));  // alive throughout, and never written
  const auto product = [&](SavePolicy* policy) {
    PolicyScope scope(policy);
    return sum(mul(x, w));
  };
  const auto gradient = [&](const Variable& loss) {
    w.accumulator()->set({});
    backward(loss);
    return w.grad().to_vector().front();
  };
  begin_step(0);
  const Variable older = product(&lossy);
  CHECK(gradient(product(nullptr)) == 2.0);
  CHECK(gradient(product(&exact)) == 2.0);
  begin_step(1);
  const size_t asked = lossy.asked.size();
  const Variable newer = product(&lossy);
  CHECK(lossy.asked.size() > asked);
  CHECK(lossy.asked.back().step == 1);
  CHECK(gradient(newer) == 2.5);
  CHECK(gradient(older) == 2.5);
}
