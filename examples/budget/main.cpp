// Trains a ResNet-20 with a preset, and one whose steps take no more memory than the first argument
// says. Each is also planned and profiled.
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

// Trains a network that keeps activations so, counts what other ways would take, and measures
// steps. Returns the peak of a step of training.
int64_t train_plan_profile(const char* name, const compress::Choice& choice) {
  constexpr int64_t kMemory = 64 << 20;
  train::Run run(recipe(choice));
  run.train();
  const train::RunPlan plan = run.plan(kMemory);
  const train::Profile profile = run.profile(3);

  const train::RunState& state = run.trainer().state();
  std::printf("%s: peak %lld bytes, test accuracy %.0f %%\n", name,
              static_cast<long long>(state.memory.peak), 100 * state.last->test.accuracy);
  for (const train::WayMemory& row : plan.ways)
    if (row.why.empty() && !row.idle)
      std::printf("  %-18s %10lld bytes on meta\n", row.way.name.c_str(),
                  static_cast<long long>(row.memory.peak));
  std::printf("  %s 64 MiB; most time goes to %s\n",
              plan.recommended->fits ? "fits into" : "does not fit into",
              profile.rows().front().name.c_str());
  return state.memory.peak;
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  const std::string budget = argc > 1 ? argv[1] : "32 MiB";
  train_plan_profile("preset small", compress::preset("small"));
  const int64_t peak = train_plan_profile("memory budget", compress::budget(budget));
  return peak <= train::parse_budget(budget, "budget").bytes ? 0 : 1;
}
