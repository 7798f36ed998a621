#include "data/graph/graph_batches.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "data/dataset.h"
#include "data/graph/graph_partition.h"
#include "data/graph/subgraph.h"
#include "data/loader.h"
#include "tests/data/graph/graphs.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

TEST_CASE("random splits are disjoint, of the sizes asked for, and repeat") {
  GraphData graph = small_graph(100);
  const auto counts = [&] {
    std::array<int64_t, 3> out{};
    for (int64_t v = 0; v < graph.nodes; ++v) {
      int64_t masks = 0, i = 0;
      for (const Tensor& mask : {graph.train_mask, graph.val_mask, graph.test_mask}) {
        out[static_cast<size_t>(i++)] += mask.data<uint8_t>()[v];
        masks += mask.data<uint8_t>()[v];
      }
      REQUIRE(masks <= 1);
    }
    return out;
  };
  random_split(graph, {0.6, 0.2, 0.2, 0, 0, 0, 1});
  CHECK(counts() == std::array<int64_t, 3>{60, 20, 20});
  const auto first = graph.train_mask.to_vector();
  random_split(graph, {0.6, 0.2, 0.2, 0, 0, 0, 1});
  CHECK(graph.train_mask.to_vector() == first);
  random_split(graph, {0.6, 0.2, 0.2, 0, 0, 0, 2});
  CHECK(graph.train_mask.to_vector() != first);
  random_split(graph, {0.1, 0, 0.3, 0, 0, 0, 1});
  CHECK(counts() == std::array<int64_t, 3>{10, 0, 30});

  GraphSplit per_class;
  per_class.train_per_class = 5;
  per_class.val_count = 25;
  random_split(graph, per_class);
  CHECK(counts() == std::array<int64_t, 3>{15, 25, 60});
  std::array<int64_t, 3> of_class{};
  for (int64_t v = 0; v < graph.nodes; ++v)
    of_class[static_cast<size_t>(v % 3)] += graph.train_mask.data<uint8_t>()[v];
  CHECK(of_class == std::array<int64_t, 3>{5, 5, 5});
  per_class.test_count = 10;
  random_split(graph, per_class);
  CHECK(counts() == std::array<int64_t, 3>{15, 25, 10});
  graph.y.mut<int64_t>()[7] = kIgnored;
  random_split(graph, {1, 0, 0, 0, 0, 0, 1});
  CHECK(counts()[0] == 99);
  CHECK(graph.train_mask.item(7) == 0);

  per_class.test_count = 100;
  CHECK_THROWS_WITH_AS(random_split(graph, per_class), doctest::Contains("at most 84 nodes"),
                       Error);
  per_class.train_per_class = 60;
  CHECK_THROWS_WITH_AS(random_split(graph, per_class), doctest::Contains("60 nodes of each class"),
                       Error);
  CHECK_THROWS_WITH_AS(random_split(graph, {0.9, 0.2, 0, 0, 0, 0, 0}),
                       doctest::Contains("at most 1"), Error);
  CHECK_THROWS_WITH_AS(random_split(graph, {-0.1, 0.2, 0, 0, 0, 0, 0}), doctest::Contains("[0, 1]"),
                       Error);
  CHECK_THROWS_WITH_AS(random_split(graph, {0, 0.2, 0, 0, 0, 0, 0}),
                       doctest::Contains("training nodes, got none"), Error);
  graph.y = {};
  CHECK_THROWS_WITH_AS(random_split(graph), doctest::Contains("labels"), Error);
}

