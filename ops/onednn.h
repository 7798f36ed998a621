// The one place that knows oneDNN; only ops/*.cpp files that call oneDNN include it. It compiles
// with 2.x and 3.x, which build primitive descriptors differently.
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

// A memory descriptor of f32 or bf16. `dims` are oneDNN's extents; the layout is a tag, or strides
// in elements.
Desc desc(const std::vector<int64_t>& dims, Tag tag, DType dtype = DType::f32);
Desc desc(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
          DType dtype = DType::f32);

// Whether oneDNN computes with operands of this dtype here: f32, and bf16 as bf16_products() says.
bool takes(DType dtype);

// Attributes that make the caller provide the scratchpad, so that its bytes are accounted.
dnnl::primitive_attr user_scratchpad();
// user_scratchpad() for a primitive that adds to its output.
dnnl::primitive_attr adding();

// Runs `f`. An exception of oneDNN becomes a frugal::Error that names `op`.
template <class F>
auto guarded(const char* op, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("[{}] oneDNN refused: {}", op, error.what()));
  }
}

// Chooses an implementation: asked by name, beginning with the one that oneDNN prefers. If it wants
// none, the preferred one is used.
using Wanted = std::function<bool(const std::string&)>;

// Moves the primitive descriptor from make() to the first wanted implementation.
template <class Make>
auto choose(const Wanted& wanted, const Make& make) {
  auto candidate = make();
  while (wanted) {
    if (wanted(candidate.impl_info_str())) return candidate;
    if (!candidate.next_impl()) return make();
  }
  return candidate;
}

// Makes the primitive descriptor of P from the arguments of its operation.
template <class P, class... Args>
typename P::primitive_desc describe_with(const dnnl::primitive_attr& attr, const Wanted& wanted,
                                         const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return choose(wanted, [&] { return typename P::primitive_desc(engine(), args..., attr); });
#else
  const typename P::desc operation(args...);  // the list of implementations points to this object
  return choose(wanted, [&] { return typename P::primitive_desc(operation, attr, engine()); });
#endif
}

// Makes the descriptor of a backward primitive, which needs that of its forward primitive as a
// hint.
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Hint& hint, const Args&... args) {
  const dnnl::primitive_attr attr = user_scratchpad();
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), args..., hint, attr);
#else
  return typename P::primitive_desc(typename P::desc(args...), attr, engine(), hint);
#endif
}

// The tiles of a weight (oneDNN's extents K, C, R, S); nothing if the layout has no such tiles.
std::optional<WeightTiles> tiles_of(const Desc& layout);

// oneDNN crashes where the system has no memory for the code that it is about to generate. So this
// is called before, and throws an error where there is little left.
void expect_room_for_code();

// Something that oneDNN compiles when it is executed first. A plan that is only asked for its
// memory compiles nothing.
template <class P>
class Lazy {
 public:
  Lazy() = default;
  explicit Lazy(std::function<P()> make) : make_(std::move(make)) {}
  const P& get() const {
    if (!made_) {
      expect_room_for_code();
      made_ = make_();
      make_ = {};  // it holds a description of the primitive
    }
    return *made_;
  }

 private:
  mutable std::function<P()> make_;
  mutable std::optional<P> made_;
};

// How an argument with layout `plain` is converted to the layout that the primitive wants, or an
// output back from it.
struct Repack {
  int id = 0;  // DNNL_ARG_...
  Desc plain, wanted;
  Lazy<dnnl::reorder> reorder;
  Desc scratchpad;                     // scratchpad of the conversion
  std::optional<WeightTiles> adjoint;  // if set, `plain` is the weight of the adjoint convolution
                                       // and is written to these tiles
};
// sum: an output that is added to what `plain` holds.
enum class Direction : uint8_t { input, output, sum };

// A primitive, made once for each problem, and its arguments that must be converted. It belongs to
// one thread.
struct Plan {
  Lazy<dnnl::primitive> primitive;
  Desc scratchpad;
  std::vector<Repack> repacks;
  bool reference = false;  // oneDNN has plain loops alone for this problem

  // Converts argument `id` at every execution, unless it has the wanted layout already.
  void repack(int id, const Desc& plain, const Desc& wanted, Direction direction);
  // The primitive P of a descriptor, and its scratchpad.
  template <class P>
  static Plan of(const typename P::primitive_desc& pd) {
    return {Lazy<dnnl::primitive>([pd] { return dnnl::primitive(P(pd)); }),
            pd.scratchpad_desc(),
            {},
            std::string(pd.impl_info_str()).find("ref") != std::string::npos};
  }
  bool adjoint() const { return !repacks.empty() && repacks.front().adjoint.has_value(); }
};

// What a plan is for. A thread keeps the plans of each that it used last: 1024 of convolutions,
// which a network has of a few sizes of pictures, and 256 of products, of which each length of a
// text has its own. The plan of a product takes about 64 KiB with oneDNN 2.6, 215 KiB with 3.7.
enum class Work : uint8_t { convolution, product };

// This thread's plan for `key` and the present number of threads. `make` makes it at the first
// call.
const Plan& cached_plan(Work work, std::string key, std::function<Plan()> make);

// One argument of a primitive: its data and its layout. The layout is ignored if the plan converts
// the argument.
struct Argument {
  int id;  // DNNL_ARG_...
  const void* data;
  Desc layout;
};

// Executes the plan and waits. The scratchpad and converted copies are workspace tensors.
void execute(const Plan& plan, std::initializer_list<Argument> inputs,
             std::initializer_list<Argument> outputs);

// Allocates and frees on `meta` what execute() would allocate.
void account(const Plan& plan);

// A part of the work of another plan: a plan for one thread, and its inputs.
struct Share {
  const Plan* plan;
  std::vector<Argument> inputs;
};
// Executes the shares of the work of `whole` at once, each on a thread of its own, and waits. What
// they give for `output` is added in their order and converted as `whole` converts it. REQUIRES:
// plans convert `output` alone, which is f32, and all from one layout.
void execute_shares(const Plan& whole, const std::vector<Share>& shares, const Argument& output);

// Allocates and frees on `meta` what execute_shares() would allocate. output: its layout.
void account_shares(const Plan& whole, const std::vector<Share>& shares, const Desc& output);

// The bytes that execute() and execute_shares() allocate.
int64_t bytes_of(const Plan& plan);
int64_t bytes_of(const std::vector<Share>& shares);

}  // namespace frugal::ops::onednn
