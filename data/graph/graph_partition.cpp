#include "data/graph/graph_partition.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/random_streams.h"
#include "data/graph/subgraph.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

class Partitioner {
 public:
  Partitioner(const Tensor& edge_index, int64_t nodes, const PartitionOptions& options)
      : options_(options),
        edges_(edge_index, nodes),
        part_(static_cast<size_t>(nodes), -1),
        size_(static_cast<size_t>(options.parts)),
        // no less than a fair share, else nodes would be left over
        limit_(std::max(
            static_cast<int64_t>(std::ceil(static_cast<double>(nodes) * (1 + options.slack) /
                                           static_cast<double>(options.parts))),
            (nodes + options.parts - 1) / options.parts)) {}

  std::vector<int32_t> run() {
    grow();
    for (int pass = 0; pass < options_.passes && refine(); ++pass) {
    }
    return std::move(part_);
  }

 private:
  // (edges into the part, node): most edges first, then the lowest node.
  using Candidate = std::pair<int64_t, int64_t>;

  void grow() {
    const auto nodes = static_cast<int64_t>(part_.size());
    const std::vector<int64_t> order = shuffled(nodes, streams::kPartition.key(options_.seed));
    frontier_.resize(size_.size());
    links_.assign(part_.size(), {});
    // (nodes, part): the smallest part grows next.
    using Turn = std::pair<int64_t, int32_t>;
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    for (size_t p = 0; p < size_.size(); ++p) {
      assign(order[p], static_cast<int32_t>(p));
      turns.emplace(1, static_cast<int32_t>(p));
    }
    size_t next = size_.size();  // in `order`: where a part goes on that has no neighbours left
    for (auto left = nodes - options_.parts; left > 0; --left) {
      const int32_t part = turns.top().second;
      turns.pop();
      int64_t node = take(part);
      while (node < 0) {
        if (part_[static_cast<size_t>(order[next])] < 0) node = order[next];
        ++next;
      }
      assign(node, part);
      turns.emplace(size_[static_cast<size_t>(part)], part);
    }
    frontier_.clear();
    links_.clear();
  }

  // The free node with the most edges into the part, or -1.
  int64_t take(int32_t part) {
    auto& frontier = frontier_[static_cast<size_t>(part)];
    while (!frontier.empty()) {
      const int64_t node = -frontier.top().second;
      frontier.pop();
      if (part_[static_cast<size_t>(node)] < 0) return node;
    }
    return -1;
  }

  void assign(int64_t node, int32_t part) {
    part_[static_cast<size_t>(node)] = part;
    ++size_[static_cast<size_t>(part)];
    edges_.each(node, [&](int64_t other) {
      if (part_[static_cast<size_t>(other)] >= 0) return;
      // A free node touches few parts, so a list of them is short. Entries of the queue that are
      // out of date stand behind newer ones of the same node.
      auto& links = links_[static_cast<size_t>(other)];
      auto found = std::find_if(links.begin(), links.end(),
                                [&](const auto& link) { return link.first == part; });
      if (found == links.end()) found = links.insert(links.end(), {part, 0});
      frontier_[static_cast<size_t>(part)].emplace(++found->second, -other);
    });
    links_[static_cast<size_t>(node)] = {};
  }

  // One pass over all nodes; whether any moved. A move must lower the cut, or keep it and level the
  // sizes.
  bool refine() {
    std::vector<int64_t> into(size_.size());
    std::vector<int32_t> touched;
    bool moved = false;
    for (size_t node = 0; node < part_.size(); ++node) {
      const int32_t own = part_[node];
      if (size_[static_cast<size_t>(own)] == 1) continue;
      edges_.each(static_cast<int64_t>(node), [&](int64_t other) {
        const int32_t part = part_[static_cast<size_t>(other)];
        if (into[static_cast<size_t>(part)]++ == 0) touched.push_back(part);
      });
      int32_t best = own;
      for (const int32_t part : touched) {
        const auto p = static_cast<size_t>(part), b = static_cast<size_t>(best);
        if (part == own || size_[p] >= limit_) continue;
        const bool better = into[p] > into[b] ||
                            (into[p] == into[b] && size_[p] + (best == own ? 1 : 0) < size_[b]);
        if (better) best = part;
      }
      if (best != own) {
        part_[node] = best;
        --size_[static_cast<size_t>(own)];
        ++size_[static_cast<size_t>(best)];
        moved = true;
      }
      for (const int32_t part : touched) into[static_cast<size_t>(part)] = 0;
      touched.clear();
    }
    return moved;
  }

  PartitionOptions options_;
  InEdges edges_;
  std::vector<int32_t> part_;
  std::vector<int64_t> size_;
  int64_t limit_;
  std::vector<std::priority_queue<Candidate>> frontier_;         // by part
  std::vector<std::vector<std::pair<int32_t, int64_t>>> links_;  // of free nodes: part, edges
};

}  // namespace

std::vector<int32_t> partition(const Tensor& edge_index, int64_t nodes,
                               const PartitionOptions& options) {
  FRUGAL_CHECK(options.parts >= 1 && options.parts <= nodes && options.parts <= INT32_MAX,
               "[partition] expected 1 to {} parts, one a node at most, got {}", nodes,
               options.parts);
  FRUGAL_CHECK(options.slack >= 0, "[partition] expected a slack of at least 0, got {}",
               options.slack);
  return Partitioner(edge_index, nodes, options).run();
}

int64_t edge_cut(const Tensor& edge_index, const std::vector<int32_t>& parts) {
  const int64_t count = edge_index.size(1);
  const int64_t *from = edge_index.data<int64_t>(), *to = from + count;
  int64_t cut = 0;
  for (int64_t i = 0; i < count; ++i)
    cut += parts[static_cast<size_t>(from[i])] != parts[static_cast<size_t>(to[i])];
  return cut;
}

}  // namespace frugal::data
