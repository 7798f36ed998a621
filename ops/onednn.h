// The one place that knows oneDNN. Compiles with 2.x and 3.x, whose primitive descriptors are built
// differently. Included only by ops/*.cpp that call oneDNN.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops::onednn {

using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;

const dnnl::engine& engine();
dnnl::stream& stream();

// An f32 descriptor with oneDNN's extents in `dims` and the given layout, or strides in elements.
Desc desc(const std::vector<int64_t>& dims, Tag tag);
Desc desc(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides);

// Runs `f`; oneDNN's exceptions become frugal::Error naming `op`.
template <class F>
auto guarded(const char* op, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("[{}] oneDNN refused: {}", op, error.what()));
  }
}

// The primitive descriptor of P from its operation's arguments; the scratchpad is the caller's.
template <class P, class... Args>
typename P::primitive_desc describe_primitive(const Args&... args) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), args..., attr);
#else
  return typename P::primitive_desc(typename P::desc(args...), attr, engine());
#endif
}

// The same for a backward primitive, which wants its forward's descriptor as a hint.
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Hint& hint, const Args&... args) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), args..., hint, attr);
#else
  return typename P::primitive_desc(typename P::desc(args...), attr, engine(), hint);
#endif
}

// One argument of a primitive: where the data is and how it lies. When the primitive wants another
// layout (weights), it is reordered through a workspace tensor.
struct Argument {
  int id;  // DNNL_ARG_...
  const void* data;
  Desc layout;  // as the data lies
};

// A primitive made once per problem. `wanted` gives, for the arguments that may be reordered, the
// layout it wants.
struct Plan {
  dnnl::primitive primitive;
  Desc scratchpad;
  std::unordered_map<int, Desc> wanted;
};

// The thread's plan for `key`, made by `make` at first.
const Plan& cached_plan(std::string key, std::function<Plan()> make);

// Executes; arguments whose layout differs from the plan's are reordered before (inputs) or after
// (outputs). Scratchpad and reordered copies are workspace tensors.
void execute(const Plan& plan, std::initializer_list<Argument> inputs,
             std::initializer_list<Argument> outputs);

}  // namespace frugal::ops::onednn
