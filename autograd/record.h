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
#include "autograd/gradient.h"
#include "autograd/packed_pass.h"
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

  Use use = {};
  SavedTensor kept = {};  // unless undefined, what it is kept as already
  bool curved = false;    // the gradient is not linear in it: see keeps_known_noise()
  bool lossless = false;  // an activation that must come back as it was

  Save with_use(const Use& how) && {
    use = how;
    return std::move(*this);
  }
  Save with_sign(const Tensor& mask, double slope) && {
    sign = {mask, slope};
    return std::move(*this);
  }
};
Save save(const Variable& x);  // an input: weight if it is held, else activation
// save(x) if `needed`: an op keeps what the gradients that are wanted need, and no more.
Save save_if(bool needed, const Variable& x);
Save save_output(const Tensor& y);   // this op's own output, as activation
Save save_mask(const Tensor& mask);  // lossless
// The mask of an activation function, lossless. Kept once: by the codes of a tensor saved before
// with_sign(mask), or of this op's output when a consumer saves that, where a codec carries it.
Save save_sign(const Tensor& mask, ReplayFn rebuild = {});
// Keeps x without loss. Where a backward or a recipe takes slices of rows, it takes the same rows
// of this: indices, targets, statistics of each row.
Save save_exact(const Tensor& x);
// Keeps x without loss. A slice of rows takes all of this: statistics of channels, sums, scores.
Save save_whole(const Tensor& x);
// Is there a lossy policy? Where not, an op may keep what is cheapest.
bool saves_may_be_lossy();
// Keeps x as slot 0 of `op` now, for a gradient that is smooth in x and not linear. False if x will
// be rebuilt from lossy sources: nobody knows the variance of its noise then, which backward needs
// to correct what it does on average. The op is to save another tensor instead, in which its
// gradient is linear. True also for packed x, whose codec tells the variance or leaves a bias.
bool keeps_known_noise(const char* op, const Variables& inputs, Save& x);
// A slot that only the recipe needs: kept as x's own recipe, at no cost, where x has one. Where it
// has none the slot stays empty and this op's output has no recipe.
Save for_replay(const Variable& x);

class Backward {
 public:
  // dy goes with take_dy(). partials: for each input the gradient that it has already, or null.
  Backward(Gradient& dy, const Slots& slots, std::vector<bool> needs, std::vector<Tensor> partials,
           int64_t slice_bytes)
      : dy_(dy),
        slots_(slots),
        needs_(std::move(needs)),
        partials_(std::move(partials)),
        slice_bytes_(slice_bytes) {}
  const Tensor& dy() const { return dy_.whole(); }
  const Shape& dy_shape() const { return dy_.shape(); }
  DType dtype() const { return dy_.dtype(); }  // of dy
  // dy, which leaves this: undefined afterwards. Its sole owner may write over it.
  Tensor take_dy() const { return std::move(dy_).take(); }
  // The same, perhaps in slices alone.
  Gradient take_gradient() const { return std::exchange(dy_, {}); }
  Tensor saved(int slot) const { return slots_.unpack(slot); }
  const SavedTensor& slot(int slot) const { return slots_[slot]; }
  bool needs(int input) const {
    return needs_[static_cast<size_t>(input)];
  }  // does that input need a gradient?

  // The gradient that an input has from its other consumers, where nobody else holds it: a backward
  // may add to that and return none. Else undefined.
  Tensor partial(int input) const { return partials_[static_cast<size_t>(input)]; }

  // saved(slot) from `begin` to before `end` of its leading axis, of `of` items.
  Tensor saved_rows(int slot, int64_t begin, int64_t end, int64_t of) const {
    return slots_[slot].unpack_rows({begin, end, of});
  }
  // How many items of saved(slot)'s leading axis to take at once, a multiple of `unit`, or all: as
  // the policy bounds bytes, for items of item_bytes. All where slices would save nothing.
  int64_t slice_items(int slot, int64_t item_bytes, int64_t unit) const;
  // Can slices of `step` items be given without the rest? The first and the last tell for all.
  bool has_rows(int slot, int64_t step, int64_t of) const {
    const int64_t last = (of - 1) / step * step;
    return slots_[slot].has_rows({0, step, of}) && slots_[slot].has_rows({last, of, of});
  }
  // A pass over saved(slot), by the mask saved(mask) unless that is negative. False, with nothing
  // done, where saved(slot) is needed instead.
  bool run(PackedPass pass, int slot, int mask = -1) const {
    return slots_[slot].run(pass, mask < 0 ? SavedTensor() : slots_[mask]);
  }
  bool keeps(int slot) const { return slots_[slot].defined(); }
  bool is_recipe(int slot) const { return slots_[slot].is_recipe(); }  // is saved(slot) rebuilt?

 private:
  Gradient& dy_;
  const Slots& slots_;
  std::vector<bool> needs_;
  std::vector<Tensor> partials_;
  int64_t slice_bytes_;
};
using BackwardFn = std::function<Grads(const Backward&)>;

// How the output is rebuilt from this op's slots, and what unbiased slots make of it. `linear`
// (affine) in its activation slots: unbiased. `smooth`: corrected by the slots' variance.
// `by_rows`: item i of the output's leading axis comes from items i of the activation and mask
// slots and all of the others, so that slices can be rebuilt.
struct ReplaySpec {
  ReplayFn fn;
  Replay lossy = Replay::biased;
  bool by_rows = false;
};
inline ReplaySpec replay(ReplayFn fn) { return {std::move(fn), Replay::biased}; }
inline ReplaySpec linear_replay(ReplayFn fn, bool by_rows = false) {
  return {std::move(fn), Replay::unbiased, by_rows};
}
inline ReplaySpec smooth_replay(ReplayFn fn) { return {std::move(fn), Replay::corrected}; }

// The output as a Variable; when any input requires grad and grad mode is on, with a Node that
// keeps `saves`.
Variable record(const char* op, const Variables& inputs, Tensor output,
                const std::vector<Save>& saves, BackwardFn backward, ReplaySpec replay = {});

// An input x that an op saves as slot 0, and what the op makes of x: y and, where the pass
// rectifies, the mask of what it kept.
struct PassedSave {
  Tensor y;
  Save x, sign;
};
// `pass` says what the op makes of x; `kernels` make pass.out and pass.kept without a codec. On
// CUDA a codec may make them while it packs x. Then nobody reads x once more, and where the codes
// carry the mask, nobody keeps it.
PassedSave save_and_run(const char* op, const Variables& inputs, Save x, PackedPass pass,
                        const std::function<void(PackedPass&)>& kernels,
                        ReplayFn rebuild_mask = {});

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
