#include "autograd/engine.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"
#include "autograd/saved_entry.h"
#include "autograd/timeline.h"
#include "core/integers.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"

namespace frugal {
namespace {

constexpr size_t kPrefetch = 2;  // nodes ahead whose slots are asked for

// Newest first: every consumer of a node comes before it, since a node is created after its inputs.
std::vector<std::shared_ptr<Node>> nodes_from(const Variable& root) {
  std::vector<std::shared_ptr<Node>> nodes;
  std::unordered_set<const Node*> seen;
  std::vector<std::shared_ptr<Node>> pending{root.producer()};
  while (!pending.empty()) {
    std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node == nullptr || !seen.insert(node.get()).second) continue;
    for (const Edge& edge : node->inputs) pending.push_back(edge.node);
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->number > b->number; });
  return nodes;
}

void add_to(Gradient& sum, Gradient term) {
  if (!sum.defined()) {
    sum = std::move(term);
    return;
  }
  Tensor whole = std::move(sum).take();
  add_to(whole, std::move(term).take());
  sum = std::move(whole);
}

using Gradients = std::unordered_map<const Node*, Gradient>;

void check_gradients(const Node& node, const Grads& grads) {
  FRUGAL_CHECK(grads.size() <= node.inputs.size(),
               "[{}] expected backward to return at most {} gradients, got {}", node.op,
               node.inputs.size(), grads.size());
  for (size_t i = 0; i < grads.size(); ++i)
    FRUGAL_CHECK(
        !grads[i].defined() || !node.inputs[i].wanted() || grads[i].shape() == node.inputs[i].shape,
        "[{}] expected backward to return a gradient of shape {} for input {}, got {}", node.op,
        node.inputs[i].shape, i, grads[i].shape());
}

// dy has no other owner here, so that backward may take it.
void run(Node& node, const Node* next, Gradient dy, Gradients& gradients,
         BackwardObserver* observer) {
  std::vector<bool> needs;
  std::vector<Tensor> partials;
  const TimeSpan span(Timeline::Kind::backward, node.op, node.number);
  for (const Edge& edge : node.inputs) {
    needs.push_back(edge.wanted());
    const auto found = gradients.find(edge.node.get());
    Tensor partial;
    if (found != gradients.end() && is_sole_owner(found->second.whole()))
      partial = found->second.whole();
    partials.push_back(std::move(partial));
  }
  if (observer != nullptr) observer->before({node.op, node.slots}, dy.whole());
  Grads grads = node.backward(
      Backward(dy, node.slots, std::move(needs), std::move(partials), node.slice_bytes, node.op));
  dy = {};
  check_gradients(node, grads);
  if (observer != nullptr) {
    for (Gradient& gradient : grads)
      if (gradient.defined()) gradient.whole();
    observer->after({node.op, node.slots}, grads);
  }
  node.slots.clear();
  // Only the next node to run may take slices. For all others the gradient is made whole now, so
  // that the tensors it is made from are freed, unless these are small.
  for (size_t i = 0; i < grads.size(); ++i)
    if (node.inputs[i].wanted() && node.inputs[i].node.get() != next &&
        !grads[i].sparse().defined() && !grads[i].is_small())
      grads[i].whole();
  for (size_t i = 0; i < grads.size(); ++i) {
    const Edge& edge = node.inputs[i];
    if (!grads[i].defined() || !edge.wanted()) continue;
    if (edge.node != nullptr)
      add_to(gradients[edge.node.get()], std::move(grads[i]));
    else
      edge.leaf->add(std::move(grads[i]));
  }
}

