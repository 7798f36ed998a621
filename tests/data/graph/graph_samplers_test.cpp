#include "data/graph/graph_samplers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/parallel.h"
#include "data/dataset.h"
#include "tests/data/graph/graphs.h"
#include "tests/data/shares.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

// Whatever a sampler draws is a part of the graph: rows, targets and edges agree with it.
void check_batch(const GraphData& graph, const Batch& batch, const Tensor& mask,
                 int64_t seeds = -1) {
  const Ints nodes = ints(find_tensor(batch.extras, "node_id"));
  const Ints edges = ints(find_tensor(batch.extras, "edge_index"));
  const auto count = static_cast<int64_t>(nodes.size());
  REQUIRE(std::set<int64_t>(nodes.begin(), nodes.end()).size() == nodes.size());
  REQUIRE(batch.input.size(0) == count);
  REQUIRE(batch.input.storage()->category() == Category::input);
  REQUIRE(batch.target.shape() == Shape{count});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t v = nodes[static_cast<size_t>(i)];
    if (graph.sparse()) {
      const Tensor row_ptr = find_tensor(batch.extras, "x_row_ptr");
      REQUIRE(batch.input.size(1) == 0);
      REQUIRE(row_ptr.numel() == count + 1);
      REQUIRE(find_tensor(batch.extras, "x_col").item(2 * i + 1) == 1);
      REQUIRE(find_tensor(batch.extras, "x_value").item(2 * i) == static_cast<double>(v + 1));
    } else {
      REQUIRE(batch.input.item(2 * i) == static_cast<double>(v + 1));
    }
    const bool target = mask.data<uint8_t>()[v] != 0 && (seeds < 0 || i < seeds);
    REQUIRE(ints(batch.target)[static_cast<size_t>(i)] == (target ? v % 3 : kIgnored));
  }
  std::set<std::pair<int64_t, int64_t>> whole, drawn;
  const Ints all = ints(graph.edge_index);
  for (size_t i = 0; i < all.size() / 2; ++i) whole.emplace(all[i], all[i + all.size() / 2]);
  for (size_t i = 0; i < edges.size() / 2; ++i) {
    const int64_t a = edges[i], b = edges[i + edges.size() / 2];
    REQUIRE(a >= 0);
    REQUIRE(a < count);
    REQUIRE(b >= 0);
    REQUIRE(b < count);
    const std::pair edge{nodes[static_cast<size_t>(a)], nodes[static_cast<size_t>(b)]};
    REQUIRE(whole.count(edge) == 1);
    REQUIRE(drawn.insert(edge).second);
  }
}

bool same(const Batch& a, const Batch& b) {
  bool equal = a.input.to_vector() == b.input.to_vector() &&
               a.target.to_vector() == b.target.to_vector() && a.extras.size() == b.extras.size();
  for (size_t i = 0; equal && i < a.extras.size(); ++i)
    equal = a.extras[i].first == b.extras[i].first &&
            a.extras[i].second.to_vector() == b.extras[i].second.to_vector();
  return equal;
}

// Batches depend on (seed, epoch, batch) alone: taken in order, after a seek, with other threads.
template <class Make>
void check_repeats(const Make& make) {
  auto source = make();
  std::vector<Batch> first, second;
  while (auto batch = source->next()) first.push_back(*batch);
  REQUIRE(static_cast<int64_t>(first.size()) == source->batches());
  CHECK(source->state() == LoaderState{1, 0});
  while (auto batch = source->next()) second.push_back(*batch);
  REQUIRE(first.size() == second.size());
  CHECK(!same(first[0], second[0]));
  const int threads = num_threads();
  set_num_threads(threads == 1 ? 3 : 1);
  auto other = make();
  set_num_threads(threads);
  for (const int64_t epoch : {1, 0})
    for (int64_t b = source->batches() - 1; b >= 0; --b) {
      other->seek({epoch, b});
      const auto batch = other->next();
      REQUIRE(batch.has_value());
      CHECK(same(*batch, (epoch == 0 ? first : second)[static_cast<size_t>(b)]));
      CHECK(other->state() == LoaderState{epoch, b + 1});
    }
  CHECK_THROWS_WITH_AS(other->seek({0, source->batches() + 1}), doctest::Contains("a batch in [0,"),
                       Error);
  CHECK_THROWS_AS(other->seek({-1, 0}), Error);
}

