// A model, a policy and batches of a configuration: two of them are compared step by step.
#pragma once
#include <cstring>
#include <optional>

#include "apps/config/config.h"
#include "apps/config/data/make_data.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_task.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "tests/cuda/gpu.h"
#include "train/training_step.h"

namespace frugal::apps {

inline constexpr const char* kImages = R"({
  "model": {"name": "resnet20"},
  "data": {"name": "random", "batch_size": 4, "shape": [8, 8, 3], "train_samples": 32,
           "test_samples": 4},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}}})";

inline constexpr const char* kEncoder = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3,
           "train_samples": 64, "test_samples": 16},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}}})";

inline constexpr const char* kGraph = R"({
  "model": {"name": "gcn", "width": 16, "dropout": 0.5},
  "data": {"name": "random_graph", "nodes": 120, "edges": 300, "features": 12, "classes": 3,
           "split": [0.3, 0.2]},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}}})";

struct Side {
  Config config;
  std::shared_ptr<Module> model;
  TaskPtr task;
  std::unique_ptr<SavePolicy> policy;
  std::unique_ptr<data::BatchSource> batches;
  Rng rng;
  uint64_t number = 0;

  // sets: PATH=VALUE, separated by spaces.
  Side(const char* text, const std::string& sets) {
    Json document = Json::parse(text);
    for (size_t begin = 0; begin < sets.size();) {
      const size_t end = std::min(sets.find(' ', begin), sets.size());
      apply_set(document, sets.substr(begin, end - begin));
      begin = end + 1;
    }
    document["device"] = "cuda";
    config = parse_config(document);
    resolve(config);
    model = make_model(config, batch_spec(config), set_up_device(config.run));
    task = make_task(config);
    policy = make_policy(make_choice(config.compression), kCpu, 1);
    batches = make_batches(config, Split::train);
    rng.restore({7, 0});
  }

  // work(batch, context, number) with a step begun.
  template <class F>
  auto begin(const F& work) {
    model->zero_grad();
    Context context;
    context.rng = &rng;
    begin_step(number);
    std::optional<Batch> batch = batches->next();
    if (!batch) batch = batches->next();  // the next epoch's
    return work(std::move(*batch), context, number++);
  }

  // forward(batch, context, number) with a step begun; then all gradients, on the host.
  template <class F>
  std::vector<Tensor> step(const F& forward) {
    const BatchResult result = begin(forward);
    std::vector<Tensor> all = {Tensor::from<double>(
        {result.loss, static_cast<double>(result.counted), static_cast<double>(result.correct)},
        {3})};
    for (const auto& p : model->parameters()) all.push_back(to_device(p.parameter->grad(), kCpu));
    return all;
  }
};

// The values' bits: NaN is equal to itself.
inline bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor x = to_device(a[i], kCpu), y = to_device(b[i], kCpu);
    if (x.shape() != y.shape() || x.dtype() != y.dtype() ||
        std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())) != 0)
      return false;
  }
  return true;
}

}  // namespace frugal::apps