// What the nodes keep, under the oldest node of each tensor.
std::vector<Timeline::Saved> saved_by(const std::vector<std::shared_ptr<Node>>& nodes,
                                      const Timeline& timeline) {
  std::vector<Timeline::Saved> all;
  std::unordered_set<const SavedEntry*> seen;
  std::unordered_set<uint64_t> storages;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    for (int slot = 0; slot < (*node)->slots.size(); ++slot) {
      const SavedEntry* entry = entry_of((*node)->slots[slot]);
      if (entry == nullptr || !seen.insert(entry).second) continue;
      Timeline::Saved saved{(*node)->op, timeline.layer_of((*node)->number)};
      saved.raw = entry->sizes().raw;
      if (const SavedEntry::Raw* raw = entry->raw()) {
        // Views of one storage hold all of it.
        const Storage& storage = *raw->tensor.storage();
        if (storage.category() != Category::activation || !storages.insert(storage.id()).second)
          continue;
        saved.stored = round_up(storage.bytes(), 64);
      } else {
        saved.stored = entry->sizes().packed;
      }
      all.push_back(saved);
    }
  return all;
}

// Counts the edges to each leaf that are still to be walked.
class PendingLeaves {
 public:
  explicit PendingLeaves(const std::vector<std::shared_ptr<Node>>& nodes) {
    for (const auto& node : nodes) {
      FRUGAL_CHECK(!node->hides_leaves,
                   "[backward] expected a graph without checkpoints where leaves are used up as "
                   "their gradients are complete, got {}",
                   node->op);
      for (const Edge& edge : node->inputs)
        if (edge.leaf != nullptr) ++edges_[edge.leaf.get()];
    }
  }
  void walked(const Node& node, const LeafFn& leaf_done) {
    for (const Edge& edge : node.inputs)
      if (edge.leaf != nullptr && --edges_[edge.leaf.get()] == 0 && edge.leaf->defined()) {
        const TimeSpan span(Timeline::Kind::update, "update");
        leaf_done(*edge.leaf);
      }
  }

 private:
  std::unordered_map<const GradAccumulator*, int> edges_;
};

}  // namespace

void backward(const Variable& root, Tensor dy, const LeafFn& leaf_done,
              BackwardObserver* observer) {
  FRUGAL_CHECK(root.producer() != nullptr,
               "[backward] expected the output of a recorded op, got {}",
               root.defined() ? "a leaf" : "an undefined variable");
  CategoryScope scope(Category::gradient);
  NoGrad no_grad;
  const std::vector<std::shared_ptr<Node>> nodes = nodes_from(root);
  for (const auto& node : nodes)
    FRUGAL_CHECK(!node->walked,
                 "[backward] expected a graph that was not walked yet, got one whose {} has freed "
                 "its saved tensors; run the forward pass again",
                 node->op);
  if (Timeline* timeline = active_timeline();
      timeline != nullptr && !timeline->is_in(Timeline::Kind::backward))
    timeline->keeps(saved_by(nodes, *timeline));
  std::optional<PendingLeaves> leaves;
  if (leaf_done) leaves.emplace(nodes);
  Gradients gradients;
  if (dy.defined()) {
    FRUGAL_CHECK(dy.shape() == root.shape() && dy.dtype() == root.dtype(),
                 "[backward] expected dy like the root, {}, got {}", describe(root.value()),
                 describe(dy));
    gradients[nodes.front().get()] = std::move(dy);
  } else {
    FRUGAL_CHECK(root.value().numel() == 1,
                 "[backward] expected a root of one element, or a dy, got {}",
                 describe(root.value()));
    gradients[nodes.front().get()] = Tensor::full(root.shape(), 1, root.dtype(), root.device());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = *nodes[i];
    advance_backward();
    for (size_t ahead = i + 1; ahead < std::min(nodes.size(), i + 1 + kPrefetch); ++ahead)
      for (int slot = 0; slot < nodes[ahead]->slots.size(); ++slot)
        nodes[ahead]->slots[slot].prefetch();
    node.walked = true;
    const auto found = gradients.find(&node);
    if (found != gradients.end()) {
      Gradient gradient = std::move(found->second);
      gradients.erase(found);
      run(node, i + 1 < nodes.size() ? nodes[i + 1].get() : nullptr, std::move(gradient), gradients,
          observer);
    }
    node.slots.clear();
    node.backward = nullptr;
    node.recipe = {};
    if (leaves) leaves->walked(node, leaf_done);
  }
}

std::vector<const char*> graph_ops(const Variable& root) {
  std::vector<const char*> names;
  for (const auto& node : nodes_from(root)) names.push_back(node->op);
  return names;
}

}  // namespace frugal
