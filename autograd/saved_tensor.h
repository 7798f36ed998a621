// The saved-tensor seam: ops say which tensors their backward needs, and a SavePolicy decides how
// each of them is kept until then: as it is, packed by a Codec, or not at all, with a recipe that
// rebuilds it. Thread safety: a graph, its saved tensors and the policy belong to one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace frugal {

// What a saved tensor is to its op. Only an activation may be lossy.
//   activation: a policy decides how it is kept
//   weight:     a parameter or a view of one: kept as it is, at no cost
//   mask:       bits, without loss; rows of it are those of the elements that the bits tell of
//   exact:      without loss; a slice of rows takes the same rows of it
//   whole:      without loss; every slice of rows takes all of it
enum class Role : uint8_t { activation, weight, mask, exact, whole };

// What a recipe would give for a saved tensor: it rebuilds the tensor from its producer's slots.
//   none:      there is no recipe
//   exact:     the same bits, because every slot that it reads is kept without loss
//   unbiased:  the slots are lossy but unbiased, and the recipe is linear in them
//   corrected: the recipe is smooth in them and takes away what their known variance adds
//   biased:    the slots are lossy, and the recipe is neither of these
enum class Rebuilt : uint8_t { none, exact, unbiased, corrected, biased };

// What an activation function did to each element of a saved tensor, or to the value that was made
// of the element. A codec may write the bits into its codes; then nobody keeps the mask.
struct Sign {
  Tensor mask =
      {};  // 1 bit an element (ops/dense/bitmask.h), set where the function kept the value
  double slope = 0;  // the derivative where the bit is clear: how much errors count there
};

// How errors of a saved activation reach the gradients that its op gives. A policy that weighs
// errors reads this. Each kind has a constructor with named fields; a Use made without one is of
// kind `other`, which tells nothing. `input` is an input of the op, the others are its slots. Where
// slot `mask` is kept, dy counts only where its bits are set.
struct Use {
  enum class Kind : uint8_t { other, product, normalized, normalized_rows };

  // The gradient of parameter `input` is a sum of products of this tensor with dy. Each element of
  // dy meets `fan` elements of the tensor. An element of the tensor meets `gain` positions of dy.
  // So errors d of the tensor make errors of squared norm at most gain |d|^2 |dy|^2, and
  // independent errors of variance v make fan v |dy|^2. Where slot `weight` is kept, a matrix
  // [O, R], dy times that matrix is meant instead of dy.
  struct Product {
    int input;
    double gain = 1, fan = 1;
    int mask = -1, weight = -1;
  };
  static constexpr Use product(const Product& p) {
    Use use;
    use.kind = Kind::product;
    use.input = p.input;
    use.gain = p.gain;
    use.fan = p.fan;
    use.mask = p.mask;
    use.weight = p.weight;
    return use;
  }

  // The tensor is normalized by channel and then scaled by parameter `input`, which slot `weight`
  // keeps. Slot `invstd` keeps 1 / deviation of each channel.
  struct Normalized {
    int input, weight, invstd;
    int mask = -1;
  };
  static constexpr Use normalized(const Normalized& n) {
    Use use;
    use.kind = Kind::normalized;
    use.input = n.input;
    use.weight = n.weight;
    use.invstd = n.invstd;
    use.mask = n.mask;
    return use;
  }

  // The tensor, seen as [rows, C], is normalized by row. Slots `invstd` and `mean` (without one:
  // the mean is 0) hold the statistics of equal runs of rows, in each of `groups` equal ranges of
  // channels. If the rows are normalized already, Use::gain is 0, and `invstd` is that of the rows
  // before.
  struct NormalizedRows {
    int input, weight, invstd;
    int mean = -1, mask = -1;
    int64_t groups = 1;
  };
  static constexpr Use normalized_rows(const NormalizedRows& n) {
    Use use = normalized({n.input, n.weight, n.invstd, n.mask});
    use.kind = Kind::normalized_rows;
    use.mean = n.mean;
    use.groups = n.groups;
    return use;
  }

  Kind kind = Kind::other;
  int input = -1;
  double gain = 1, fan = 1;
  int weight = -1, invstd = -1, mean = -1, mask = -1;
  int64_t groups = 1;
};

