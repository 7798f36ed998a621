// Recipes of runs on noise: their steps take milliseconds. Two runs of one recipe are equal.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compress/policies/choice.h"
#include "core/random/random_streams.h"
#include "data/graph/graph_samplers.h"
#include "data/graph/graph_split.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "data/text/sequence_batches.h"
#include "models/registry.h"
#include "optim/optimizers.h"
#include "tests/train/gradient_of.h"
#include "train/noise/convergence.h"
#include "train/run/run.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

// Images [side, side, channels]: noise over a faint pattern for each class.
struct TinyImages {
  int64_t side = 8, channels = 3, classes = 4, batch = 64, samples = 64;
};

inline DatasetPtr noisy_images(const TinyImages& images, uint64_t seed = 0) {
  const CategoryScope scope(Category::input);
  const int64_t values = images.side * images.side * images.channels;
  const Tensor patterns = Tensor::rand({images.classes, values}, {0, 1});
  Tensor inputs =
      Tensor::rand({images.samples, images.side, images.side, images.channels}, {seed, 2});
  const Tensor labels = Tensor::empty({images.samples}, DType::i64);
  for (int64_t i = 0; i < images.samples; ++i) {
    const int64_t label = i * 7 % 5 % images.classes;
    labels.mut<int64_t>()[i] = label;
    for (int64_t at = 0; at < values; ++at) {
      float& x = inputs.mut<float>()[i * values + at];
      x += 2 * patterns.data<float>()[label * values + at] - 1.5f;
    }
  }
  return std::make_shared<data::MemoryDataset>(inputs, labels, images.classes);
}

// A graph whose nodes' features tell their classes a little; half of the edges join one class.
struct TinyGraph {
  int64_t nodes = 600, edges = 1800, features = 24, classes = 3;
  int64_t batch = 40;                     // targets of a subgraph
  std::vector<int64_t> fanouts = {4, 4};  // none: the whole graph is the batch
};

inline data::GraphData noisy_graph(const TinyGraph& options) {
  const CategoryScope scope(Category::input);
  data::GraphData graph;
  graph.nodes = options.nodes;
  graph.features = options.features;
  graph.classes = options.classes;
  std::vector<int64_t> from, to;
  for (uint64_t e = 0; e < static_cast<uint64_t>(options.edges); ++e) {
    const auto node = [&](uint64_t draw) {
      return static_cast<int64_t>(
          uniform_int({3, 0}, 2 * e + draw, static_cast<uint64_t>(options.nodes)));
    };
    const int64_t one = node(0), any = node(1);
    const int64_t alike = any - any % options.classes + one % options.classes;
    from.push_back(one);
    to.push_back(e % 2 == 0 && alike < options.nodes ? alike : any);
  }
  graph.edge_index = data::make_edge_index(options.nodes, from, to, true, data::SelfLoops::drop);
  graph.y = Tensor::empty({options.nodes}, DType::i64);
  graph.x = Tensor::rand({options.nodes, options.features}, {4, 0});
  for (int64_t v = 0; v < options.nodes; ++v) {
    graph.y.mut<int64_t>()[v] = v % options.classes;
    for (int64_t f = 0; f < options.features; ++f)
      graph.x.mut<float>()[v * options.features + f] +=
          f % options.classes == v % options.classes ? 0.5f : -0.5f;
  }
  data::random_split(graph);
  return graph;
}

// The network of a name in models/registry.h, with SGD and no compression.
inline RunRecipe tiny_run(const std::string& network, const models::Options& options,
                          const BatchSpec& spec) {
  RunRecipe recipe;
  recipe.make_model = [network, options](Device device) {
    models::Init init;
    init.device = device;
    return models::make(network, options, init);
  };
  recipe.make_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{.momentum = 0.9});
  };
  recipe.lr = 0.05;
  recipe.options.spec = spec;
  recipe.options.task = make_task(spec);
  recipe.options.compression.choice = compress::bits(0);
  return recipe;
}

inline RunRecipe tiny_run(const std::string& network, models::Options options,
                          const TinyImages& images = {}) {
  BatchSpec spec;
  spec.sample = {images.side, images.side, images.channels};
  spec.classes = images.classes;
  options["num_classes"] = images.classes;
  if (models::has_option(network, options, "in_features"))
    options["in_features"] = spec.sample.numel();
  RunRecipe recipe = tiny_run(network, options, spec);
  recipe.open_train = [images] {
    return std::make_unique<data::Loader>(
        noisy_images(images), data::LoaderOptions{.batch_size = images.batch, .threads = 0});
  };
  return recipe;
}

inline RunRecipe tiny_run(const std::string& network, models::Options options,
                          const TinyGraph& graph) {
  BatchSpec spec;
  spec.sample = {graph.nodes, graph.features};
  spec.classes = graph.classes;
  spec.kind = BatchSpec::Kind::graph;
  options["num_classes"] = graph.classes;
  options["in_features"] = graph.features;
  RunRecipe recipe = tiny_run(network, options, spec);
  recipe.open_train = [graph]() -> std::unique_ptr<data::BatchSource> {
    if (graph.fanouts.empty())
      return std::make_unique<data::GraphBatches>(noisy_graph(graph), data::GraphPart::train);
    data::NeighbourOptions sampler;
    sampler.fanouts = graph.fanouts;
    sampler.batch_size = graph.batch;
    sampler.aggregate = data::GraphAggregate::symmetric_loops;
    return std::make_unique<data::NeighbourBatches>(noisy_graph(graph), data::GraphPart::train,
                                                    sampler);
  };
  return recipe;
}

// TrackingOptions::other of a graph: a batch of an epoch that no run reaches, for each step
// another.
inline std::function<Batch(int64_t step)> other_batches(const RunRecipe& recipe) {
  return [source = std::shared_ptr<data::BatchSource>(recipe.open_train())](int64_t step) {
    source->seek({(int64_t{1} << 40) + step, 0});
    return *source->next();
  };
}

// A run whose steps a test makes by itself, and the policy that keeps activations in them.
struct PolicyRun {
  Run run;
  std::unique_ptr<SavePolicy> policy;
  PolicyRun(RunRecipe recipe, const compress::Choice& choice)
      : run(std::move(recipe)), policy(compress::make_policy(choice, kCpu, 0)) {}
  Module& model() { return run.model(); }
  const Task& task() { return run.task(); }
  Batch next() { return run.next_batch(); }
  // The gradient of all parameters in step `number`. It stays in the parameters, too.
  std::vector<float> gradient(const Batch& batch, uint64_t number, bool packed = true,
                              RngKey stream = {}) {
    return gradient_of(task(), model(), batch, packed ? policy.get() : nullptr, number, stream);
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (const auto& each : model().parameters())
      for (const double v : each.parameter->value().to_vector()) all.push_back(v);
    return all;
  }
};

// All that a tracker reports, to compare reports.
inline auto numbers_of(const Convergence& found) {
  return std::tuple(found.gradient_square, found.mean_gradient_square, found.minibatch_variance,
                    found.added_variance, found.squared_bias, found.added_share, found.bias_share,
                    found.smoothness, found.alpha, found.bound, found.bound_uncompressed,
                    found.bound_applies, found.bits, found.next_bits, found.guard_limited);
}

}  // namespace frugal::train
