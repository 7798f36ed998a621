// The keys of graph networks: which network has them, and what they make of it.
#include <doctest/doctest.h>

#include "apps/config/data/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kGraph = R"({
  "model": {"name": "gcn", "width": 16, "layers": 3, "dropout": 0.1},
  "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 3,
           "sampler": "neighbours", "batch_size": 40, "fan_outs": [4, 4, 4]},
  "optim": {"name": "adam", "lr": 0.02},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 10, "eval_interval": 10}, "threads": 1})";

Config resolved(const std::string& base, const std::vector<std::string>& sets) {
  Json document = Json::parse(base);
  apply_sets(document, sets);
  Config config = parse_config(document);
  check_set_keys(config, sets);
  resolve(config);
  return config;
}

std::shared_ptr<Module> network(const std::vector<std::string>& sets) {
  const Config config = resolved(kGraph, sets);
  return make_model(config, batch_spec(config), kCpu);
}

Shape shape_of(Module& model, const std::string& name) {
  for (const auto& p : model.parameters())
    if (p.name == name) return p.parameter->value().shape();
  return {};
}

}  // namespace

TEST_CASE("keys that a network does not have are refused") {
  const std::string images = R"({"data": {"name": "random"}})";
  const std::string tokens =
      R"({"model": {"name": "bert_tiny"}, "data": {"name": "random_tokens"}})";
  struct Row {
    const std::string& base;
    const char* set;
    const char* model;
  };
  const std::string graph = kGraph;
  for (const Row& row : {Row{images, "batch_norm=true", "resnet20"},
                         Row{images, "residual=true", "mlp"},
                         Row{images, "jump=cat", "vit_b_16"},
                         Row{images, "input_dropout=0.1", "resnet20"},
                         Row{images, "alpha=0.1", "resnet20"},
                         Row{tokens, "batch_norm=true", "bert_tiny"},
                         Row{tokens, "jump=max", "bert_tiny"},
                         Row{tokens, "aggregation=max", "bert_tiny"},
                         Row{graph, "theta=0.5", "gcn"},
                         Row{graph, "aggregation=max", "gat"},
                         Row{graph, "out_heads=2", "sage"},
                         Row{graph, "slope=0.1", "gcnii"},
                         Row{graph, "input_dropout=0.1", "gcnii"},
                         Row{images, "shortcut=B", "mlp"},
                         Row{images, "stem=cifar", "resnet20"},
                         Row{images, "hidden=[8]", "resnet20"},
                         Row{images, "dropout=0.5", "resnet20"},
                         Row{images, "layers=3", "swin_t"},
                         Row{images, "width=64", "densenet121"},
                         Row{graph, "heads=2", "gcn"},
                         Row{graph, "feed_forward=64", "gat"},
                         Row{images, "max_positions=64", "vit_b_16"},
                         Row{graph, "vocab_size=64", "gcn"},
                         Row{graph, "attention_dropout=0.1", "sage"}}) {
    CAPTURE(row.set);
    const std::string set = row.set, key = "model." + set.substr(0, set.find('='));
    CHECK_THROWS_WITH_AS(
        resolved(row.base, {std::string("model.name=") + row.model, "model." + set}),
        doctest::Contains((key + ": expected ").c_str()), ConfigError);
  }
  CHECK_THROWS_WITH_AS(resolved(graph, {"model.jump=cat", "model.name=gcn", "model.alpha=0.25"}),
                       "model.alpha: expected null, the default, since nothing reads it with "
                       "model.name=gcn; it is read by gcnii; got 0.25",
                       ConfigError);
}

TEST_CASE("sage's maximum is refused where edges have weights or features are sparse") {
  const std::vector<std::string> maximum = {"model.name=sage", "model.aggregation=max"};
  auto with = [&](const std::string& set) {
    std::vector<std::string> sets = maximum;
    sets.push_back(set);
    return resolved(kGraph, sets);
  };
  for (const char* sampler : {"random_walk", "node", "edge"})
    CHECK_THROWS_WITH_AS(with(std::string("data.sampler=") + sampler),
                         doctest::Contains("model.aggregation: expected mean"), ConfigError);
  for (const char* sampler : {"full", "neighbours", "clusters"})
    CHECK_NOTHROW(with(std::string("data.sampler=") + sampler));
  Config config = with("data.sampler=full");
  BatchSpec sparse = batch_spec(config);
  sparse.extras.emplace_back("x_row_ptr", Tensor::zeros({301}, DType::i64));
  CHECK_THROWS_WITH_AS(resolve_model(config, sparse),
                       doctest::Contains("data.sparse_features: expected false"), ConfigError);
}

TEST_CASE("more clusters than nodes are a mistake of the configuration") {
  const Config config =
      resolved(kGraph, {"data.sampler=clusters", "data.clusters=3000", "data.batch_size=1"});
  CHECK_THROWS_WITH_AS(make_batches(config, Split::train),
                       doctest::Contains("data.clusters: expected at most "), ConfigError);
}

TEST_CASE("gat's last layer has the heads that it is told") {
  for (const int64_t heads : {1, 8}) {
    const auto net =
        network({"model.name=gat", "model.layers=2", fmt::format("model.out_heads={}", heads)});
    CHECK(shape_of(*net, "convs.1.att_src") == Shape{1, heads, 3});
    CHECK(shape_of(*net, "convs.0.att_src") == Shape{1, 8, 2});  // its 16 units in 8 heads
  }
}

TEST_CASE("a graph knows no convention of images") {
  CHECK_THROWS_WITH_AS(
      resolved(kGraph, {"data.name=cora", "data.dir=d", "data.normalize=imagenet"}),
      doctest::Contains("data.normalize: expected auto or none"), ConfigError);
}

TEST_CASE("each graph network trains with norms, shortcuts and jumping knowledge") {
  const TempFolder folder;
  write_file(folder / "c.json", kGraph);
  auto loss = [&](const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + " --json " + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json summary = Json::parse(ran.out);
    CHECK(summary["memory"]["packed_bytes"].get<int64_t>() > 0);
    return summary["final"]["train_loss"].get<double>();
  };
  for (const char* model : {"gcn", "sage", "gat", "gcnii"})
    for (const char* sampler : {"full", "neighbours"}) {
      std::vector<double> losses;
      for (const char* keys :
           {"", "--set model.batch_norm=true", "--set model.residual=true",
            "--set model.batch_norm=true --set model.residual=true --set model.jump=cat",
            "--set model.jump=max"}) {
        const std::string sets =
            fmt::format("--set model.name={} --set data.sampler={} {}", model, sampler, keys);
        CAPTURE(sets);
        losses.push_back(loss(sets));
        CHECK(losses.back() < 1.09);  // log 3 is 1.0986
      }
      for (size_t i = 1; i < losses.size(); ++i) CHECK(losses[i] != losses[i - 1]);
    }
  const std::string sage = "--set model.name=sage ",
                    gat = "--set model.name=gat --set model.attention_dropout=0.1 ";
  CHECK(loss(sage + "--set model.aggregation=max") != loss(sage));
  CHECK(loss(gat + "--set model.slope=0.5") != loss(gat));
}

}  // namespace frugal::apps