// What edge_norm estimates, of the first feature.
std::vector<double> aggregates(const GraphData& graph, GraphAggregate aggregate) {
  const Ints all = ints(graph.edge_index);
  const size_t edges = all.size() / 2, nodes = static_cast<size_t>(graph.nodes);
  const bool loops = aggregate == GraphAggregate::symmetric_loops;
  std::vector<double> degree(nodes, loops ? 1.0 : 0.0), sum(nodes);
  const auto is_edge = [&](size_t i) { return !loops || all[i] != all[i + edges]; };
  for (size_t i = 0; i < edges; ++i)
    if (is_edge(i)) ++degree[static_cast<size_t>(all[i + edges])];
  const auto add = [&](size_t u, size_t v) {
    sum[v] += graph.x.item(static_cast<int64_t>(2 * u)) / (aggregate == GraphAggregate::sum ? 1.0
                                                           : aggregate == GraphAggregate::mean
                                                               ? degree[v]
                                                               : std::sqrt(degree[u] * degree[v]));
  };
  for (size_t i = 0; i < edges; ++i)
    if (is_edge(i)) add(static_cast<size_t>(all[i]), static_cast<size_t>(all[i + edges]));
  for (size_t v = 0; loops && v < nodes; ++v) add(v, v);
  return sum;
}

}  // namespace

TEST_CASE("neighbours: targets first, fan-outs kept, every target once an epoch") {
  for (const bool sparse : {false, true}) {
    const GraphData graph = small_graph(60, sparse);
    NeighbourOptions options;
    options.fanouts = {3, 2};
    options.batch_size = 8;
    options.seed = 9;
    NeighbourBatches batches(graph, GraphPart::train, options);
    CHECK(batches.batches() == 4);
    CHECK(batches.samples() == 30);
    Ints targets;
    for (int64_t b = 0; const auto batch = batches.next(); ++b) {
      const int64_t seeds = b == 3 ? 6 : 8;
      check_batch(graph, *batch, graph.train_mask, seeds);
      const Ints nodes = ints(find_tensor(batch->extras, "node_id"));
      const Ints edges = ints(find_tensor(batch->extras, "edge_index"));
      targets.insert(targets.end(), nodes.begin(), nodes.begin() + seeds);
      Ints into(nodes.size());
      for (size_t i = edges.size() / 2; i < edges.size(); ++i)
        ++into[static_cast<size_t>(edges[i])];
      const Ints all = ints(graph.edge_index);
      for (size_t i = 0; i < static_cast<size_t>(seeds); ++i)
        CHECK(into[i] ==
              std::min<int64_t>(3, std::count(all.begin() + graph.edges(), all.end(), nodes[i])));
      for (const int64_t count : into) CHECK(count <= 3);
    }
    std::sort(targets.begin(), targets.end());
    CHECK(targets == nodes_of(graph, GraphPart::train));
    check_repeats(
        [&] { return std::make_unique<NeighbourBatches>(graph, GraphPart::train, options); });
  }
}

