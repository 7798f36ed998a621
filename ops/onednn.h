// The one place that knows oneDNN. Compiles with 2.x and 3.x, whose primitive descriptors are built
// differently. Included only by ops/*.cpp that call oneDNN.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ops/dense/weight_tiles.h"

namespace frugal::ops::onednn {

using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;

const dnnl::engine& engine();
dnnl::stream& stream();

// An f32 descriptor with oneDNN's extents in `dims` and the given layout, or strides in elements.
Desc desc(const std::vector<int64_t>& dims, Tag tag);
Desc desc(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides);

// The caller gives the scratchpad, so that its bytes are accounted.
dnnl::primitive_attr user_scratchpad();
// The same, of a primitive that adds to its output.
dnnl::primitive_attr adding();

// Runs `f`; oneDNN's exceptions become frugal::Error naming `op`.
template <class F>
auto guarded(const char* op, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("[{}] oneDNN refused: {}", op, error.what()));
  }
}

// Which implementation to take, asked by name from the one that oneDNN prefers on. Where none is
// wanted, the preferred one is taken.
using Wanted = std::function<bool(const std::string&)>;

// Takes the first wanted implementation of make()'s primitive descriptor.
template <class Make>
auto choose(const Wanted& wanted, const Make& make) {
  auto candidate = make();
  while (wanted) {
    if (wanted(candidate.impl_info_str())) return candidate;
    if (!candidate.next_impl()) return make();
  }
  return candidate;
}

// The primitive descriptor of P from its operation's arguments.
template <class P, class... Args>
typename P::primitive_desc describe_with(const dnnl::primitive_attr& attr, const Wanted& wanted,
                                         const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return choose(wanted, [&] { return typename P::primitive_desc(engine(), args..., attr); });
#else
  const typename P::desc operation(args...);  // oneDNN's list of implementations points to it
  return choose(wanted, [&] { return typename P::primitive_desc(operation, attr, engine()); });
#endif
}

template <class P, class... Args>
typename P::primitive_desc describe_primitive(const Wanted& wanted, const Args&... args) {
  return describe_with<P>(user_scratchpad(), wanted, args...);
}

// The same for a backward primitive, which wants its forward's descriptor as a hint.
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Hint& hint, const Args&... args) {
  const dnnl::primitive_attr attr = user_scratchpad();
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), args..., hint, attr);
#else
  return typename P::primitive_desc(typename P::desc(args...), attr, engine(), hint);
#endif
}

// The tiles of a weight (oneDNN's extents K, C, R, S), or nothing where a layout is of another
// kind.
std::optional<WeightTiles> tiles_of(const Desc& layout);

// How an argument that lies as `plain` is brought into the layout that the primitive wants, or back
// for an output.
struct Repack {
  int id = 0;  // DNNL_ARG_...
  Desc plain, wanted;
  dnnl::reorder reorder;
  Desc scratchpad;                     // of the reorder
  std::optional<WeightTiles> adjoint;  // instead: `plain` is the weight of the adjoint convolution
};
enum class Direction : uint8_t { input, output };

// A primitive made once per problem, and its arguments that lie otherwise than it wants.
struct Plan {
  dnnl::primitive primitive;
  Desc scratchpad;
  std::vector<Repack> repacks;

  // Repacks argument `id` at every execution, unless it lies as wanted already.
  void repack(int id, const Desc& plain, const Desc& wanted, Direction direction);
  bool adjoint() const { return !repacks.empty() && repacks.front().adjoint.has_value(); }
};

// The thread's plan for `key` and the present number of threads, made by `make` at first.
const Plan& cached_plan(std::string key, std::function<Plan()> make);

// One argument of a primitive: where the data is and how it lies, unless the plan repacks it.
struct Argument {
  int id;  // DNNL_ARG_...
  const void* data;
  Desc layout;
};

// Executes, and waits. Scratchpad and repacked copies are workspace tensors.
void execute(const Plan& plan, std::initializer_list<Argument> inputs,
             std::initializer_list<Argument> outputs);

}  // namespace frugal::ops::onednn
