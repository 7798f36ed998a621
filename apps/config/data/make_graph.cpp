#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/config/data/data_kinds.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/value_named.h"
#include "apps/config/make_model.h"
#include "core/random/random_streams.h"
#include "core/rng.h"
#include "core/words/quoted.h"
#include "data/graph/graph_batches.h"
#include "data/graph/graph_samplers.h"
#include "data/graph/graph_split.h"
#include "data/graph/graphsaint.h"
#include "data/graph/musae.h"
#include "data/graph/npz_graph.h"
#include "data/graph/ogb.h"
#include "data/graph/planetoid.h"
#include "data/split.h"
#include "train/metrics/metric_names.h"
#include "train/training_step.h"

namespace frugal::apps {
namespace {

using data::GraphData;
using data::GraphOptions;

constexpr int64_t kRandomClasses = 40;
constexpr int64_t kMaxValues = int64_t{1} << 33;  // features take at most 32 GiB

// ---- a graph from memory, whose labels its features tell a little, and its neighbours more: half
// of the edges join nodes of one class
GraphData random_graph(const Config& config) {
  const DataConfig& c = config.data;
  const CategoryScope scope(Category::input);
  GraphData graph;
  graph.nodes = c.nodes;
  graph.features = c.features;
  graph.classes = c.classes.value_or(kRandomClasses);
  const auto seed = static_cast<uint64_t>(config.run.seed);
  const RngKey key = streams::kGraphEdges.key(seed);
  std::vector<int64_t> from, to;
  const auto nodes = static_cast<uint64_t>(c.nodes);
  for (uint64_t e = 0; e < static_cast<uint64_t>(c.edges); ++e) {
    const auto one = static_cast<int64_t>(uniform_int(key, 2 * e, nodes));
    const auto any = static_cast<int64_t>(uniform_int(key, 2 * e + 1, nodes));
    const int64_t alike = any - any % graph.classes + one % graph.classes;
    from.push_back(one);
    to.push_back(e % 2 == 0 && alike < c.nodes ? alike : any);
  }
  graph.edge_index = data::make_edge_index(c.nodes, from, to, true, data::SelfLoops::drop);
  graph.y = Tensor::empty({c.nodes}, DType::i64);
  graph.x = Tensor::empty({c.nodes, c.features}, DType::f32);
  const RngKey noise = streams::kGraphFeatures.key(seed);
  for (int64_t v = 0; v < c.nodes; ++v) {
    const int64_t label = v % graph.classes;
    graph.y.mut<int64_t>()[v] = label;
    float* x = graph.x.mut<float>() + v * c.features;
    for (int64_t f = 0; f < c.features; ++f)
      x[f] = uniform(noise, static_cast<uint64_t>(v * c.features + f)) - 0.5f +
             (f % graph.classes == label ? 1.0f : 0.0f);
  }
  return graph;
}

// ---- the table
struct GraphRow {
  const char* name;
  bool normalizes, sparse_features;  // read data.normalize, data.sparse_features
  GraphData (*open)(const Config& config, const GraphOptions& options);
};

GraphData planetoid(const Config& config, const GraphOptions& options) {
  return data::open_planetoid(*config.data.dir, config.data.name, options);
}

GraphData graphsaint(const Config& config, const GraphOptions&) {
  data::GraphSaintOptions options;
  options.standardize = config.data.normalize != "none";
  if (const auto& known = config.data.known; known != nullptr) {
    options.mean = known->column_means;
    options.scale = known->column_scales;
  }
  const std::string& name = config.data.name;
  return data::open_graphsaint(within(*config.data.dir, {name, "graphsaint/" + name}), options);
}

constexpr GraphRow kGraphs[] = {
    {"cora", true, true, planetoid},
    {"citeseer", true, true, planetoid},
    {"pubmed", true, true, planetoid},
    {"facebook", true, true,
     [](const Config& config, const GraphOptions& options) {
       return data::open_musae(
           within(*config.data.dir, {"graphs/musae-facebook", "musae-facebook", "facebook"}),
           "facebook", options);
     }},
    {"ogbn_arxiv", false, false,
     [](const Config& config, const GraphOptions&) {
       return data::open_ogb(within(*config.data.dir, {"ogbn_arxiv", "arxiv", "ogb/ogbn_arxiv"}));
     }},
    {"flickr", true, false, graphsaint},
    {"reddit", true, false, graphsaint},
    {"yelp", true, false, graphsaint},
    {"amazon", true, false, graphsaint},
    {"ppi", true, false, graphsaint},
    {"graphsaint", true, false, graphsaint},
    {"graph_npz", true, true,
     [](const Config& config, const GraphOptions& options) {
       if (std::filesystem::is_directory(*config.data.dir))
         throw ConfigError("data.dir", fmt::format("expected a file .npz, got the folder {}",
                                                   in_quotes(*config.data.dir)));
       return data::open_npz_graph(*config.data.dir, options);
     }},
    {"random_graph", false, false,
     [](const Config& config, const GraphOptions&) { return random_graph(config); }},
};

const GraphRow& graph_row(const std::string& name) {
  return *std::find_if(std::begin(kGraphs), std::end(kGraphs),
                       [&](const GraphRow& row) { return name == row.name; });
}

// A graph with its masks.
struct ReadGraph {
  GraphData graph;
  bool drawn = false;  // the masks were drawn with the seed
};

// The parts of a run, whatever was drawn now. Nodes without a part stay without one.
void set_parts(GraphData& graph, const KeptParts& parts) {
  const auto holds = [](const std::vector<int64_t>& all, int64_t node) {
    return std::binary_search(all.begin(), all.end(), node);
  };
  for (int64_t v = 0; v < graph.nodes; ++v) {
    uint8_t &train = graph.train_mask.mut<uint8_t>()[v], &val = graph.val_mask.mut<uint8_t>()[v],
            &test = graph.test_mask.mut<uint8_t>()[v];
    if (train + val + test == 0) continue;
    test = holds(parts.test, v) ? 1 : 0;
    val = holds(parts.validation, v) ? 1 : 0;
    train = test + val == 0 ? 1 : 0;
  }
}

// `asked`: data.split gives the shares, so it is to blame for a part without nodes.
void draw_parts(GraphData& graph, const data::GraphSplit& split, bool asked) {
  const auto refuse = [&](const char* part) {
    throw ConfigError("data.split", fmt::format("expected shares that leave nodes to {} on, got {} "
                                                "and {} of {} nodes",
                                                part, split.train, split.val, graph.nodes));
  };
  try {
    data::random_split(graph, split);
  } catch (const Error&) {
    if (asked) refuse("train");
    throw;
  }
  const uint8_t* tests = graph.test_mask.data<uint8_t>();
  if (asked && std::all_of(tests, tests + graph.nodes, [](uint8_t in) { return in == 0; }))
    refuse("test");
}

ReadGraph read_graph(const Config& config) {
  const DataConfig& c = config.data;
  const GraphRow& row = graph_row(c.name);
  GraphOptions options;
  options.normalize = c.normalize != "none";
  options.sparse = c.sparse_features;
  GraphData graph = row.open(config, options);
  if (c.split && graph.train_edge_index.defined())
    throw ConfigError(
        "data.split",
        fmt::format("expected null for '{}', whose files say which edges training sees", c.name));
  const bool drawn = c.split || !graph.train_mask.defined();
  if (drawn) {
    data::GraphSplit split;
    if (c.split) {
      split.train = c.split->at(0);
      split.val = c.split->at(1);
      split.test = 1 - split.train - split.val;
      if (split.test < data::kLeastShare)
        throw ConfigError("data.split", fmt::format("expected shares that leave nodes to test, got "
                                                    "{} and {}",
                                                    split.train, split.val));
    }
    split.seed = static_cast<uint64_t>(config.run.seed);
    draw_parts(graph, split, c.split.has_value());
    if (c.known != nullptr && c.known->parts) set_parts(graph, *c.known->parts);
  }
  return {std::move(graph), drawn};
}

class OpenGraph final : public OpenData {
 public:
  BatchSpec spec(const Config& config) override;
  std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) override;
  void describe(const Config& config, RunEncoding& known) override;