TEST_CASE("all neighbours give the whole neighbourhood, and a drawn mean is unbiased") {
  const GraphData graph = small_graph(60);
  NeighbourOptions options;
  options.fanouts = {-1};
  options.batch_size = 30;
  options.shuffle = false;
  const Batch whole = *NeighbourBatches(graph, GraphPart::train, options).next();
  const auto means = [](const Batch& batch, int64_t seeds) {
    const Ints edges = ints(find_tensor(batch.extras, "edge_index"));
    std::vector<double> sum(static_cast<size_t>(batch.input.size(0))), count(sum.size());
    for (size_t i = 0; i < edges.size() / 2; ++i) {
      const auto to = static_cast<size_t>(edges[i + edges.size() / 2]);
      sum[to] += batch.input.item(2 * edges[i]);
      ++count[to];
    }
    for (size_t i = 0; i < sum.size(); ++i) sum[i] /= std::max(count[i], 1.0);
    sum.resize(static_cast<size_t>(seeds));
    return sum;
  };
  const std::vector<double> expected = means(whole, 30);
  options.fanouts = {2};
  NeighbourBatches drawn(graph, GraphPart::train, options);
  constexpr int kEpochs = 2000;
  std::vector<double> sum(30), square(30);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto estimate = means(*drawn.next(), 30);
    drawn.next();
    for (size_t i = 0; i < 30; ++i) {
      sum[i] += estimate[i];
      square[i] += estimate[i] * estimate[i];
    }
  }
  for (size_t i = 0; i < 30; ++i) {
    const double mean = sum[i] / kEpochs;
    const double error = std::sqrt(std::max(square[i] / kEpochs - mean * mean, 0.0) / kEpochs);
    CHECK(std::abs(mean - expected[i]) <= 5 * error + 1e-9);
  }
}

TEST_CASE("coefficients of drawn neighbours leave no bias") {
  GraphData graph;
  SUBCASE("without self-loops") { graph = small_graph(60); }
  SUBCASE("a graph's own self-loops count once") { graph = small_graph(60, false, true); }
  for (const GraphAggregate aggregate :
       {GraphAggregate::sum, GraphAggregate::mean, GraphAggregate::symmetric_loops}) {
    CAPTURE(static_cast<int>(aggregate));
    NeighbourOptions options;
    options.aggregate = aggregate;
    options.batch_size = 30;
    options.shuffle = false;
    const auto estimates = [](const Batch& batch) {
      const Ints edges = ints(find_tensor(batch.extras, "edge_index"));
      const Tensor norm = find_tensor(batch.extras, "edge_norm");
      REQUIRE(norm.numel() == static_cast<int64_t>(edges.size() / 2));
      std::vector<double> sum(static_cast<size_t>(batch.input.size(0)));
      for (size_t e = 0; e < edges.size() / 2; ++e)
        sum[static_cast<size_t>(edges[e + edges.size() / 2])] +=
            norm.item(static_cast<int64_t>(e)) * batch.input.item(2 * edges[e]);
      return sum;
    };
    const std::vector<double> truth = aggregates(graph, aggregate);
    options.fanouts = {-1};
    const Batch whole = *NeighbourBatches(graph, GraphPart::train, options).next();
    const Ints targets = nodes_of(graph, GraphPart::train);
    const std::vector<double> exact = estimates(whole);
    for (size_t i = 0; i < 30; ++i)
      CHECK(exact[i] == doctest::Approx(truth[static_cast<size_t>(targets[i])]).epsilon(1e-5));
    options.fanouts = {2};
    NeighbourBatches drawn(graph, GraphPart::train, options);
    constexpr int kEpochs = 2000;
    std::vector<double> sum(30), square(30);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const std::vector<double> estimate = estimates(*drawn.next());
      drawn.next();
      for (size_t i = 0; i < 30; ++i) {
        sum[i] += estimate[i];
        square[i] += estimate[i] * estimate[i];
      }
    }
    for (size_t i = 0; i < 30; ++i) {
      const double mean = sum[i] / kEpochs;
      const double error = std::sqrt(std::max(square[i] / kEpochs - mean * mean, 0.0) / kEpochs);
      CHECK(std::abs(mean - exact[i]) <= 5 * error + 1e-5 * std::abs(exact[i]));
    }
  }
}