TEST_CASE("a whole graph is the same batch every epoch") {
  for (const bool sparse : {false, true}) {
    const GraphData graph = small_graph(40, sparse);
    GraphBatches batches(graph, GraphPart::val);
    CHECK(batches.samples() == 10);
    const auto first = batches.next();
    REQUIRE(first.has_value());
    CHECK(!batches.next().has_value());
    const auto second = batches.next();
    CHECK(batches.state() == LoaderState{1, 1});
    CHECK(first->target.storage()->id() == second->target.storage()->id());
    CHECK(find_tensor(first->extras, "edge_index").storage()->id() ==
          find_tensor(second->extras, "edge_index").storage()->id());
    CHECK(find_tensor(first->extras, "edge_index").storage()->id() ==
          graph.edge_index.storage()->id());
    CHECK(first->input.shape() == Shape{40, sparse ? 0 : 2});
    CHECK(find_tensor(first->extras, "x_value").defined() == sparse);
    for (int64_t v = 0; v < graph.nodes; ++v)
      CHECK(first->target.data<int64_t>()[v] ==
            (graph.val_mask.data<uint8_t>()[v] != 0 ? v % 3 : kIgnored));
  }
  GraphData graph = small_graph();
  graph.train_edge_index = make_edge_index(40, {0}, {1}, true);
  CHECK(find_tensor(GraphBatches(graph, GraphPart::train).next()->extras, "edge_index").size(1) ==
        2);
  CHECK(find_tensor(GraphBatches(graph, GraphPart::val).next()->extras, "edge_index").size(1) > 2);
  graph.y = Tensor::full({40, 3}, 1);  // several labels a node
  const Batch several = *GraphBatches(graph, GraphPart::test).next();
  CHECK(several.target.shape() == Shape{40, 3});
  for (int64_t v = 0; v < 40; ++v)
    CHECK(several.target.item(3 * v + 2) ==
          (graph.test_mask.data<uint8_t>()[v] != 0 ? 1.0 : static_cast<double>(kIgnored)));
  graph.test_mask = {};
  CHECK_THROWS_WITH_AS(GraphBatches(graph, GraphPart::test), doctest::Contains("random_split"),
                       Error);
  graph.val_mask = Tensor::zeros({40}, DType::u8);
  CHECK_THROWS_WITH_AS(GraphBatches(graph, GraphPart::val),
                       doctest::Contains("the val mask, got none"), Error);
  graph.y = {};
  CHECK_THROWS_WITH_AS(GraphBatches(graph, GraphPart::train), doctest::Contains("got none"), Error);
  graph = small_graph();
  graph.x = graph.x.slice(0, 0, 39);
  CHECK_THROWS_WITH_AS(GraphBatches(graph, GraphPart::train),
                       doctest::Contains("features [40, 2] f32, got [39, 2] f32"), Error);
  graph = small_graph(40, true);
  graph.x_value = {};
  CHECK_THROWS_WITH_AS(GraphBatches(graph, GraphPart::train), doctest::Contains("sparse features"),
                       Error);
  CHECK_THROWS_WITH_AS(GraphBatches(GraphData(), GraphPart::train),
                       doctest::Contains("a graph with nodes"), Error);
}

// METIS seeds the generator of the C library (findings/metis_process.sh).
TEST_CASE("a partition leaves the C library's random numbers alone") {
  const auto next = [](unsigned seed, bool with_partition) {
    std::srand(seed);
    std::rand();
    if (with_partition) partition(make_edge_index(4, {0, 1, 2}, {1, 2, 3}, true), 4, {});
    return std::rand();
  };
  for (const unsigned seed : {1u, 2u}) CHECK(next(seed, true) == next(seed, false));
}

