// Node: one recorded op. Internal to autograd.
#pragma once
#include "autograd/record.h"

namespace frugal {

// Where a gradient goes next. An edge carries no data, because a value here would keep every
// activation in memory.
struct Edge {
  // The producer of the input, or the gradient of a leaf. If both are null, no gradient is wanted.
  std::shared_ptr<Node> node;
  std::shared_ptr<GradAccumulator> leaf;
  Shape shape;  // the shape of the input; what backward returns is checked by it
  bool wanted() const { return node != nullptr || leaf != nullptr; }
};

struct Node {
  const char* op = "";
  uint64_t number = 0;  // in order of creation: producers of the inputs have smaller numbers
  std::vector<Edge> inputs;
  Slots slots;
  BackwardFn backward;
  RecipeSpec recipe;
  Shape shape;  // the shape of the output, whose dtype and device follow
  DType dtype{};
  Device device{};
  int64_t slice_bytes = 0;    // see SavePolicy
  int sign_slot = -1;         // the slot with the mask of the output's signs; -1: there is none
  bool walked = false;        // a backward pass ran this node and freed its slots
  bool hides_leaves = false;  // backward uses leaves that `inputs` do not show

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // iterative, so that a long chain does not exhaust the stack

  bool has_recipe() const;  // can the output be rebuilt from the slots?
};

std::vector<Edge> edges_to(const Variables& inputs);
// While it lives, notes whether an op got an input that requires a gradient, also where gradients
// are off.
class GradientProbe {
 public:
  GradientProbe();
  ~GradientProbe();
  GradientProbe(const GradientProbe&) = delete;
  GradientProbe& operator=(const GradientProbe&) = delete;
  bool found() const { return found_; }

 private:
  friend bool recording(const Variables& inputs);
  bool found_ = false;
  GradientProbe* outer_;
};

std::shared_ptr<Node> make_node(const char* op, const Variables& inputs, const Tensor& output,
                                const std::vector<Save>& saves, BackwardFn backward,
                                RecipeSpec recipe);
Variable make_output(Tensor value, std::shared_ptr<Node> producer);

// What an op makes of the tensor that it keeps first.
struct Fusion {
  PackedPass& pass;
  const std::function<void()>& kernels;  // the op's own, which make pass.out and pass.kept
  bool done = false;                     // have these kernels, or a codec, made them?
  SavedTensor sign = {};                 // the mask, where the codes carry it instead of pass.kept
  void run() {
    kernels();
    done = true;
  }
};

// Keeps `request` for backward in slot `slot` of `op`, as the thread's policy decides. If `fusion`
// is given and the policy packs, `fusion` is done afterwards: by the codec, or before it packed.
SavedTensor keep(const char* op, int slot, const Save& request, Fusion* fusion = nullptr);

// What the thread's policy answers; 0 where there is no policy.
int64_t slice_bytes();

// How deep recipes may nest. Rebuilding and freeing them are recursive functions.
inline constexpr int kMaxRecipeDepth = 64;

}  // namespace frugal
