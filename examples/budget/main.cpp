// Counts the memory of a step with a preset, and trains a ResNet-20 whose steps take no more memory
// than the first argument says.
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

// A run: functions that make its parts, and its options.
train::RunRecipe recipe(const compress::Choice& choice) {
  train::RunRecipe run;
  run.make_model = [](Device device) {
    models::Init init;
    init.device = device;
    return models::make("resnet20", {{"num_classes", 10}}, init);
  };
  run.make_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{.momentum = 0.9});
  };
  run.open_train = [] {
    return std::make_unique<data::Loader>(bars(512, 1), data::LoaderOptions{.batch_size = 64});
  };
  run.open_test = [](int64_t) {
    return std::make_unique<data::Loader>(bars(128, 2),
                                          data::LoaderOptions{.batch_size = 64, .shuffle = false});
  };
  run.lr = 0.02;
  run.options.epochs = 2;
  run.options.compression = {choice};
  return run;
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  const std::string budget = argc > 1 ? argv[1] : "32 MiB";
  {
    train::Run small(recipe(compress::preset("small")));
    const auto trial = small.trial();
    trial->step(0);  // makes the optimizer's state
    std::printf("preset small: a step takes %lld bytes\n",
                static_cast<long long>(trial->step(1).memory.peak));
  }
  train::Run run(recipe(compress::budget(budget)));
  run.train();
  train::Trainer& trainer = run.trainer();

  const auto plan = *trainer.compression().plan();
  const int64_t peak = trainer.state().memory.peak;
  std::printf(
      "a budget of %s: %.2f bits on average, peak %lld of %lld bytes, test accuracy %.0f %%\n",
      budget.c_str(), plan.average_bits, static_cast<long long>(peak),
      static_cast<long long>(plan.limit_bytes), 100 * trainer.state().last->test.accuracy);
  return peak <= plan.limit_bytes ? 0 : 1;
}
