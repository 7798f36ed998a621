// Trace: is told of each op of a forward pass, with its inputs, its output and its attributes. The
// exporters (export/) write a network down from it. Without an active trace an op pays one
// comparison.
#pragma once
#include <concepts>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/variable.h"
#include "ops/options.h"

namespace frugal {

// What an op of a forward pass was called with. Tensors are views of what the op got, so two ops
// that have the same tensor show equal storages, offsets, shapes and strides.
struct TracedOp {
  using Value = std::variant<int64_t, double, std::vector<int64_t>>;

  std::string name;
  std::vector<Tensor> inputs;  // the op's variables, then its other tensors; some may be undefined
  Tensor output;               // undefined if the op makes a graph
  std::vector<std::pair<std::string, Value>> attributes;
  const void* graph = nullptr;  // the graph (ops/graph/graph.h) that the op makes or takes

  // For describers. Booleans are 0 and 1.
  void tensor(const Tensor& x) { inputs.push_back(x); }
  void set(const char* key, double value) { attributes.emplace_back(key, value); }
  void set(const char* key, std::integral auto value) {
    attributes.emplace_back(key, static_cast<int64_t>(value));
  }
  void set(const char* key, const Pair& value) {
    attributes.emplace_back(key, std::vector<int64_t>(value.begin(), value.end()));
  }
  void set(const char* key, const std::vector<int64_t>& value) {
    attributes.emplace_back(key, value);
  }
  void set(const char* key, const std::vector<int>& value) {
    attributes.emplace_back(key, std::vector<int64_t>(value.begin(), value.end()));
  }
};

class Trace {
 public:
  virtual ~Trace() = default;
  virtual void add(TracedOp op) = 0;
};

// The active trace of this thread, or null.
Trace* active_trace();

// Makes `trace` the active one of this thread.
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* previous_;
};

}  // namespace frugal
