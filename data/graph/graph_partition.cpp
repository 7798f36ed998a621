#include "data/graph/graph_partition.h"

#include <metis.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/kept_signal.h"
#include "core/random/random_streams.h"
#include "data/graph/subgraph.h"

namespace frugal::data {
namespace {

// A graph in METIS's form: the neighbours of node v are adjacent[ends[v]] to
// adjacent[ends[v + 1] - 1]. Each occurs once, v is not among them, and v is a neighbour of each of
// them.
struct Adjacency {
  std::vector<idx_t> ends{0}, adjacent;
};

Adjacency adjacency(const Tensor& edge_index, int64_t nodes) {
  const Tensor turned = Tensor::empty(edge_index.shape(), DType::i64);
  const int64_t count = edge_index.size(1);
  const int64_t* ends = edge_index.data<int64_t>();
  std::copy_n(ends, count, turned.mut<int64_t>() + count);
  std::copy_n(ends + count, count, turned.mut<int64_t>());
  const InEdges in(edge_index, nodes), out(turned, nodes);
  Adjacency graph;
  std::vector<idx_t> around;
  for (int64_t v = 0; v < nodes; ++v) {
    around.clear();
    const auto add = [&](int64_t u) {
      if (u != v) around.push_back(static_cast<idx_t>(u));
    };
    in.each(v, add);
    out.each(v, add);
    std::sort(around.begin(), around.end());
    around.erase(std::unique(around.begin(), around.end()), around.end());
    graph.adjacent.insert(graph.adjacent.end(), around.begin(), around.end());
    FRUGAL_CHECK(std::in_range<idx_t>(graph.adjacent.size()),
                 "[partition] expected fewer than 2^{} edges for METIS, got more",
                 8 * sizeof(idx_t) - 1);
    graph.ends.push_back(static_cast<idx_t>(graph.adjacent.size()));
  }
  return graph;
}

// While it lives, the C library's generator has another state, so that the program that called
// finds its own as it was. METIS seeds and draws from that generator.
class KeptDraws {
 public:
  KeptDraws() : before_(initstate(1, state_.data(), state_.size())) {}
  ~KeptDraws() { setstate(before_); }
  KeptDraws(const KeptDraws&) = delete;
  KeptDraws& operator=(const KeptDraws&) = delete;

 private:
  std::array<char, 128> state_{};  // as many as usual: a seed then gives the usual numbers
  char* before_;
};

// Moves nodes out of parts above `limit`, first into empty parts and then into parts with room. If
// parts are still empty, moves a node of any larger part into each.
void keep_limits(std::vector<int32_t>& part, int64_t parts, int64_t limit) {
  std::vector<int64_t> size(static_cast<size_t>(parts));
  for (const int32_t p : part) ++size[static_cast<size_t>(p)];
  const auto move_to = [&](size_t to,
                           int64_t most) {  // takes one node of a part with more than `most`
    return [&, to, most](int32_t& of) {
      if (size[static_cast<size_t>(of)] <= most) return false;
      --size[static_cast<size_t>(of)];
      ++size[to];
      of = static_cast<int32_t>(to);
      return true;
    };
  };
  // One pass over the parts and over the nodes: each part goes on where the part before it stopped.
  auto node = part.begin();
  const auto fill = [&](int64_t room, int64_t most) {
    node = part.begin();
    for (size_t p = 0; p < size.size(); ++p)
      while (size[p] < room) {
        node = std::find_if(node, part.end(), move_to(p, most));
        if (node == part.end()) return;
      }
  };
  fill(1, limit);
  fill(limit, limit);
  fill(1, 1);
}

}  // namespace

std::vector<int32_t> partition(const Tensor& edge_index, int64_t nodes,
                               const PartitionOptions& options) {
  FRUGAL_CHECK(options.parts >= 1 && options.parts <= nodes && std::in_range<idx_t>(nodes),
               "[partition] expected 1 to {} parts, one a node at most, got {}", nodes,
               options.parts);
  FRUGAL_CHECK(options.slack >= 0, "[partition] expected a slack of at least 0, got {}",
               options.slack);
  std::vector<int32_t> part(static_cast<size_t>(nodes));
  if (options.parts == 1) return part;
  Adjacency graph = adjacency(edge_index, nodes);
  idx_t settings[METIS_NOPTIONS];
  METIS_SetDefaultOptions(settings);
  settings[METIS_OPTION_SEED] =
      static_cast<idx_t>(philox(streams::kPartition.key(options.seed), 0)[0] >> 1);
  settings[METIS_OPTION_UFACTOR] =  // thousandths
      static_cast<idx_t>(std::clamp(std::floor(options.slack * 1000), 1.0, 1e6));
  idx_t count = static_cast<idx_t>(nodes), constraints = 1, cut = 0,
        parts = static_cast<idx_t>(options.parts);
  std::vector<idx_t> found(part.size());
  // Recursive bisection. METIS's k-way partition cuts up to 7 % fewer edges into few parts, but 11
  // to 19 % more where parts have about two to fifteen nodes, and takes up to five times as long.
  int status = METIS_OK;
  {
    // METIS has handlers of its own for these signals. It would take a SIGTERM that somebody sends
    // for its own way to report an error.
    const KeptSignal aborted(SIGABRT, KeptSignal::Delivery::now), terminated(SIGTERM);
    const KeptDraws draws;
    status = METIS_PartGraphRecursive(&count, &constraints, graph.ends.data(),
                                      graph.adjacent.data(), nullptr, nullptr, nullptr, &parts,
                                      nullptr, nullptr, settings, &cut, found.data());
  }
  FRUGAL_CHECK(status == METIS_OK, "[partition] METIS found no {} parts of {} nodes: {}",
               options.parts, nodes,
               status == METIS_ERROR_MEMORY ? "not enough memory" : "unknown error");
  std::transform(found.begin(), found.end(), part.begin(),
                 [](idx_t p) { return static_cast<int32_t>(p); });
  // At least an equal share, so that there is room for all nodes.
  const double share = static_cast<double>(nodes) / static_cast<double>(options.parts);
  const auto limit = std::max(static_cast<int64_t>(std::ceil(share * (1 + options.slack))),
                              (nodes + options.parts - 1) / options.parts);
  keep_limits(part, options.parts, limit);
  return part;
}

}  // namespace frugal::data
