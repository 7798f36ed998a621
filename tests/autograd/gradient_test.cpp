// Gradients in slices, and leaves told of as soon as their gradients are complete.
#include "autograd/gradient.h"

#include <doctest/doctest.h>

#include <map>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/inplace.h"
#include "tests/autograd/copy_codec.h"

using namespace frugal;

namespace {

Tensor counting(const Shape& shape, double first = 0) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = static_cast<float>(first + static_cast<double>(i % 37) * 0.25);
  return x;
}

// Packs everything, exactly, and asks for slices of one item.
class Copies : public SavePolicy {
 public:
  Decision decide(const SaveInfo&, const Tensor&) override { return {Decision::pack, &codec_}; }
  int64_t slice_bytes() const override { return 1; }

 private:
  CopyCodec codec_;
};

}  // namespace

TEST_CASE("a gradient of parts frees each part as the whole grows, unless others share them") {
  static constexpr int64_t kItems = 10, kWide = 1 << 12;
  const auto made = [&] {
    std::vector<Tensor> parts;
    for (int64_t begin = 0; begin < kItems; begin += 4)
      parts.push_back(counting({std::min<int64_t>(4, kItems - begin), kWide}, double(begin)));
    return Gradient({kItems, 2 * kWide}, 4, std::move(parts),
                    [](const Tensor& in, const Tensor& out) {
                      ops::fill(out, 0);
                      ops::copy_into(out.slice(1, 0, kWide), in);
                    });
  };
  Gradient g = made();
  CHECK(g.defined());
  CHECK(g.is_small());
  CHECK(!g.is_whole());
  CHECK(g.shape() == Shape{kItems, 2 * kWide});
  const Gradient shared = g;
  Tensor rows = ops::clone(g.rows(3, 9));  // rows of all three parts
  CHECK(shared.rows(3, 9).to_vector() == rows.to_vector());
  CHECK(rows.item(0) == 0.25 * (3 * kWide % 37));
  CHECK(rows.item(2 * kWide) == 4);  // the first of the second part
  const Tensor of_shared = g.whole();
  CHECK(shared.rows(3, 9).to_vector() == rows.to_vector());
  CHECK(ops::clone(of_shared.slice(0, 3, 9)).to_vector() == rows.to_vector());

  Gradient alone = made();
  Allocator& memory = allocator(kCpu);
  const int64_t before = memory.report().live_total;
  memory.reset_peak();
  CHECK(alone.whole().to_vector() == of_shared.to_vector());
  CHECK(alone.is_whole());
  const int64_t part = 4 * kWide * 4, whole = kItems * 2 * kWide * 4;
  CHECK(memory.report().live_total == before + whole - kItems * kWide * 4);
  // The parts that are left when the whole is there to the end: the last one.
  CHECK(memory.report().peak_total < before + whole - part);
  CHECK(alone.whole().storage()->category() == Category::gradient);
}

TEST_CASE("slices and the whole are the same gradient, made once") {
  const Tensor source = counting({5, 3});
  std::vector<std::pair<int64_t, int64_t>> made;
  Gradient g(source, 2, [&](int64_t begin, int64_t end, const Tensor& out) {
    made.emplace_back(begin, end);
    ops::copy_into(out, source.slice(0, begin, end));
  });
  CHECK(g.defined());
  CHECK(!g.is_whole());
  CHECK(g.shape() == Shape{5, 3});
  CHECK(g.dtype() == DType::f32);
  const Tensor part = g.rows(1, 3);
  CHECK(part.to_vector() == ops::clone(source.slice(0, 1, 3)).to_vector());
  CHECK(part.storage()->category() == Category::workspace);
  made.clear();
  CHECK(g.whole().to_vector() == source.to_vector());
  CHECK(g.whole().storage()->category() == Category::gradient);
  CHECK(made == std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 4}, {4, 5}});
  CHECK(g.rows(3, 5).storage() == g.whole().storage());
  const Tensor taken = std::move(g).take();
  CHECK(is_sole_owner(taken));
  CHECK(!Gradient().defined());
}

TEST_CASE("a block's last norm and its shortcut hold one large gradient") {
  const Shape narrow{128, 8, 8, 4}, wide{128, 8, 8, 64};
  const int64_t large = wide.numel() * 4;
  auto peak = [&](SavePolicy* policy) {
    PolicyScope scope(policy);
    begin_step(0);
    const Variable in(counting(narrow), true),
        shortcut = add_scalar(Variable(counting(wide), true), 1);
    const Variable w = Variable::parameter(counting({64, 1, 1, 4}, -4));
    Variable y = batch_norm_add_relu(conv2d(scale(in, 1), w, {}, {}), shortcut, {}, {}, {});
    Tensor dy = counting(wide, -3);
    y = scale(y, 1);  // dy stays the caller's
    allocator(kCpu).reset_peak();
    backward(y, dy);
    CHECK(in.grad().defined());
    return allocator(kCpu).report().peak[static_cast<size_t>(Category::gradient)];
  };
  Copies copies;
  CHECK(peak(nullptr) > 2 * large);  // gradients of the shortcut and of the norm's input
  CHECK(2 * peak(&copies) < 3 * large);
}