struct SaveInfo {
  const char* op = "";           // the op that saves the tensor
  int slot = 0;                  // the slot of the op that keeps the tensor
  Role role = Role::activation;  // what the tensor is to the op
  // The number of the tensor within the step, from 0. A fixed network gives a tensor the same
  // number in every step.
  uint64_t seq = 0;
  uint64_t step = 0;  // see begin_step()
  Rebuilt rebuilt = Rebuilt::none;
  int64_t recipe_elements = 0;  // elements of the other tensors that a recipe rebuilds on its way
  const Sign* sign = nullptr;   // a mask of the elements that the codes may carry; null: none
  Use use = {};                 // how this op uses the tensor; another op may use it otherwise
  // The gradient and the output of the op are smooth in the tensor, but not linear. If its codec
  // tells the variance of the codes, the op corrects both (Rebuilt::corrected).
  bool curved = false;
  // Rebuilt::corrected: did `curved` tell the policy of each tensor whose variance is taken away?
  // Not so if another op saved the tensor first.
  bool told_curved = true;
  // Gradients of what is rebuilt without bias are unbiased where no source has fewer bits.
  int least_bits = 0;
  // A rebuild of another tensor reads this one, and has such least_bits; 0: none that is known of.
  int source_bits = 0;
  // Did `source_bits` tell the policy `least_bits` of each source?
  bool told_sources = true;
  bool lossless = false;  // the tensor must come back unchanged
  bool released = false;  // part of the batch, but not kept by anybody else: ReleasedInput

  // What `rebuilt` is for a policy that may give sources which it was not told of as few as
  // `fewest` bits.
  Rebuilt rebuilt_with(int fewest) const {
    const bool spoils = (rebuilt == Rebuilt::corrected && !told_curved) ||
                        (rebuilt == Rebuilt::unbiased && !told_sources && fewest < least_bits);
    return spoils ? Rebuilt::biased : rebuilt;
  }
};

// See autograd/packed_pass.h.
struct PackedPass;

// Autograd looks into neither of these.
namespace compress {
class Movable;
struct PolicyRoles;
}  // namespace compress

class Packed {
 public:
  virtual ~Packed() = default;
  // A tensor of the shape, dtype and device that were packed, allocated as `workspace`.
  virtual Tensor unpack() const = 0;
  // The rows of unpack() from `begin` to before `end` of the leading axis.
  virtual Tensor unpack_rows(int64_t begin, int64_t end) const {
    return unpack().slice(0, begin, end);
  }
  virtual void prefetch() {}  // unpack() will be called soon
  // The mask of SaveInfo::sign, bit for bit, as `workspace`. Undefined if the codes do not carry
  // the mask.
  virtual Tensor unpack_sign() const { return {}; }
  virtual bool carries_sign() const { return false; }
  // Are the codes good for the op that saved the tensor alone, because only a few of the elements
  // where the sign's bit is clear are known, and stand for the others? Then other ops that save the
  // same bytes pack them again.
  virtual bool serves_one_op() const { return false; }
  // The mask of the elements of unpack_rows(begin, end): a bitmask of that shape. Undefined if only
  // the whole mask can be had.
  virtual Tensor unpack_sign_rows(int64_t, int64_t) const { return {}; }
  // Computes what the pass says from unpack(), which then never is in memory as a whole, to
  // PackedPass::out. False, with nothing done, where there is no kernel for it: the caller unpacks.
  virtual bool run(PackedPass&) const { return false; }
  // Does run() take PackedPass::Variance?
  virtual bool knows_variance() const { return false; }
  // Does unpack() give the bits that were packed? Then ops treat the tensor as one that is kept
  // raw.
  virtual bool loses_nothing() const { return false; }
  // This tensor, if its bytes can be moved elsewhere (compress/offload/movable.h); null: they
  // cannot.
  virtual compress::Movable* movable() { return nullptr; }
  virtual const compress::Movable* movable() const { return nullptr; }
};

