// Node: one recorded op. Internal to autograd.
#pragma once
#include "autograd/record.h"

namespace frugal {

// Where a gradient goes next. Carries no data: a value here would keep every activation alive.
struct Edge {
  std::shared_ptr<Node> node;             // the producer, or
  std::shared_ptr<GradAccumulator> leaf;  // a leaf's gradient, or neither: no gradient wanted
  Shape shape;                            // of the input, to check what backward returns
  bool wanted() const { return node != nullptr || leaf != nullptr; }
};

struct Node {
  const char* op = "";
  uint64_t number = 0;  // creation order; inputs' numbers are smaller
  std::vector<Edge> inputs;
  Slots slots;
  BackwardFn backward;
  ReplaySpec replay;
  Shape shape;  // of the output
  DType dtype{};
  Device device{};
  int64_t slice_bytes = 0;  // see SavePolicy
  int sign_slot = -1;   // which slot holds the mask of an activation function, the output's sign
  bool walked = false;  // a backward freed it
  bool hides_leaves = false;  // backward uses leaves that `inputs` do not show

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // iterative, so that a long chain does not exhaust the stack

  bool has_recipe() const;  // can the output be rebuilt from the slots?
};

std::vector<Edge> edges_to(const Variables& inputs);
std::shared_ptr<Node> make_node(const char* op, const Variables& inputs, const Tensor& output,
                                const std::vector<Save>& saves, BackwardFn backward,
                                ReplaySpec replay);
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

// Keeps `request` for backward on behalf of slot `slot` of `op`, as the thread's policy decides.
// `fusion`, unless null, is done where the policy packs: by the codec, or before it.
SavedTensor keep(const char* op, int slot, const Save& request, Fusion* fusion = nullptr);

// What the thread's policy says; 0 and false without one.
int64_t slice_bytes();
bool rebuilds_signs();

// Replaces the mask in node.sign_slot by its rebuild from the other slots, if the policy wants
// that.
void rebuild_sign(Node& node, const Save& mask);

// Recipes of recipes: rebuilding and freeing them recurse.
inline constexpr int kMaxReplayDepth = 64;

}  // namespace frugal