TEST_CASE("a partition is found while somebody sends SIGTERM, which is handled afterwards") {
  static std::atomic<int> handled;
  handled = 0;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++handled; };
  sigaction(SIGTERM, &action, &before);
  sigset_t terminated, usual;
  sigemptyset(&terminated);
  sigaddset(&terminated, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &terminated, &usual);  // for the thread that sends
  std::atomic<bool> done = false;
  std::jthread sender([&] {
    while (!done) {
      kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  pthread_sigmask(SIG_SETMASK, &usual, nullptr);
  Ints from, to;
  Draws draws({2, 2});
  for (int64_t v = 0; v < 4000; ++v)
    for (int64_t k = 0; k < 8; ++k) {
      from.push_back(v);
      to.push_back(draws.below(4000));
    }
  PartitionOptions options;
  options.parts = 64;
  const std::vector<int32_t> part = partition(make_edge_index(4000, from, to, true), 4000, options);
  done = true;
  sender.join();
  CHECK(part.size() == 4000);
  CHECK(handled > 0);
  sigaction(SIGTERM, &before, nullptr);
}

namespace {

// The number of edges (from, to) whose ends lie in different parts.
int64_t edge_cut(const Tensor& edge_index, const std::vector<int32_t>& parts) {
  const int64_t count = edge_index.size(1);
  const int64_t *from = edge_index.data<int64_t>(), *to = from + count;
  int64_t cut = 0;
  for (int64_t i = 0; i < count; ++i)
    cut += parts[static_cast<size_t>(from[i])] != parts[static_cast<size_t>(to[i])];
  return cut;
}

}  // namespace

TEST_CASE("partitions are balanced, complete, deterministic, and cut few edges") {
  // 8 dense groups of 25 nodes with few edges between them, numbered so that order tells nothing.
  constexpr int64_t kNodes = 200;
  const Ints name = shuffled(kNodes, {1, 1});
  Ints from, to;
  Draws draws({2, 2});
  for (int64_t v = 0; v < kNodes; ++v)
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t u = k < 8 ? v / 25 * 25 + draws.below(25) : draws.below(kNodes);
      from.push_back(name[static_cast<size_t>(v)]);
      to.push_back(name[static_cast<size_t>(u)]);
    }
  const Tensor edge_index = make_edge_index(kNodes, from, to, true);
  for (const int64_t parts : {1, 3, 8, 200}) {
    PartitionOptions options;
    options.parts = parts;
    const std::vector<int32_t> part = partition(edge_index, kNodes, options);
    CHECK(part == partition(edge_index, kNodes, options));
    Ints size(static_cast<size_t>(parts));
    for (const int32_t p : part) ++size[static_cast<size_t>(p)];
    CHECK(*std::min_element(size.begin(), size.end()) >= 1);
    CHECK(*std::max_element(size.begin(), size.end()) <=
          static_cast<int64_t>(std::ceil(kNodes * 1.05 / static_cast<double>(parts))));
    std::vector<int32_t> blind(part.size());  // nodes in turn: what chance gives
    for (size_t v = 0; v < blind.size(); ++v)
      blind[v] = static_cast<int32_t>(v % static_cast<size_t>(parts));
    if (parts == 1) CHECK(edge_cut(edge_index, part) == 0);
    if (parts == 8) CHECK(2 * edge_cut(edge_index, part) < edge_cut(edge_index, blind));
  }
  // METIS gets neither loops nor repetitions: one direction of each edge, with both, is the same
  // graph.
  Ints ends = from;
  ends.insert(ends.end(), to.begin(), to.end());
  const Tensor as_drawn = Tensor::from(ends, {2, static_cast<int64_t>(from.size())});
  PartitionOptions eight;
  eight.parts = 8;
  CHECK(partition(as_drawn, kNodes, eight) == partition(edge_index, kNodes, eight));
  PartitionOptions many;
  many.parts = 201;
  CHECK_THROWS_WITH_AS(partition(edge_index, kNodes, many), doctest::Contains("1 to 200 parts"),
                       Error);
  many = {};
  many.slack = -1;
  CHECK_THROWS_WITH_AS(partition(edge_index, kNodes, many), doctest::Contains("slack"), Error);
  many.slack = 0;
  many.parts = 7;  // without slack and without edges: 29 and 28 nodes
  Ints size(7);
  for (const int32_t p : partition(Tensor::empty({2, 0}, DType::i64), kNodes, many))
    ++size[static_cast<size_t>(p)];
  CHECK(*std::max_element(size.begin(), size.end()) == 29);
}