TEST_CASE("GraphSAINT's weights leave no bias") {
  GraphData graph;
  SUBCASE("without self-loops") { graph = small_graph(40); }
  SUBCASE("a graph's own self-loops count once") { graph = small_graph(40, false, true); }
  const Ints all = ints(graph.edge_index);
  const size_t edges = all.size() / 2;
  for (const SaintSampler sampler : {SaintSampler::walk, SaintSampler::node, SaintSampler::edge})
    for (const GraphAggregate aggregate :
         {GraphAggregate::sum, GraphAggregate::mean, GraphAggregate::symmetric,
          GraphAggregate::symmetric_loops}) {
      CAPTURE(static_cast<int>(sampler));
      CAPTURE(static_cast<int>(aggregate));
      SaintOptions options;
      options.sampler = sampler;
      options.aggregate = aggregate;
      options.roots = 4;
      options.nodes = 12;
      options.edges = 5;
      options.coverage = 2000;
      options.batches = 4000;
      SaintBatches batches(graph, GraphPart::train, options);
      // The truth: aggregates of x over all neighbours, and the mean loss (here the degree) over
      // the training nodes that can be drawn.
      std::vector<double> degree(40);
      for (size_t i = edges; i < 2 * edges; ++i) ++degree[static_cast<size_t>(all[i])];
      const std::vector<double> truth = aggregates(graph, aggregate);
      double loss = 0;
      const auto drawable = [&](int64_t v) {
        return sampler != SaintSampler::edge || degree[static_cast<size_t>(v)] > 0;
      };
      for (const int64_t v : nodes_of(graph, GraphPart::train))
        if (drawable(v))
          loss += degree[static_cast<size_t>(v)] / static_cast<double>(batches.samples());

      std::vector<double> times(40), sum(40), square(40);
      double loss_sum = 0, loss_square = 0, plain_sum = 0;
      while (const auto batch = batches.next()) {
        const Ints nodes = ints(find_tensor(batch->extras, "node_id"));
        const Ints ends = ints(find_tensor(batch->extras, "edge_index"));
        const Tensor edge_norm = find_tensor(batch->extras, "edge_norm");
        const Tensor node_weight = find_tensor(batch->extras, "node_weight");
        std::vector<double> estimate(nodes.size());
        for (size_t i = 0; i < ends.size() / 2; ++i)
          estimate[static_cast<size_t>(ends[i + ends.size() / 2])] +=
              edge_norm.item(static_cast<int64_t>(i)) * batch->input.item(2 * ends[i]);
        double batch_loss = 0, plain = 0, targets = 0;
        for (size_t i = 0; i < nodes.size(); ++i) {
          const auto v = static_cast<size_t>(nodes[i]);
          ++times[v];
          sum[v] += estimate[i];
          square[v] += estimate[i] * estimate[i];
          const int64_t y = batch->target.data<int64_t>()[i];
          REQUIRE((node_weight.item(static_cast<int64_t>(i)) > 0) == (y != kIgnored));
          if (y == kIgnored) continue;
          batch_loss += node_weight.item(static_cast<int64_t>(i)) * degree[v];
          plain += degree[v];
          ++targets;
        }
        loss_sum += batch_loss;
        loss_square += batch_loss * batch_loss;
        plain_sum += targets > 0 ? plain / targets : 0;
      }
      const auto n = static_cast<double>(options.batches);
      const double mean_loss = loss_sum / n;
      // 5 standard errors of these batches, and of the counts that the weights come from.
      const double loss_error = std::sqrt((loss_square / n - mean_loss * mean_loss) / n);
      CHECK(std::abs(mean_loss - loss) <= 5 * 1.5 * loss_error);
      CHECK(std::abs(plain_sum / n - loss) > 10 * loss_error);  // what bare means would give
      for (size_t v = 0; v < 40; ++v) {
        if (degree[v] == 0) continue;
        REQUIRE(times[v] > 100);
        const double mean = sum[v] / times[v];
        const double error =
            std::sqrt(std::max(square[v] / times[v] - mean * mean, 0.0) / times[v]);
        CHECK(std::abs(mean - truth[v]) <= 5 * 1.5 * error + 1e-5 * std::abs(truth[v]));
      }
    }
}

