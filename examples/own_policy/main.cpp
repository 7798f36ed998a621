// A codec, a save policy and a network of one's own. The network learns in which quarter of an
// image a bright spot lies. Its first activations are kept in 16 bits, the others in 4.
#include <frugal/frugal.h>

#include <cstdio>
#include <memory>

using namespace frugal;

// ---- a codec: keeps bf16, which is the upper half of an f32
class Bf16Packed : public Packed {
 public:
  explicit Bf16Packed(const Tensor& x) : dtype_(x.dtype()) {
    const CategoryScope scope(Category::packed);  // the allocator counts these bytes as packed
    kept_ = ops::cast(x, DType::bf16);
  }
  Tensor unpack() const override {
    const CategoryScope scope(Category::workspace);
    return ops::cast(kept_, dtype_);
  }

 private:
  DType dtype_;
  Tensor kept_;
};

class Bf16Codec : public Codec {
 public:
  std::unique_ptr<Packed> pack(const Tensor& x, const SaveInfo&) const override {
    return std::make_unique<Bf16Packed>(x);
  }
};

// ---- a policy: the first `count` tensors of a step by that codec, all others in 4 bits
class FirstInBf16 : public SavePolicy {
 public:
  explicit FirstInBf16(uint64_t count) : count_(count), rest_({.bits = 4, .min_elements = 1024}) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision =
        rest_.decide(info, value);  // it also says what stays raw and what is rebuilt
    if (decision.what == Decision::pack && info.seq < count_) decision.codec = &codec_;
    return decision;
  }

 private:
  uint64_t count_;
  Bf16Codec codec_;
  compress::FixedPolicy rest_;
};

// ---- a network: y = x + f(x), and some of these behind each other
class Residual : public Module {
 public:
  explicit Residual(int64_t channels)
      : conv_(register_module("conv",
                              std::make_shared<models::Conv2d>(channels, channels, 3, same_))),
        norm_(register_module("norm", std::make_shared<models::BatchNorm2d>(channels))) {}
  Variable forward(Variable x, Context& context) override {
    return norm_->forward_add_relu(conv_->forward(x, context), x, context);
  }

 private:
  Conv2dOptions same_{.padding = {1, 1}};
  std::shared_ptr<models::Conv2d> conv_;
  std::shared_ptr<models::BatchNorm2d> norm_;
};

models::Sequential make_net() {
  models::default_init() = {Rng(1)};
  return models::Sequential{models::Conv2d(1, 8, 3, {.padding = {1, 1}}),
                            models::BatchNorm2d(8),
                            models::Relu(),
                            Residual(8),
                            Residual(8),
                            models::MaxPool2d(4),
                            models::Flatten(),
                            models::Linear(4 * 4 * 8, 4)};
}

// ---- images [64, 16, 16, 1] and in which quarter the spot of each lies
struct Images {
  Tensor input, target;
};
Images images(uint64_t batch) {
  Images out{Tensor::randn({64, 16, 16, 1}, {2, batch}), Tensor::zeros({64}, DType::i64)};
  for (int64_t i = 0; i < 64; ++i) {
    const auto quarter = int64_t(uniform_int({3, batch}, uint64_t(i), 4));
    const auto x = int64_t(uniform_int({4, batch}, uint64_t(i), 6));
    const auto y = int64_t(uniform_int({5, batch}, uint64_t(i), 6));
    for (int64_t at = 0; at < 9; ++at)
      out.input[i][quarter / 2 * 8 + y + at / 3][quarter % 2 * 8 + x + at % 3].mut<float>()[0] += 2;
    out.target.mut<int64_t>()[i] = quarter;
  }
  return out;
}

struct Result {
  int64_t kept = 0;  // bytes of activations and packed tensors when backward begins
  double accuracy = 0;
};

Result train_with(SavePolicy* policy) {
  models::Sequential net = make_net();
  optim::Sgd sgd(net.parameters(), {.momentum = 0.9, .weight_decay = 1e-4});
  Context context;
  Result result;
  for (uint64_t step = 0; step < 60; ++step) {
    const PolicyScope scope(policy);  // a training step begins
    const Images batch = images(step);
    Variable loss = cross_entropy(net.forward(Variable(batch.input), context), batch.target);
    const MemoryReport memory = allocator(kCpu).report();
    result.kept = memory.of(Category::activation) + memory.of(Category::packed);
    backward(loss);
    sgd.step(0.05);
    sgd.zero_grad();
  }
  const NoGrad no_grad;
  context.training = false;
  const Images test = images(1000);
  const Tensor classes = ops::argmax(net.forward(Variable(test.input), context).value(), 1);
  result.accuracy = ops::mean(ops::cast(classes == test.target, DType::f32)).item();
  return result;
}

int main(int, char** argv) {
  limit_spinning(argv);  // waiting threads leave the core to other processes
  compress::FixedPolicy four_bits({.bits = 4, .min_elements = 1024});
  FirstInBf16 own(2);
  const Result raw = train_with(nullptr), four = train_with(&four_bits), mixed = train_with(&own);
  std::printf("raw: %lld bytes kept, accuracy %.2f\n", (long long)raw.kept, raw.accuracy);
  std::printf("4 bits: %lld bytes kept, accuracy %.2f\n", (long long)four.kept, four.accuracy);
  std::printf("own policy: %lld bytes kept, accuracy %.2f\n", (long long)mixed.kept,
              mixed.accuracy);
  const bool learned = raw.accuracy > 0.9 && four.accuracy > 0.9 && mixed.accuracy > 0.9;
  return learned && four.kept < mixed.kept && mixed.kept < raw.kept ? 0 : 1;
}