// Packs a tensor that is never whole: its rows of the leading axis come in order, in slices.
class SlicePacker {
 public:
  virtual ~SlicePacker() = default;
  // Slices begin at multiples of so many rows.
  virtual int64_t unit() const = 0;
  // Will the codes carry the mask of SaveInfo::sign?
  virtual bool carries_sign() const = 0;
  // The next rows, contiguous, and the bitmask of their shape where the codes carry the mask.
  virtual void add(const Tensor& rows, const Tensor& mask) = 0;
  // REQUIRES: all rows were added.
  virtual std::unique_ptr<Packed> finish() = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;
  // REQUIRES: `tensor` is contiguous and floating; its last axis is the channel axis. The payload
  // is allocated as `packed`.
  virtual std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const = 0;
  // pack(), and the pass over `tensor` on the way. Where the pass makes a mask (`rectify`), the
  // codes may carry it: SaveInfo::sign is then set and has no mask yet. Null, with nothing done,
  // where there is no kernel for it: the caller runs the pass first and packs afterwards.
  virtual std::unique_ptr<Packed> pack_and_run(const Tensor& /*tensor*/, const SaveInfo&,
                                               PackedPass&) const {
    return nullptr;
  }
  // Begins to pack a tensor that will come in slices. What is packed in the end has the bytes that
  // pack() would give. `like` tells shape, dtype and device, and its values mean nothing. Where
  // SaveInfo::sign is set, it has no mask yet. Null where the codec needs the whole tensor.
  virtual std::unique_ptr<SlicePacker> pack_slices(const Tensor& /*like*/, const SaveInfo&) const {
    return nullptr;
  }
  // Do packed bytes leave the memory that the allocator counts?
  virtual bool moves() const { return false; }
};

struct Decision {
  enum What : uint8_t { raw, rebuild, pack } what = raw;
  // `pack`: what packs the tensor. `rebuild`: what packs the rebuilt tensor, if a recipe of another
  // tensor passes through it before its own consumer runs; it then waits packed, or raw without a
  // codec, so that nothing is rebuilt twice. The codec must outlive the graph.
  const Codec* codec = nullptr;
  bool carry_sign = true;  // may the codes carry the sign?
};

class BackwardObserver;

class SavePolicy {
 public:
  virtual ~SavePolicy() = default;
  // Called once for each activation; ops that save the same bytes share one answer. REQUIRES:
  // answers `rebuild` only where info.rebuilt is not `none`. Where info.lossless is set, it answers
  // `raw`, a codec without loss, or an exact rebuild without a codec.
  virtual Decision decide(const SaveInfo& info, const Tensor& value) = 0;
  // May decide() answer `pack` with a codec that loses something?
  virtual bool lossy() const { return true; }
  // Backward unpacks tensors that are not kept raw in slices of about so many bytes; 0: as a whole.
  virtual int64_t slice_bytes() const { return kSliceBytes; }
  // Who is shown the gradients of this step (autograd/observer.h); null: nobody.
  virtual BackwardObserver* observer() { return nullptr; }
  // Does decide() look at shape, dtype and device of a tensor alone? Then large tensors may be
  // packed while they are made (Codec::pack_slices), so that they are never whole. The question may
  // be asked twice; the second answer is then the same.
  virtual bool decides_by_shape() const { return false; }
  // Does the policy also decide about recomputed blocks (autograd/checkpoint.h)? It then decides
  // about a block's input and about what the block saves while it is recomputed. Otherwise both are
  // kept without loss.
  virtual bool packs_recomputed() const { return false; }
  // Notes what the policy can do beside deciding (compress/policies/policy_roles.h).
  virtual void add_roles(compress::PolicyRoles& /*roles*/) {}
  static constexpr int64_t kSliceBytes = int64_t{8} << 20;
};

// While this lives, `policy` decides about what this thread saves. nullptr keeps everything raw
// (level L0 without recipes).
//
// A scope with a policy starts a training step, whose number is one more than the last step's. It
// starts none inside of another such scope, and none where begin_step() was called since the last
// such scope ended: who calls begin_step() numbers the steps.
class PolicyScope {
 public:
  explicit PolicyScope(SavePolicy* policy);
  PolicyScope(SavePolicy* policy, uint64_t step);  // begin_step(step) first
  // For a part of a step whose own scope may have ended: starts no step.
  struct SameStep {};
  PolicyScope(SavePolicy* policy, SameStep);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  SavePolicy* previous_;
  bool outermost_;  // has a policy, and lies in no other scope with a policy
};

