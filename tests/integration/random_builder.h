// What draws random graphs: internal to random_*.cpp.
#pragma once
#include <span>
#include <vector>

#include "tests/integration/random_graph.h"

namespace frugal {

// Draws one graph: a pool of variables to which each step adds one.
class GraphBuilder {
 public:
  // `next_leaf`: the first of the graph's leaves that is this one's.
  GraphBuilder(RandomGraph& graph, uint64_t stream, size_t next_leaf, int depth)
      : graph_(graph), key_{graph.seed_, stream}, next_leaf_(next_leaf), depth_(depth) {}

  // magnitude: about log2 of the largest value, so that products of products stay finite.
  struct Item {
    Variable variable;
    int magnitude = 0;
  };
  void put(const Variable& variable, int magnitude) { pool_.push_back({variable, magnitude}); }
  const Item& last() const { return pool_.back(); }
  size_t next_leaf() const { return next_leaf_; }

  int64_t pick(int64_t lo, int64_t hi) {  // both included
    return lo +
           static_cast<int64_t>(uniform_int(key_, drawn_++, static_cast<uint64_t>(hi - lo) + 1));
  }
  bool chance(int64_t percent) { return pick(1, 100) <= percent; }
  Variable parameter(const Shape& shape, double limit = 1) {
    return graph_.leaf(next_leaf_++, shape, true, limit);
  }
  Variable maybe_parameter(const Shape& shape) {
    return chance(60) ? parameter(shape) : Variable();
  }
  Tensor constant(const Shape& shape, double limit = 1) {
    return random_values({key_.seed + 1, key_.offset ^ (drawn_++ << 32)}, shape,
                         graph_.options_.dtype, graph_.options_.device, limit);
  }
  RngKey dropout_key() { return graph_.rng_.next(); }
  int axis(const Variable& x) { return static_cast<int>(pick(0, x.value().dim() - 1)); }
  DType dtype() const { return graph_.options_.dtype; }
  Device device() const { return graph_.options_.device; }
  int64_t max_elements() const { return graph_.options_.large ? 32768 : 3000; }

  void step();
  Variable loss();
  // Another variable of x's shape, x itself if there is none. `moved`: nobody else has it then.
  Item partner(const Variable& x, bool moved);

 private:
  Item draw();
  void segment();

  RandomGraph& graph_;
  RngKey key_;
  uint64_t drawn_ = 0;
  size_t next_leaf_;
  int depth_;
  std::vector<Item> pool_;
};

// What a step may do. `adds` to the magnitude, or, where it is negative, the result's is -adds - 1.
struct Choice {
  Variable (*run)(GraphBuilder&, const Variable&);  // undefined: not with this shape
  int adds;
};

std::span<const Choice> sequence_choices();  // random_sequences.cpp

}  // namespace frugal
