// A task of one's own: a classifier that learns by the squared hinge loss of a support vector
// machine, one class against all others, and is judged by its mean margin.
#include <frugal/frugal.h>

#include <algorithm>
#include <cstdio>

using namespace frugal;

// The mean of how far the right class's score lies above the highest other one.
class MeanMargin : public train::Metric {
 public:
  void add(const Tensor& output, const Batch& batch) override {
    const int64_t classes = output.size(1);
    for (int64_t row = 0; row < output.size(0); ++row, ++samples_) {
      const float* score = output.data<float>() + row * classes;
      const int64_t right = batch.target.data<int64_t>()[row];
      float other = right == 0 ? score[1] : score[0];
      for (int64_t c = 0; c < classes; ++c)
        if (c != right) other = std::max(other, score[c]);
      sum_ += static_cast<double>(score[right] - other);
    }
  }
  double value(double) const override { return sum_ / static_cast<double>(samples_); }

 private:
  double sum_ = 0;
  int64_t samples_ = 0;
};

class SquaredHinge : public train::Task {
 public:
  SquaredHinge() { spec_.metric = "margin"; }

  train::ForwardPass loss(Module& model, Batch& batch, Context& context,
                          const train::LossOptions& options) const override {
    const Variable scores = run(model, batch, context);  // [N, classes]
    const Tensor best = ops::argmax(scores.value(), -1);
    Tensor sign = Tensor::full(scores.shape(), 1.0);  // -1 at the right class
    train::ForwardPass pass;
    pass.counts.counted = sign.size(0);
    for (int64_t row = 0; row < sign.size(0); ++row) {
      const int64_t right = batch.target.data<int64_t>()[row];
      sign.mut<float>()[row * sign.size(1) + right] = -1;
      pass.counts.correct += best.data<int64_t>()[row] == right ? 1 : 0;
    }
    const Variable short_of = relu(add_scalar(mul(scores, Variable::constant(sign)), 1));
    pass.loss = mean(mul(short_of, short_of));
    if (options.keep_output) pass.output = scores;
    return pass;
  }
  std::unique_ptr<train::Metric> metric() const override { return std::make_unique<MeanMargin>(); }
};

// [count, 4, 4, 1]: class c has high values in row c, under noise.
DatasetPtr bars(int64_t count, uint64_t seed) {
  Tensor images = Tensor::empty({count, 4, 4, 1}), labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % 4;
    for (int64_t at = 0; at < 16; ++at)
      images.mut<float>()[i * 16 + at] =
          0.5f * normal({seed, 0}, uint64_t(i * 16 + at)) + float(at / 4 == i % 4);
  }
  return std::make_shared<data::MemoryDataset>(images, labels, 4);
}

int main() {
  data::Loader images(bars(1024, 1), {.batch_size = 64});
  data::Loader unseen(bars(256, 2), {.shuffle = false});
  models::Init init;
  const auto net = models::make(
      "mlp", {{"in_features", 16}, {"hidden", std::vector<int64_t>{64}}, {"num_classes", 4}}, init);
  optim::Sgd sgd(net->parameters(), {.momentum = 0.9});
  const auto last = train::fit(*net, sgd, optim::constant_schedule(0.05), images,
                               {.epochs = 5,
                                .test = &unseen,
                                .task = std::make_shared<SquaredHinge>(),
                                .compression = {compress::bits(4, {.min_elements = 256})}});
  std::printf("test accuracy %.2f %%, mean margin %.2f\n", 100 * last->test.accuracy,
              *last->test.metric);
  return last->test.accuracy > 0.8 ? 0 : 1;
}
