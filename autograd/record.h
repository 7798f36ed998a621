// record(): how a differentiable function joins the graph. Forward, what is saved, backward and the
// recipe in one glance:
//
//   Variable gelu(const Variable& x) {
//     return record("gelu", {x}, ops::gelu(x.value()), {save(x)},
//         [](const Backward& b) { return Grads{ops::gelu_backward(b.dy(), b.saved(0))}; },
//         replay([](const Slots& s) { return ops::gelu(s.unpack(0)); }));
//   }
//
// `backward` is a pure function of (dy, saved slots). It captures numbers, never tensors: edges and
// closures carry no data.
#pragma once
#include "autograd/saved_tensor.h"
#include "autograd/variable.h"

namespace frugal {

// One request to keep a tensor for backward.
struct Save {
  Tensor value;
  Role role = Role::activation;
  std::shared_ptr<Node> producer = nullptr;  // whose recipe could rebuild it
  bool only_for_replay = false;
  Sign sign = {};               // of the elements, for codecs that can carry it
  bool is_output_sign = false;  // a mask: the sign of this op's output
  ReplayFn rebuild = nullptr;   // a mask: how rebuilt values would give it (biased)

  Save with_sign(const Tensor& mask, double slope) && {
    sign = {mask, slope};
    return std::move(*this);
  }
};
Save save(const Variable& x);        // an input: weight if it is a parameter, else activation
Save save_output(const Tensor& y);   // this op's own output, as activation
Save save_mask(const Tensor& mask);  // lossless
// The mask of an activation function, lossless. Kept once: by the codes of a tensor saved before
// with_sign(mask), or of this op's output when a consumer saves that, where a codec carries it.
Save save_sign(const Tensor& mask, ReplayFn rebuild = {});
Save save_index(const Tensor& index);  // lossless
Save save_stat(const Tensor& stat);    // lossless; small statistics
// A slot that only the recipe needs: kept as x's own recipe, at no cost, where x has one. Where it
// has none the slot stays empty and this op's output has no recipe.
Save for_replay(const Variable& x);

class Backward {
 public:
  Backward(const Tensor& dy, const Slots& slots, std::vector<bool> needs)
      : dy_(dy), slots_(slots), needs_(std::move(needs)) {}
  const Tensor& dy() const { return dy_; }
  Tensor saved(int slot) const { return slots_.unpack(slot); }
  Tensor variance(int slot) const { return slots_.variance(slot); }  // see SavedTensor
  bool needs(int input) const {
    return needs_[static_cast<size_t>(input)];
  }  // does that input need a gradient?

 private:
  const Tensor& dy_;
  const Slots& slots_;
  std::vector<bool> needs_;
};
using BackwardFn = std::function<Grads(const Backward&)>;

// How the output is rebuilt from this op's slots, and what unbiased slots make of it. `linear`
// (affine) in its activation slots: unbiased. `smooth`: corrected by the slots' variance.
struct ReplaySpec {
  ReplayFn fn;
  Replay lossy = Replay::biased;
};
inline ReplaySpec replay(ReplayFn fn) { return {std::move(fn), Replay::biased}; }
inline ReplaySpec linear_replay(ReplayFn fn) { return {std::move(fn), Replay::unbiased}; }
inline ReplaySpec smooth_replay(ReplayFn fn) { return {std::move(fn), Replay::corrected}; }

// The output as a Variable; when any input requires grad and grad mode is on, with a Node that
// keeps `saves`.
Variable record(const char* op, const Variables& inputs, Tensor output,
                const std::vector<Save>& saves, BackwardFn backward, ReplaySpec replay = {});

// Would record() make a node? Ops ask before computing masks that only backward needs.
bool recording(const Variables& inputs);

bool grad_enabled();
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

// Turns grad mode back on inside a NoGrad, for recomputation.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};

}  // namespace frugal