 private:
  const ReadGraph& read_graph_of(const Config& config) {
    if (!read_) read_ = read_graph(config);
    return *read_;
  }
  const GraphData& graph_of(const Config& config) { return read_graph_of(config).graph; }

  std::optional<ReadGraph> read_;
};

class GraphKind final : public DataKind {
 public:
  std::vector<std::string> names() const override;
  DataTraits traits(const Config& config) const override;
  std::vector<DataKey> keys() const override;
  void check(const Config& config) const override;
  std::vector<std::string> marks(const std::string& name) const override;
  std::shared_ptr<OpenData> open() const override { return std::make_shared<OpenGraph>(); }
};

std::vector<DataKey> GraphKind::keys() const {
  namespace range = by_name::range;
  return {{{{"sparse_features", range::flag(),
             "Graphs: keep features of which most are 0 as a sparse matrix."},
            &DataConfig::sparse_features},
           {"cora, citeseer, pubmed, facebook and graph_npz",
            {"data.name"},
            [](const Config& c) { return data_traits(c).sparse_features; }}},
          {{{"sampler", range::choice("full, random_walk, node, edge, neighbours, clusters"),
             "Graphs: the whole graph at once, or subgraphs: GraphSAINT's three, sampled "
             "neighbours of batch_size nodes, batch_size of the clusters."},
            &DataConfig::sampler},
           with_data(BatchSpec::Kind::graph)},
          {{{"sampler_batches", range::integer(1, int64_t{1} << 40),
             "GraphSAINT: subgraphs in an epoch, of about batch_size roots, nodes or edges."},
            &DataConfig::sampler_batches},
           sampled({"random_walk", "node", "edge"})},
          {{{"walk_length", range::integer(1, 1024), "random_walk: its steps."},
            &DataConfig::walk_length},
           sampled({"random_walk"})},
          {{{"fan_outs", range::list(range::integer(1, 1 << 20), 1, 16),
             "neighbours: how many of each node, layer by layer."},
            &DataConfig::fan_outs},
           sampled({"neighbours"})},
          {{{"clusters", range::integer(1, 1 << 20), "clusters: how many there are."},
            &DataConfig::clusters},
           sampled({"clusters"})},
          {{{"nodes", range::integer(1, 1 << 26), "random_graph: its nodes."}, &DataConfig::nodes},
           data_named({"random_graph"})},
          {{{"edges", range::integer(0, 1 << 26), "random_graph: its undirected edges."},
            &DataConfig::edges},
           data_named({"random_graph"})},
          {{{"features", range::integer(1, 1 << 20), "random_graph: of each node."},
            &DataConfig::features},
           data_named({"random_graph"})}};
}

void OpenGraph::describe(const Config& config, RunEncoding& known) {
  const auto& [graph, drawn] = read_graph_of(config);
  known.column_means = graph.x_mean;
  known.column_scales = graph.x_scale;
  if (!drawn || config.data.name == "random_graph") return;
  known.parts.emplace();
  for (int64_t v = 0; v < graph.nodes; ++v) {
    if (graph.val_mask.data<uint8_t>()[v] != 0) known.parts->validation.push_back(v);
    if (graph.test_mask.data<uint8_t>()[v] != 0) known.parts->test.push_back(v);
  }
}

std::vector<std::string> GraphKind::names() const {
  std::vector<std::string> all;
  for (const GraphRow& row : kGraphs) all.emplace_back(row.name);
  return all;
}

DataTraits GraphKind::traits(const Config& config) const {
  const std::string& name = config.data.name;
  DataTraits traits;
  traits.kind = BatchSpec::Kind::graph;
  traits.reads_files = name != "random_graph";
  traits.normalizes = graph_row(name).normalizes;
  traits.sparse_features = graph_row(name).sparse_features;
  return traits;
}

std::vector<std::string> GraphKind::marks(const std::string& name) const {
  if (name == "cora" || name == "citeseer" || name == "pubmed") {
    const std::string file = "ind." + name + ".graph";
    return {"planetoid/" + file, file, name + "/raw/" + file, name + "/" + file};
  }
  if (name == "facebook") {
    std::vector<std::string> all;
    for (const char* folder : {"graphs/musae-facebook/", "musae-facebook/", "facebook/", ""})
      for (const char* file : {"musae_facebook_edges.csv", "facebook_edges.csv"})
        all.push_back(std::string(folder) + file);
    return all;
  }
  if (name == "ogbn_arxiv")
    return {"ogbn_arxiv/raw", "arxiv/raw", "ogb/ogbn_arxiv/raw", "raw/edge.csv.gz", "raw/edge.csv"};
  if (name == "graphsaint" || name == "graph_npz" || name == "random_graph") return {};
  return {name + "/adj_full.npz", "graphsaint/" + name + "/adj_full.npz", "adj_full.npz"};
}

void GraphKind::check(const Config& config) const {
  if (config.data.normalize != "auto" && config.data.normalize != "none")
    throw ConfigError("data.normalize", fmt::format("expected auto or none with a graph, got {}",
                                                    config.data.normalize));
  const DataConfig& c = config.data;
  if (c.name == "random_graph" && c.edges > c.nodes * c.nodes)
    throw ConfigError("data.edges",
                      fmt::format("expected at most {} for data.nodes {}, since equal edges count "
                                  "once; got {}",
                                  c.nodes * c.nodes, c.nodes, c.edges));
  if (c.name == "random_graph" && c.features > kMaxValues / c.nodes)
    throw ConfigError("data.features", fmt::format("expected at most {} for data.nodes {}, got {}",
                                                   kMaxValues / c.nodes, c.nodes, c.features));
  if (c.sampler == "clusters" && c.batch_size > c.clusters)
    throw ConfigError("data.batch_size", fmt::format("expected at most data.clusters, {}, got {}",
                                                     c.clusters, c.batch_size));
}

// What the network makes of a node's neighbours; attention makes its own coefficients.
data::GraphAggregate aggregate_of(const std::string& model) {
  if (model == "sage") return data::GraphAggregate::mean;
  if (model == "gcn" || model == "gcnii") return data::GraphAggregate::symmetric_loops;
  return data::GraphAggregate::none;
}

BatchSpec OpenGraph::spec(const Config& config) {
  const GraphData& graph = graph_of(config);
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::graph;
  spec.sample = {graph.nodes, graph.features};
  spec.classes = graph.classes;
  if (is_floating(graph.y.dtype())) spec.target = BatchSpec::Target::labels;
  spec.metric = usual_metric(spec.target);
  spec.extras = {{"edge_index", graph.edge_index}};
  if (graph.sparse()) {
    spec.extras.emplace_back("x_row_ptr", graph.x_row_ptr);
    spec.extras.emplace_back("x_col", graph.x_col);
    spec.extras.emplace_back("x_value", graph.x_value);
  }
  return spec;
}

std::unique_ptr<data::BatchSource> OpenGraph::batches(const Config& config, Split split) {
  const DataConfig& c = config.data;
  const GraphData& graph = graph_of(config);
  const auto seed = static_cast<uint64_t>(config.run.seed);
  // Nodes are tested in the whole graph.
  if (split == Split::test)
    return std::make_unique<data::GraphBatches>(graph, data::GraphPart::test);
  if (split == Split::validation)
    return std::make_unique<data::GraphBatches>(graph, data::GraphPart::val);
  FRUGAL_ASSERT(split == Split::train);
  if (c.sampler == "full")
    return std::make_unique<data::GraphBatches>(graph, data::GraphPart::train);
  if (c.sampler == "neighbours") {
    data::NeighbourOptions options;
    options.fanouts = c.fan_outs;
    options.aggregate = aggregate_of(config.model.name);
    // The mean of the neighbours that were drawn needs no help.
    if (options.aggregate == data::GraphAggregate::mean)
      options.aggregate = data::GraphAggregate::none;
    options.batch_size = c.batch_size;
    options.drop_last = c.drop_last;
    options.seed = seed;
    return std::make_unique<data::NeighbourBatches>(graph, data::GraphPart::train, options);
  }
  if (c.sampler == "clusters") {
    const int64_t nodes = spec(config).sample[0];
    if (c.clusters > nodes)
      throw ConfigError("data.clusters", fmt::format("expected at most {}, the nodes of the graph, "
                                                     "got {}",
                                                     nodes, c.clusters));
    data::ClusterOptions options;
    options.clusters = c.clusters;
    options.clusters_per_batch = c.batch_size;
    options.seed = seed;
    return std::make_unique<data::ClusterBatches>(graph, data::GraphPart::train, options);
  }
  data::SaintOptions options;
  using data::SaintSampler;
  options.sampler = value_named<SaintSampler>(c.sampler, {{"node", SaintSampler::node},
                                                          {"edge", SaintSampler::edge},
                                                          {"random_walk", SaintSampler::walk}});
  options.roots = options.nodes = options.edges = c.batch_size;
  options.length = c.walk_length;
  options.aggregate = aggregate_of(config.model.name);
  options.batches = c.sampler_batches;
  options.seed = seed;
  const int64_t most = data::most_saint_draws(graph, data::GraphPart::train, options);
  if (c.batch_size > most)
    throw ConfigError("data.batch_size",
                      fmt::format("expected at most {} with this graph and data.sampler {}, got {}",
                                  most, c.sampler, c.batch_size));
  return std::make_unique<data::SaintBatches>(graph, data::GraphPart::train, options);
}

}  // namespace

const DataKind& graph_data() {
  static const GraphKind kind;
  return kind;
}

}  // namespace frugal::apps
