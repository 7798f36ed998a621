// Trains a ResNet-20 whose steps take no more memory than the first argument says.
// usage: budget [BYTES]   such as "32 MiB", which is the default
#include <frugal/frugal.h>

#include <cstdio>

using namespace frugal;

// [count, 32, 32, 3]: class c is a bright bar at row 3 c + 1, under noise.
DatasetPtr bars(int64_t count, uint64_t seed) {
  Tensor images = Tensor::randn({count, 32, 32, 3}, {seed, 0}) * 0.5;
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % 10;
    float* row = images.mut<float>() + (i * 32 + 3 * (i % 10) + 1) * 32 * 3;
    for (int64_t at = 0; at < 32 * 3; ++at) row[at] += 1;
  }
  return std::make_shared<data::MemoryDataset>(images, labels, 10);
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  const std::string budget = argc > 1 ? argv[1] : "32 MiB";
  data::Loader images(bars(512, 1), {.batch_size = 64});
  data::Loader unseen(bars(128, 2), {.batch_size = 64, .shuffle = false});

  models::Init init;
  const auto net = models::make("resnet20", {{"num_classes", 10}}, init);
  optim::Sgd sgd(net->parameters(), {.momentum = 0.9});

  train::Trainer trainer(*net, sgd, optim::constant_schedule(0.02), images,
                         {.epochs = 2, .test = &unseen, .compression = {compress::budget(budget)}});
  trainer.run();

  const auto plan = *trainer.compression().plan();
  const int64_t peak = trainer.state().memory.peak;
  std::printf(
      "a budget of %s: %.2f bits on average, peak %lld of %lld bytes, test accuracy %.0f %%\n",
      budget.c_str(), plan.average_bits, static_cast<long long>(peak),
      static_cast<long long>(plan.limit_bytes), 100 * trainer.state().last->test.accuracy);
  return peak <= plan.limit_bytes ? 0 : 1;
}