// A batch lives through its step, so saving its input costs nothing. While this lives, that is not
// so for `input`: what this thread's ops save of it is `released`, and a policy may pack it.
// Undefined: changes nothing. The caller sees to it that nobody holds `input` when its first op has
// run.
class ReleasedInput {
 public:
  explicit ReleasedInput(const Tensor& input);
  ~ReleasedInput();
  ReleasedInput(const ReleasedInput&) = delete;
  ReleasedInput& operator=(const ReleasedInput&) = delete;

 private:
  uint64_t previous_;
};

// Starts a training step: SaveInfo::seq restarts at 0 and SaveInfo::step becomes `step`. For
// programs that number their steps, so that a resumed run rounds as the whole run would;
// PolicyScope alone does for all others.
void begin_step(uint64_t step);

struct Node;
class Slots;
using RecipeFn = std::function<Tensor(const Slots&)>;

// One kept tensor, shared by all that saved it. Internal: autograd/saved_entry.h.
class SavedEntry;

// The items from `begin` to before `end` of a leading axis that has `of` items. `of` 0: all items.
struct Rows {
  int64_t begin = 0, end = 0, of = 0;
};

// A handle to a shared entry, with the shape and strides that the saver saw. So a tensor and its
// reshaped view share one entry.
class SavedTensor {
 public:
  SavedTensor() = default;
  // Errors: a raw tensor that was written in place since it was saved; the message names the op
  // that saved it.
  Tensor unpack() const;
  // The rows of unpack(), without unpacking the others where has_rows() is true. Which rows: see
  // Role.
  Tensor unpack_rows(const Rows& rows) const;
  bool has_rows(const Rows& rows) const;
  // Packed::run() where this is packed, by the mask that is kept in `mask`, if that is defined. The
  // result has this layout. False, with nothing done, elsewhere: the caller unpacks. See
  // run_over().
  bool run(PackedPass& pass, const SavedTensor& mask) const;
  bool is_recipe() const;
  bool defined() const { return entry_ != nullptr; }
  const Shape& shape() const { return shape_; }
  Role role() const { return role_; }
  const Use& use() const { return use_; }
  // Does the op's backward read it? Else only its recipe does (for_recipe()).
  bool serves_backward() const { return claim_ != nullptr; }
  // SaveInfo::seq of the activations whose kept bytes unpack() reads: its own, or those of the
  // tensors that its recipe reads.
  std::vector<uint64_t> rests_on() const;
  // Is the variance of unpack() known? Also true of what is kept without loss, which has none.
  bool knows_variance() const;
  // What unpack() gives: exact, unbiased or biased. Exact also where nothing is kept.
  Rebuilt quality() const;
  bool is_raw() const;
  // Is this the only holder of the bytes behind unpack()? Then a backward may write over them;
  // unpack() is an error afterwards.
  bool is_sole_owner() const;
  void prefetch() const;
  // A handle for a recipe that reads this tensor. It does not count as a consumer.
  SavedTensor as_source() const;
  int recipe_depth() const;          // how many recipes lie between unpack() and what is kept
  int64_t rebuilt_elements() const;  // elements of the tensors that these recipes rebuild

 private:
  friend class SaveContext;
  std::shared_ptr<SavedEntry> entry_;
  std::shared_ptr<void> claim_;  // while it lives, the entry counts this handle as a consumer
  Shape shape_, strides_;
  Role role_ = Role::activation;
  Use use_;
};

class Slots {
 public:
  Slots() = default;
  explicit Slots(std::vector<SavedTensor> slots) : slots_(std::move(slots)) {}
  Tensor unpack(int slot) const {
    const SavedTensor& saved = slots_[static_cast<size_t>(slot)];
    return rows_.of == 0 ? saved.unpack() : saved.unpack_rows(rows_);
  }
  // The result of a pass over the same rows of a slot, by the mask in slot `mask` unless that is
  // negative. Undefined where unpack(slot) is needed instead.
  Tensor run(PackedPass pass, int slot, int mask = -1) const;
  int size() const { return static_cast<int>(slots_.size()); }
  Slots as_sources() const;
  Slots at(const Rows& rows) const;  // a copy whose unpack() gives only these rows
  const SavedTensor& operator[](int slot) const { return slots_[static_cast<size_t>(slot)]; }
  void clear() { slots_.clear(); }

 private:
  std::vector<SavedTensor> slots_;
  Rows rows_;
};

}  // namespace frugal