TEST_CASE("a linear layer releases its unpacked input before it makes the input's gradient") {
  Copies copies;
  PolicyScope scope(&copies);
  begin_step(0);
  const Variable x = scale(Variable(counting({256, 512}), true), 1);
  const Variable w = Variable::parameter(counting({4, 512}, -4));
  const Variable loss = sum(linear(x, w));
  const int64_t large = x.value().nbytes();
  const MemoryReport before = allocator(kCpu).report();
  allocator(kCpu).reset_peak();
  backward(loss);
  const int64_t more = allocator(kCpu).report().peak_total - before.live_total;
  CHECK(more >= large);
  CHECK(2 * more < 3 * large);
}

TEST_CASE("a leaf is reported once, when all terms of its gradient are there") {
  const Tensor at = counting({4}, 1);
  std::map<const GradAccumulator*, std::vector<double>> seen;
  Variable a = Variable::parameter(ops::clone(at)), b = Variable::parameter(ops::clone(at));
  auto loss = [&] { return sum(add(mul(a, b), mul(mul(b, b), a))); };
  backward(loss());
  const auto da = a.grad().to_vector(), db = b.grad().to_vector();
  a.zero_grad();
  b.zero_grad();
  backward(loss(), {}, [&](GradAccumulator& leaf) {
    CHECK(seen.emplace(&leaf, leaf.whole().to_vector()).second);
    leaf.set({});
  });
  CHECK(seen.size() == 2);
  CHECK(seen.at(a.accumulator().get()) == da);
  CHECK(seen.at(b.accumulator().get()) == db);
  CHECK(!a.grad().defined());
}

TEST_CASE("a leaf may be written when its gradient is complete, and not before") {
  auto updated = [](bool in_backward) {
    Variable w = Variable::parameter(counting({6, 6}, -2));
    auto update = [&](GradAccumulator& leaf) {
      float* value = Tensor(w.value()).mut<float>();
      for (int64_t i = 0; i < w.value().numel(); ++i)
        value[i] -= 0.01f * leaf.whole().data<float>()[i];
      w.value().bump_version();
    };
    const Variable x(counting({2, 6}), true);
    const Variable y = linear(tanh(linear(linear(x, w), w)), w);
    backward(sum(mul(y, y)), {},
             in_backward ? LeafFn([&](GradAccumulator& leaf) {
               if (&leaf == w.accumulator().get()) update(leaf);
             })
                         : LeafFn());
    if (!in_backward) update(*w.accumulator());
    return w.value().to_vector();
  };
  CHECK(updated(true) == updated(false));
}

TEST_CASE("the gradient of an input of concat does not keep that of the output alive") {
  const auto live = [] { return allocator(kCpu).report().of(Category::gradient); };
  struct AtTanh : BackwardObserver {
    void before(const BackwardStep& step, const Tensor& dy) override {
      if (std::string(step.op) != "tanh") return;
      bytes = allocator(kCpu).report().of(Category::gradient);
      dense = dy.is_contiguous();
    }
    int64_t bytes = 0;
    bool dense = false;
  } seen;
  const auto run = [&](int64_t columns) {
    const Variable kept(counting({8, columns}), true), dropped(counting({8, 64 - columns}));
    const int64_t before = live();
    const Variable both = concat({tanh(kept), dropped}, 1);
    backward(sum(mul(both, both)), {}, {}, &seen);
    seen.bytes -= before;
  };
  run(16);
  CHECK(seen.dense);
  CHECK(seen.bytes == 8 * 16 * 4);
  run(48);  // a copy beside the output's gradient would take more than it frees
  CHECK(seen.bytes == 8 * 64 * 4);
}

TEST_CASE("checkpoints hide their parameters, so that leaves cannot be used up") {
  const Variable w = Variable::parameter(counting({4, 4}));
  const Variable x(counting({2, 4}), true);
  const Variable y =
      checkpoint([&](const Variables& in) { return linear(in[0], w); }, {x}, nullptr);
  CHECK_THROWS_WITH_AS(backward(sum(y), {}, [](GradAccumulator&) {}),
                       doctest::Contains("without checkpoints"), Error);
}
