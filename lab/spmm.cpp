#include <algorithm>
#include <cstdio>

#include "apps/bench/bench_place.h"
#include "apps/cli/report.h"
#include "apps/json.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "core/words/nouns.h"
#include "lab/commands.h"
#include "ops/dense/copy.h"
#include "ops/graph/spmm.h"
#include "train/statistics.h"

namespace frugal::lab {

using namespace apps;

namespace {

constexpr int64_t kWidths[] = {40, 128, 256};
constexpr double kDegree = 1166243.0 / 169343;  // ogbn-arxiv's

// The graph has both directions of each edge and a loop at each node.
ops::Graph random_graph(int64_t nodes, Device device) {
  const int64_t edges =
      std::max<int64_t>(1, static_cast<int64_t>(kDegree * static_cast<double>(nodes)));
  const Tensor index = Tensor::empty({2, 2 * edges}, DType::i64);
  int64_t* to = index.mut<int64_t>();
  const auto node = [&](int64_t i) {
    return static_cast<int64_t>(
        uniform_int({1, 0}, static_cast<uint64_t>(i), static_cast<uint64_t>(nodes)));
  };
  for (int64_t e = 0; e < edges; ++e) {
    to[e] = to[3 * edges + e] = node(2 * e);
    to[edges + e] = to[2 * edges + e] = node(2 * e + 1);
  }
  ops::GraphOptions options;
  options.norm = ops::EdgeNorm::symmetric;
  options.self_loops = true;
  return ops::to_device(ops::make_graph(index, nodes, options), device);
}

}  // namespace

void study_spmm(const LabArguments& arguments) {
  const auto [device, dtype, repeats] = bench_place(arguments, 11);
  const ops::Graph graph = random_graph(arguments.nodes, device);
  const int64_t entries = graph.edges.by_row.col.numel();
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {{"wide", "time", "multiply-adds"}};
  for (const int64_t width : kWidths) {
    const Tensor x =
        ops::cast(Tensor::full({arguments.nodes, width}, 0.5, DType::f32, device), dtype);
    std::vector<double> seconds;
    for (int64_t round = -2; round < repeats; ++round) {
      const double took = seconds_of(device, [&] { ops::spmm(graph.edges.by_row, x); });
      if (round >= 0) seconds.push_back(took);
    }
    const double ms = 1000 * median(seconds);
    list.push_back({{"width", width}, {"ms", ms}});
    lines.push_back({std::to_string(width), fmt::format("{:.3f} ms", ms),
                     fmt::format("{:.1f} G/s", static_cast<double>(entries * width) / ms / 1e6)});
  }
  if (arguments.json) {
    const Json document = {{"device", arguments.device}, {"dtype", arguments.dtype},
                           {"nodes", arguments.nodes},   {"entries", entries},
                           {"repeats", repeats},         {"results", list}};
    print_json(document);
    return;
  }
  std::printf("%lld nodes, %lld entries, %s, %s, %s, medians of %lld\n%s",
              static_cast<long long>(arguments.nodes), static_cast<long long>(entries),
              arguments.device.c_str(), arguments.dtype.c_str(),
              with_noun(num_threads(), "thread").c_str(), static_cast<long long>(repeats),
              table(lines).c_str());
}

}  // namespace frugal::lab