TEST_CASE("GraphSAINT batches are subgraphs, repeat, and see only what training may") {
  for (const SaintSampler sampler : {SaintSampler::walk, SaintSampler::node, SaintSampler::edge}) {
    GraphData graph = small_graph(60, sampler == SaintSampler::node);
    SaintOptions options;
    options.sampler = sampler;
    options.roots = 5;
    options.nodes = 15;
    options.edges = 8;
    options.coverage = 5;
    SaintBatches batches(graph, GraphPart::train, options);
    CHECK(batches.batches() >= 3);
    CHECK(batches.samples() == 30);
    while (const auto batch = batches.next()) check_batch(graph, *batch, graph.train_mask);
    check_repeats([&] { return std::make_unique<SaintBatches>(graph, GraphPart::train, options); });

    Ints from, to;
    const Ints all = ints(graph.edge_index);
    const uint8_t* train = graph.train_mask.data<uint8_t>();
    for (size_t i = 0; i < all.size() / 2; ++i) {
      const int64_t a = all[i], b = all[i + all.size() / 2];
      if (train[a] == 0 || train[b] == 0) continue;
      from.push_back(a);
      to.push_back(b);
    }
    graph.train_edge_index = make_edge_index(60, from, to, false);
    SaintBatches inner(graph, GraphPart::train, options);
    while (const auto batch = inner.next())
      for (const int64_t v : ints(find_tensor(batch->extras, "node_id"))) REQUIRE(train[v] == 1);
  }
  const GraphData graph = small_graph();
  // Draws that cannot find anything new only take time.
  for (const SaintSampler sampler : {SaintSampler::walk, SaintSampler::node, SaintSampler::edge}) {
    SaintOptions many;
    many.sampler = sampler;
    many.roots = many.nodes = many.edges = 1 << 20;
    CHECK_THROWS_WITH_AS(SaintBatches(graph, GraphPart::train, many),
                         doctest::Contains("expected at most 4096 draws"), Error);
    many.length = 1023;
    CHECK(most_saint_draws(graph, GraphPart::train, many) ==
          (sampler == SaintSampler::walk ? 64 : 4096));
  }
  SaintOptions bad;
  bad.coverage = 0;
  CHECK_THROWS_WITH_AS(SaintBatches(graph, GraphPart::train, bad), doctest::Contains("coverage 0"),
                       Error);
  GraphData empty = graph;
  empty.edge_index = Tensor::empty({2, 0}, DType::i64);
  SaintOptions by_edge;
  by_edge.sampler = SaintSampler::edge;
  CHECK_THROWS_WITH_AS(SaintBatches(empty, GraphPart::train, by_edge),
                       doctest::Contains("edges to draw"), Error);
  SaintOptions walk;
  walk.roots = 5;
  CHECK(SaintBatches(empty, GraphPart::train, walk).next()->extras[0].second.size(1) == 0);
  GraphData wrong = graph;
  wrong.edge_index = Tensor::full({2, 1}, 40, DType::i64);
  CHECK_THROWS_WITH_AS(SaintBatches(wrong, GraphPart::train, walk),
                       doctest::Contains("edge 0 from 40 to 40"), Error);
  wrong.edge_index = Tensor::zeros({1, 2}, DType::i64);
  CHECK_THROWS_WITH_AS(NeighbourBatches(wrong, GraphPart::train), doctest::Contains("[2, E] i64"),
                       Error);
  NeighbourOptions neighbours;
  neighbours.fanouts = {3, 0};
  CHECK_THROWS_WITH_AS(NeighbourBatches(graph, GraphPart::train, neighbours),
                       doctest::Contains("got 0"), Error);
  neighbours = {};
  neighbours.drop_last = true;
  CHECK_THROWS_WITH_AS(NeighbourBatches(graph, GraphPart::train, neighbours),
                       doctest::Contains("at most 20 nodes"), Error);
  neighbours.fanouts = {};
  CHECK_THROWS_WITH_AS(NeighbourBatches(graph, GraphPart::train, neighbours),
                       doctest::Contains("expected fan-outs"), Error);
}

