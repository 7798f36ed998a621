// record(): how a differentiable function joins the graph. One call shows the forward result, what
// is saved, the backward function and the recipe that rebuilds the output. This is gelu, from
// functions/elementwise.cpp (`op` is ops::Unary::gelu_exact or gelu_tanh):
//
//   Save input = save(x);
//   input.curved = true;  // the gradient is not linear in x
//   PassedSave out = save_and_run("gelu", {x}, std::move(input), {PackedPass::Map{op}},
//                                 [&](PackedPass& pass) { pass.out = ops::unary(op, x.value()); });
//   if (!keeps_known_noise("gelu", {x}, out.x))  // then dy/dx is kept in the place of x
//     return record_factor("gelu", x, out.y, unary_factor(op, x.value()));
//   return record(
//       "gelu", {x}, out.y, {out.x},
//       [op](const Backward& b) {
//         const Tensor dx = run_over(b.slot(0), {PackedPass::Map{op, b.dy()}});
//         if (dx.defined()) return Grads{dx};  // made from the codes of x
//         const Tensor variance = variance_of(b.slot(0));
//         return Grads{variance.defined()
//                          ? ops::unary_backward_estimate(op, b.dy(), b.saved(0), variance)
//                          : ops::unary_backward(op, b.dy(), b.saved(0))};
//       },
//       smooth_recipe([op](const Slots& s) { ... y from s[0] in the same way ... }));
//
// Most functions are shorter: tanh saves its output and calls ops::unary_backward.
//
// `backward` is a pure function of dy and the saved slots. It captures numbers and no tensors: a
// captured tensor would stay in memory, and no policy could compress it.
#pragma once
#include "autograd/gradient.h"
#include "autograd/packed_pass.h"
#include "autograd/variable.h"

namespace frugal {

struct TracedOp;  // trace.h

// The name of an op and, for an active trace, what else there is to say of it. record() takes one:
//
//   record("tanh", {x}, ...)
//   record({"softmax", [&](TracedOp& op) { op.set("axis", axis); }}, {x}, ...)
//
// The describer is called at once or never; nothing of it is kept.
class OpName {
 public:
  OpName(const char* name) : name_(name) {}  // NOLINT: meant to be implicit
  template <class Describe>
  OpName(const char* name, const Describe& describe)
      : name_(name), object_(&describe), call_([](const void* object, TracedOp& op) {
          (*static_cast<const Describe*>(object))(op);
        }) {}

  const char* name() const { return name_; }
  void describe(TracedOp& op) const {
    if (call_ != nullptr) call_(object_, op);
  }

 private:
  const char* name_;
  const void* object_ = nullptr;
  void (*call_)(const void*, TracedOp&) = nullptr;
};

// One request to keep a tensor for backward.
struct Save {
  Tensor value;
  Role role = Role::activation;
  std::shared_ptr<Node> producer = nullptr;  // the op that made `value`: its recipe may rebuild it
  bool only_for_recipe = false;              // backward does not read it, the recipe does
  Sign sign = {};                            // a mask of the elements that codes may carry
  bool is_output_sign = false;               // `value` is the mask of this op's output

  Use use = {};
  SavedTensor kept = {};  // defined where keep() was called already
  bool curved = false;    // the gradient is not linear in `value`: see keeps_known_noise()
  bool lossless = false;  // an activation that must come back unchanged
  int channel_axes = 1;   // how many of the last axes, together, number the channels

