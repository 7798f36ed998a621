// What a checkpoint's function may take and give back.
#include "autograd/checkpoint.h"

#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"

using namespace frugal;

namespace {

Variable filled(double value) { return Variable(Tensor::full({4}, value), true); }
std::vector<double> repeated(double value) { return std::vector<double>(4, value); }

}  // namespace

TEST_CASE("a checkpoint whose function gives back an input gives its gradient to that input") {
  const Variable a = filled(2), b = filled(3);
  const Variable y = checkpoint([](const Variables& in) { return in[1]; }, {a, b});
  backward(sum(mul(y, y)));
  CHECK(!a.has_grad());
  CHECK(b.grad().to_vector() == repeated(6));
}

TEST_CASE("a checkpoint whose function gives back a parameter gives its gradient to that") {
  const Variable a = filled(2), p = Variable::parameter(Tensor::full({4}, 5));
  backward(sum(scale(checkpoint([&](const Variables&) { return p; }, {a}), 3)));
  CHECK(!a.has_grad());
  CHECK(p.grad().to_vector() == repeated(3));
}

TEST_CASE("an undefined input of a checkpoint is undefined in the recomputation, too") {
  const Variable a = filled(2);
  int runs = 0;
  const auto f = [&](const Variables& in) {
    ++runs;
    return in[1].defined() ? mul(in[0], in[1]) : scale(in[0], 7);
  };
  backward(sum(checkpoint(f, {a, Variable()})));
  CHECK(runs == 2);
  CHECK(a.grad().to_vector() == repeated(7));
}

namespace {

// Refuses to lose anything where it is told not to, as policies do.
class Lossy final : public SavePolicy, private Codec {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    lossless += info.lossless ? 1 : 0;
    return info.lossless ? Decision{} : Decision{Decision::pack, this};
  }
  int lossless = 0;

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    struct Zeros : Packed {
      explicit Zeros(const Tensor& like) : shape(like.shape()) {}
      Tensor unpack() const override { return Tensor::zeros(shape); }
      Shape shape;
    };
    return std::make_unique<Zeros>(tensor);
  }
};

}  // namespace

TEST_CASE("a checkpoint's inputs are kept without loss, whoever else keeps them before or after") {
  const auto square = [](const Variables& in) { return mul(in[0], in[0]); };
  for (const bool before : {false, true})
    for (const bool after : {false, true}) {
      CAPTURE(before);
      CAPTURE(after);
      Lossy policy;
      const PolicyScope scope(&policy);
      begin_step(1);
      const Variable a = filled(2), x = scale(a, 1);
      const Variable p = Variable::parameter(Tensor::full({1, 4}, 1));
      Variable loss;
      const auto product = [&] { return sum(linear(reshape(x, {1, 4}), p)); };
      if (before) loss = product();
      Variable squares = sum(checkpoint(square, {x}));
      loss = loss.defined() ? add(loss, squares) : squares;
      if (after) loss = add(loss, product());
      CHECK(policy.lossless == (before ? 0 : 1));
      backward(loss);
      // 2 x of the square, 1 of each product.
      CHECK(a.grad().to_vector() == repeated(4 + (before ? 1 : 0) + (after ? 1 : 0)));
    }
}

namespace {

// Packs all that it is asked about, which comes back as half of it.
class Halves final : public SavePolicy, private Codec {
 public:
  explicit Halves(bool recomputed) : recomputed_(recomputed) {}
  Decision decide(const SaveInfo& info, const Tensor&) override {
    return info.lossless ? Decision{} : Decision{Decision::pack, this};
  }
  bool packs_recomputed() const override { return recomputed_; }
  mutable std::vector<std::pair<uint64_t, uint64_t>> packed;  // step and number

 private:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    struct Half : Packed {
      explicit Half(const Tensor& whole) : values(whole.to_vector()), shape(whole.shape()) {}
      Tensor unpack() const override {
        Tensor half = Tensor::empty(shape);
        for (size_t i = 0; i < values.size(); ++i)
          half.mut<float>()[i] = static_cast<float>(values[i] / 2);
        return half;
      }
      std::vector<double> values;
      Shape shape;
    };
    packed.emplace_back(info.step, info.seq);
    return std::make_unique<Half>(tensor);
  }
  bool recomputed_;
};

}  // namespace

TEST_CASE("a policy may pack what a checkpoint keeps and recomputes, each tensor once") {
  for (const bool recomputed : {false, true}) {
    CAPTURE(recomputed);
    Halves policy(recomputed);
    const Variable a = filled(2);
    Variable loss;
    {
      const PolicyScope scope(&policy, 7);
      // mul saves in[0] twice, and square(in[0]) once.
      loss = sum(checkpoint(
          [](const Variables& in) { return mul(mul(in[0], in[0]), scale(in[0], 1)); }, {a}));
    }
    // The recomputation belongs to the step, whose scope has ended.
    backward(loss);
    if (!recomputed) {
      CHECK(policy.packed.empty());
      CHECK(a.grad().to_vector() == repeated(12));  // 3 x^2
      continue;
    }
    // 2 comes back as 1, its square 1 as 1/2, and 1 that scale() gives as 1/2:
    // 1/2 (1 + 1) + 1/2.
    CHECK(a.grad().to_vector() == repeated(1.5));
    using Packed = std::vector<std::pair<uint64_t, uint64_t>>;
    CHECK(policy.packed == Packed{{7, 0}, {7, 1}, {7, 2}});
  }
}