TEST_CASE("many neighbours of one node are drawn without repeats") {
  GraphData graph;
  graph.nodes = 301;
  graph.classes = 2;
  Ints centre(300, 0), others(300);
  for (int64_t i = 0; i < 300; ++i) others[static_cast<size_t>(i)] = i + 1;
  graph.edge_index = make_edge_index(301, centre, others, true);
  graph.y = Tensor::zeros({301}, DType::i64);
  set_features("test", graph, Tensor::full({301, 2}, 1), {});
  graph.train_mask = make_mask("test", 301, {0});
  std::vector<int64_t> seen(301);
  for (const int64_t count : {64, 65, 299}) {  // on both sides of where the way to look up changes
    NeighbourOptions options;
    options.fanouts = {count};
    NeighbourBatches batches(graph, GraphPart::train, options);
    for (int epoch = 0; epoch < 50; ++epoch) {
      const Batch batch = *batches.next();
      const Ints nodes = ints(find_tensor(batch.extras, "node_id"));
      REQUIRE(static_cast<int64_t>(nodes.size()) == count + 1);
      REQUIRE(std::is_sorted(nodes.begin() + 1, nodes.end()));
      REQUIRE(std::adjacent_find(nodes.begin(), nodes.end()) == nodes.end());
      for (const int64_t node : nodes) ++seen[static_cast<size_t>(node)];
      CHECK_FALSE(batches.next());
    }
  }
  CHECK(*std::min_element(seen.begin(), seen.end()) > 0);
}

TEST_CASE("clusters: each node once an epoch, with the edges between its batch") {
  const GraphData graph = small_graph(60);
  ClusterOptions options;
  options.clusters = 7;
  options.clusters_per_batch = 2;
  ClusterBatches batches(graph, GraphPart::train, options);
  CHECK(batches.batches() == 4);
  Ints seen;
  while (const auto batch = batches.next()) {
    check_batch(graph, *batch, graph.train_mask);
    const Ints nodes = ints(find_tensor(batch->extras, "node_id"));
    const std::set<int64_t> in(nodes.begin(), nodes.end());
    const Ints all = ints(graph.edge_index);
    int64_t inside = 0;
    for (size_t i = 0; i < all.size() / 2; ++i)
      inside += in.count(all[i]) != 0 && in.count(all[i + all.size() / 2]) != 0;
    CHECK(find_tensor(batch->extras, "edge_index").size(1) == inside);
    seen.insert(seen.end(), nodes.begin(), nodes.end());
  }
  std::sort(seen.begin(), seen.end());
  Ints every(60);
  std::iota(every.begin(), every.end(), int64_t{0});
  CHECK(seen == every);
  check_repeats([&] { return std::make_unique<ClusterBatches>(graph, GraphPart::train, options); });

  GraphData inductive = graph;
  inductive.train_edge_index = Tensor::empty({2, 0}, DType::i64);
  ClusterBatches inner(inductive, GraphPart::train, options);
  seen.clear();
  while (const auto batch = inner.next())
    for (const int64_t v : ints(find_tensor(batch->extras, "node_id"))) seen.push_back(v);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == nodes_of(graph, GraphPart::train));
  options.clusters_per_batch = 8;
  CHECK_THROWS_WITH_AS(ClusterBatches(graph, GraphPart::train, options),
                       doctest::Contains("got 7 and 8"), Error);
  options.clusters = 61;
  CHECK_THROWS_WITH_AS(ClusterBatches(graph, GraphPart::train, options),
                       doctest::Contains("1 to 60"), Error);
}