  Save with_use(const Use& how) && {
    use = how;
    return std::move(*this);
  }
  // For a tensor [.., heads, D]: a channel is a feature of one head. Codecs then see [.., heads D],
  // so their groups do not mix heads, whose sizes may differ by orders of magnitude.
  Save with_channel_axes(int count) && {
    channel_axes = count;
    return std::move(*this);
  }
  Save with_sign(const Tensor& mask, double slope) && {
    sign = {mask, slope};
    return std::move(*this);
  }
};
// An input of the op: a weight if x is held (Variable::is_held()), else an activation.
Save save(const Variable& x);
// A tensor that is neither an input nor the output, such as an intermediate result: an activation,
// which codes may round, or kept without loss if it is not floating. Backward must be linear in it.
// What must stay exact: save_exact(), save_whole().
Save save(const Tensor& x);
// save(x) if `needed`, else nothing. An op keeps only what the wanted gradients need.
Save save_if(bool needed, const Variable& x);
Save save_output(const Tensor& y);   // the op's own output, as an activation
Save save_mask(const Tensor& mask);  // keeps a mask without loss
// The mask of an activation function, without loss. Codes may carry the mask, and then nothing else
// keeps it: the codes of a tensor that was saved before with_sign(mask), or the codes of this op's
// output when a consumer saves the output.
Save save_sign(const Tensor& mask);
// Keeps x without loss. Where a backward or a recipe takes slices of rows, it takes the same rows
// of this: indices, targets, statistics of each row.
Save save_exact(const Tensor& x);
// Keeps x without loss. A slice of rows takes all of this: statistics of channels, sums, scores.
Save save_whole(const Tensor& x);
// Is there a policy that may lose something? Without one, an op may save whatever is cheapest.
bool saves_may_be_lossy();
// The policy that also decides about what checkpoints keep and recompute; null: there is none.
SavePolicy* policy_of_recomputations();
// Ops that save `unpacked`, which is saved.unpack(), share the codes of `saved` from now on. Does
// nothing where `saved` is not packed.
void share_codes(const SavedTensor& saved, const Tensor& unpacked);
// Keeps x as slot 0 of `op` now. For an op whose gradient is smooth in x, but not linear: noise in
// x then shifts the gradient on average, and backward needs the variance of the noise to correct
// it. False if x will be rebuilt from lossy sources, because nobody knows the variance of rebuilt
// values. The op must then save another tensor, in which its gradient is linear. True if x is
// packed: its codec tells the variance, or it leaves a bias.
bool keeps_known_noise(const char* op, const Variables& inputs, Save& x);
// A slot that only the recipe reads. If x has a recipe, the slot keeps that recipe, which costs
// nothing. If x has none, the slot stays empty and this op's output has no recipe.
Save for_recipe(const Variable& x);

class Backward {
 public:
  // take_dy() empties `dy`. `partials` holds for each input the gradient that the input has from
  // its other consumers, or an undefined tensor. op: for messages.
  Backward(Gradient& dy, const Slots& slots, std::vector<bool> needs, std::vector<Tensor> partials,
           int64_t slice_bytes, const char* op)
      : dy_(dy),
        slots_(slots),
        needs_(std::move(needs)),
        partials_(std::move(partials)),
        slice_bytes_(slice_bytes),
        op_(op) {}
  const Tensor& dy() const { return dy_.whole(); }
  const Shape& dy_shape() const { return dy_.shape(); }
  DType dtype() const { return dy_.dtype(); }  // the dtype of dy
  // Moves dy out: dy() is undefined afterwards. If nobody else holds its bytes
  // (is_sole_owner(dy)), the caller may write over them.
  Tensor take_dy() const { return std::move(dy_).take(); }
  // As take_dy(), but the gradient may be one that comes in slices.
  Gradient take_gradient() const { return std::exchange(dy_, {}); }
  // Slots are counted from 0, in the order of record()'s list. A slot whose Save was empty is an
  // undefined tensor. Errors, also of slot() and other functions of a slot: a slot beyond the list.
  Tensor saved(int slot) const { return this->slot(slot).unpack(); }
  const SavedTensor& slot(int slot) const {
    if (slot < 0 || slot >= slots_.size()) refuse_slot(slot);
    return slots_[slot];
  }
  // Does that input need a gradient?
  bool needs(int input) const { return needs_[place(input)]; }

  // The gradient that an input has from its other consumers, if nobody else holds that tensor; else
  // undefined. A backward may add its own gradient to the tensor and return none.
  Tensor partial(int input) const { return partials_[place(input)]; }

  // saved(slot) from `begin` to before `end` of its leading axis, of `of` items.
  Tensor saved_rows(int slot, int64_t begin, int64_t end, int64_t of) const {
    return this->slot(slot).unpack_rows({begin, end, of});
  }
  // How many items of saved(slot)'s leading axis to take at once: a multiple of `unit`, or all of
  // them. Items of `item_bytes` each then stay below the policy's bound of bytes. All of them where
  // slices would save no memory.
  int64_t slice_items(int slot, int64_t item_bytes, int64_t unit) const;
  // How many of these items a sum adds up before it goes on. Shapes and the policy's bound alone
  // decide it, and slice_items() is this number or all items. So a sum has one order, whether
  // saved(slot) is kept whole or comes in slices.
  int64_t sum_items(int slot, int64_t item_bytes, int64_t unit) const;
  // Can each slice of `step` items be had without unpacking the others? If the first and the last
  // slice can, all can.
  bool has_rows(int slot, int64_t step, int64_t of) const {
    const int64_t last = (of - 1) / step * step;
    return this->slot(slot).has_rows({0, step, of}) && this->slot(slot).has_rows({last, of, of});
  }
  // A pass over saved(slot), by the mask saved(mask) unless that is negative. False, with nothing
  // done, where saved(slot) is needed instead.
  bool run(PackedPass pass, int slot, int mask = -1) const {
    return this->slot(slot).run(pass, mask < 0 ? SavedTensor() : this->slot(mask));
  }
  bool keeps(int slot) const { return this->slot(slot).defined(); }
  bool is_recipe(int slot) const {
    return this->slot(slot).is_recipe();
  }  // is saved(slot) rebuilt?