namespace {

// What a network without weights makes of the nodes of a batch: in each layer a node adds what
// comes along its edges to half of its own value.
std::vector<float> network(const Batch& batch, size_t layers) {
  const Ints edges = ints(find_tensor(batch.extras, "edge_index"));
  const Tensor norm = find_tensor(batch.extras, "edge_norm");
  std::vector<float> values;
  for (const int64_t node : ints(find_tensor(batch.extras, "node_id")))
    values.push_back(static_cast<float>(node + 1) / 7);
  const size_t count = edges.size() / 2;
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<float> next(values.size()), into(values.size());
    for (size_t e = 0; e < count; ++e) ++into[static_cast<size_t>(edges[e + count])];
    for (size_t v = 0; v < values.size(); ++v) next[v] = values[v] / 2;
    for (size_t e = 0; e < count; ++e) {
      const auto to = static_cast<size_t>(edges[e + count]);
      const float weight =
          norm.defined() ? norm.item<float>(static_cast<int64_t>(e)) : 1 / into[to];
      next[to] += weight * values[static_cast<size_t>(edges[e])];
    }
    values = next;
  }
  return values;
}

// The nodes of `batch` from which edges lead to its positions [begin, end) in at most `steps`
// steps.
std::set<int64_t> leading_to(const Batch& batch, int64_t begin, int64_t end, size_t steps) {
  const Ints nodes = ints(find_tensor(batch.extras, "node_id"));
  const Ints edges = ints(find_tensor(batch.extras, "edge_index"));
  std::set<int64_t> found(nodes.begin() + begin, nodes.begin() + end);
  for (size_t step = 0; step < steps; ++step) {
    const std::set<int64_t> before = found;
    for (size_t e = 0; e < edges.size() / 2; ++e)
      if (before.contains(nodes[static_cast<size_t>(edges[e + edges.size() / 2])]))
        found.insert(nodes[static_cast<size_t>(edges[e])]);
  }
  return found;
}

int64_t targets_of(const Batch& batch) {
  const Ints targets = ints(batch.target);
  return static_cast<int64_t>(targets.size()) -
         std::count(targets.begin(), targets.end(), kIgnored);
}

// Rank 0 has the batch, and the others have the same tensors without nodes.
void check_undivided(const std::vector<Batch>& shares, const Batch& whole) {
  check_together({shares[0]}, whole);
  for (size_t r = 1; r < shares.size(); ++r) {
    const Batch& none = shares[r];
    REQUIRE(none.input.shape() == Shape{0, whole.input.size(1)});
    REQUIRE(none.target.dtype() == whole.target.dtype());
    Shape target = whole.target.shape();
    target[0] = 0;
    REQUIRE(none.target.shape() == target);
    REQUIRE(none.extras.size() == whole.extras.size());
    for (size_t i = 0; i < whole.extras.size(); ++i) {
      const auto& [name, tensor] = none.extras[i];
      REQUIRE(name == whole.extras[i].first);
      REQUIRE(tensor.dtype() == whole.extras[i].second.dtype());
      REQUIRE(tensor.storage()->category() == Category::input);
      if (name == "x_row_ptr")
        REQUIRE(ints(tensor) == Ints{0});
      else
        REQUIRE(tensor.shape() == (name == "edge_index" ? Shape{2, 0} : Shape{0}));
    }
  }
}

}  // namespace

TEST_CASE("shares of drawn neighbours give each target the output of one process") {
  for (const bool sparse : {false, true}) {
    const GraphData graph = small_graph(60, sparse);
    for (const auto& fanouts : {Ints{2, 2}, Ints{-1, 2}, Ints{3}, Ints{1, 1, 1}, Ints{-1, -1}})
      for (const GraphAggregate aggregate :
           {GraphAggregate::none, GraphAggregate::mean, GraphAggregate::symmetric_loops}) {
        NeighbourOptions options;
        options.fanouts = fanouts;
        options.batch_size = 7;  // there are 30 nodes, so the last batch has 2
        options.aggregate = aggregate;
        options.seed = 5;
        const auto make = [&] {
          return std::make_unique<NeighbourBatches>(graph, GraphPart::train, options);
        };
        CHECK(make()->smallest_batch() == 2);
        check_shares(make, [&](const std::vector<Batch>& shares, const Batch& whole) {
          if (shares.size() == 1) check_together(shares, whole);
          const size_t layers = fanouts.size();
          const std::vector<float> outputs = network(whole, layers);
          const Ints nodes = ints(find_tensor(whole.extras, "node_id"));
          int64_t before = 0;
          for (size_t r = 0; r < shares.size(); ++r) {
            const Batch& batch = shares[r];
            const Share share{static_cast<int>(r), static_cast<int>(shares.size())};
            const int64_t seeds = targets_of(batch), all = targets_of(whole);
            REQUIRE(seeds == share.end(all) - share.begin(all));
            if (aggregate != GraphAggregate::symmetric_loops)  // the graph has no loops
              check_batch(graph, batch, graph.train_mask, seeds);
            const Ints own = ints(find_tensor(batch.extras, "node_id"));
            REQUIRE(std::set<int64_t>(own.begin(), own.end()) ==
                    leading_to(whole, before, before + seeds, layers));
            const std::vector<float> got = network(batch, layers);
            for (int64_t i = 0; i < seeds; ++i) {
              REQUIRE(own[static_cast<size_t>(i)] == nodes[static_cast<size_t>(before + i)]);
              REQUIRE(got[static_cast<size_t>(i)] == outputs[static_cast<size_t>(before + i)]);
            }
            before += seeds;
          }
          REQUIRE(before == targets_of(whole));
        });
      }
  }
}

TEST_CASE("subgraphs and clusters are not divided") {
  for (const bool sparse : {false, true}) {
    const GraphData graph = small_graph(60, sparse);
    for (const GraphAggregate aggregate : {GraphAggregate::none, GraphAggregate::symmetric_loops}) {
      SaintOptions saint;
      saint.roots = 8;
      saint.aggregate = aggregate;
      saint.batches = 3;
      saint.coverage = 2;
      const auto make = [&] {
        return std::make_unique<SaintBatches>(graph, GraphPart::train, saint);
      };
      CHECK(make()->smallest_batch() == 1);
      check_shares(make, check_undivided);
    }
    ClusterOptions clusters;
    clusters.clusters = 7;
    clusters.clusters_per_batch = 3;
    const auto make = [&] {
      return std::make_unique<ClusterBatches>(graph, GraphPart::train, clusters);
    };
    CHECK(make()->smallest_batch() == 1);
    check_shares(make, check_undivided);
    GraphData answers = graph;
    answers.y = Tensor::zeros({60, 3});
    check_shares(
        [&] { return std::make_unique<ClusterBatches>(answers, GraphPart::train, clusters); },
        check_undivided);
    // A whole graph is one batch, so it has no middle.
    for (const GraphData* whole : {&std::as_const(graph), &std::as_const(answers)}) {
      GraphBatches one(*whole, GraphPart::train), first(*whole, GraphPart::train),
          second(*whole, GraphPart::train);
      first.set_share({0, 2});
      second.set_share({1, 2});
      CHECK(second.smallest_batch() == 1);
      CHECK(second.samples() == 30);
      for (int epoch = 0; epoch < 2; ++epoch) {
        const Batch own = *first.next();
        check_undivided({own, *second.next()}, *one.next());
        CHECK(own.held);
        CHECK_FALSE(second.next().has_value());
        CHECK(second.state() == LoaderState{epoch + 1, 0});
        first.seek(second.state());
        one.seek(second.state());
      }
    }
  }
}