 private:
  size_t place(int input) const {
    if (input < 0 || static_cast<size_t>(input) >= needs_.size()) refuse_input(input);
    return static_cast<size_t>(input);
  }
  [[noreturn]] void refuse_slot(int slot) const;
  [[noreturn]] void refuse_input(int input) const;
  Gradient& dy_;
  const Slots& slots_;
  std::vector<bool> needs_;
  std::vector<Tensor> partials_;
  int64_t slice_bytes_;
  const char* op_;
};
using BackwardFn = std::function<Grads(const Backward&)>;

// The recipe: how the output is rebuilt from this op's slots.
//   lossy:    what the rebuilt output is where the slots are unbiased, but not exact
//   by_rows:  item i of the output's leading axis needs only items i of the activations and masks
//             among the slots, and all of the other slots; so slices can be rebuilt
struct RecipeSpec {
  RecipeFn fn;
  Rebuilt lossy = Rebuilt::biased;
  bool by_rows = false;
  uint32_t linear_slots = 0;  // bit i: a corrected output is linear in slot i
  int least_bits = 0;         // SaveInfo::least_bits
};
inline RecipeSpec biased_recipe(RecipeFn fn) { return {std::move(fn), Rebuilt::biased}; }
// For an output that is linear (or affine) in its activations: the rebuilt output is unbiased.
inline RecipeSpec linear_recipe(RecipeFn fn, bool by_rows = false) {
  return {std::move(fn), Rebuilt::unbiased, by_rows};
}
// For an output that is smooth in them: `fn` takes away what the slots' variance adds on average.
// The output may be linear in some of them, to which nothing is added.
inline RecipeSpec smooth_recipe(RecipeFn fn, uint32_t linear_slots = 0) {
  return {std::move(fn), Rebuilt::corrected, false, linear_slots};
}

// The output as a Variable. If an input requires a gradient and grad mode is on, the Variable has a
// Node that keeps `saves`. An active trace is told of the op.
Variable record(const OpName& op, const Variables& inputs, Tensor output,
                const std::vector<Save>& saves, BackwardFn backward, RecipeSpec recipe = {});

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
                        const std::function<void(PackedPass&)>& kernels);

// Is work on this device done as the CPU does it, which takes large tensors in slices where CUDA's
// kernels take them whole? On `meta` a step stands for one on the CPU, unless a MetaAsCuda lives.
bool runs_as_cpu(Device device);
// While it lives, and `active`, steps of this thread on `meta` take the memory of steps on CUDA.
class MetaAsCuda {
 public:
  explicit MetaAsCuda(bool active);
  ~MetaAsCuda();
  MetaAsCuda(const MetaAsCuda&) = delete;
  MetaAsCuda& operator=(const MetaAsCuda&) = delete;

 private:
  bool previous_;
};

// An activation that an op keeps as slot 0, and that is packed while it comes in slices of the
// leading axis.
class SlicedSave {
 public:
  int64_t unit() const { return packer_->unit(); }  // slices begin at multiples of so many items
  bool carries_sign() const { return packer_->carries_sign(); }  // will codes carry the mask?
  // The next rows, and the bitmask of their shape where the codes carry the mask.
  void add(const Tensor& rows, const Tensor& mask);
  // REQUIRES: all rows were added. Sets x.kept and, where the codes carry the mask, sign.kept.
  void finish(Save& x, Save& sign);

 private:
  friend class SaveContext;
  std::unique_ptr<SlicePacker> packer_;
  SaveInfo info_;
  Sign sign_;
  Tensor like_;
  int64_t packed_bytes_ = 0;
};
// Begins to keep x in slices, if the policy packs it and its codec can. x.value has the shape,
// dtype and device of the tensor, and its values mean nothing. `makes_mask`: the op tells by a mask
// which elements it kept (`rectify`). The policy is asked again if nothing comes of it, and nothing
// else may be kept until finish().
std::unique_ptr<SlicedSave> save_in_slices(const char* op, const Variables& inputs, const Save& x,
                                           bool makes_mask);

// Would record() make a node for these inputs? Ops ask before they compute masks that only backward
// needs.
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
