#include "autograd/engine.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"
#include "ops/copy.h"
#include "ops/inplace.h"

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

bool is_sole_owner(const Tensor& tensor) {
  return tensor.storage().use_count() == 1 && tensor.is_contiguous();
}

void add_to(Tensor& sum, Tensor term) {
  if (!sum.defined()) {
    sum = std::move(term);
  } else if (is_sole_owner(sum)) {
    ops::accumulate(sum, term);
  } else {
    // `sum` is also somebody else's gradient: write to a copy.
    sum = ops::clone(sum);
    ops::accumulate(sum, term);
  }
}

void check_gradient(const Node& node, size_t input, const Tensor& gradient) {
  FRUGAL_CHECK(gradient.shape() == node.inputs[input].shape,
               "[{}] expected backward to return a gradient of shape {} for input {}, got {}",
               node.op, node.inputs[input].shape, input, describe(gradient));
}

// dy has no other owner here, so that backward may take it.
void run(Node& node, Tensor dy, std::unordered_map<const Node*, Tensor>& gradients) {
  std::vector<bool> needs;
  std::vector<Tensor> partials;
  for (const Edge& edge : node.inputs) {
    needs.push_back(edge.wanted());
    const auto found = gradients.find(edge.node.get());
    const bool mine = found != gradients.end() && is_sole_owner(found->second);
    partials.push_back(mine ? found->second : Tensor());
  }
  Grads grads = node.backward(
      Backward(dy, node.slots, std::move(needs), std::move(partials), node.slice_bytes));
  dy = {};
  FRUGAL_CHECK(grads.size() <= node.inputs.size(),
               "[{}] expected backward to return at most {} gradients, got {}", node.op,
               node.inputs.size(), grads.size());
  node.slots.clear();
  for (size_t i = 0; i < grads.size(); ++i) {
    const Edge& edge = node.inputs[i];
    if (!grads[i].defined() || !edge.wanted()) continue;
    check_gradient(node, i, grads[i]);
    Tensor gradient = std::move(grads[i]);
    if (edge.node != nullptr) {
      add_to(gradients[edge.node.get()], std::move(gradient));
    } else if (edge.leaf->grad.defined() || is_sole_owner(gradient)) {
      add_to(edge.leaf->grad, std::move(gradient));
    } else {
      edge.leaf->grad = ops::clone(gradient);  // a leaf owns its gradient
    }
  }
}

}  // namespace

void backward(const Variable& root, const Tensor& dy) {
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
  std::unordered_map<const Node*, Tensor> gradients;
  if (dy.defined()) {
    FRUGAL_CHECK(dy.shape() == root.shape() && dy.dtype() == root.dtype(),
                 "[backward] expected dy like the root, {}, got {}", describe(root.value()),
                 describe(dy));
    gradients[nodes.front().get()] = dy;
  } else {
    FRUGAL_CHECK(root.value().numel() == 1,
                 "[backward] expected a root of one element, or a dy, got {}",
                 describe(root.value()));
    gradients[nodes.front().get()] = Tensor::full(root.shape(), 1, root.dtype(), root.device());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = *nodes[i];
    for (size_t ahead = i + 1; ahead < std::min(nodes.size(), i + 1 + kPrefetch); ++ahead)
      for (int slot = 0; slot < nodes[ahead]->slots.size(); ++slot)
        nodes[ahead]->slots[slot].prefetch();
    node.walked = true;
    const auto found = gradients.find(&node);
    if (found != gradients.end()) {
      Tensor gradient = std::move(found->second);
      gradients.erase(found);
      run(node, std::move(gradient), gradients);
    }
    node.slots.clear();
    node.backward = nullptr;
    node.replay = {};
  }
}

std::vector<const char*> graph_ops(const Variable& root) {
  std::vector<const char*> names;
  for (const auto& node : nodes_from(root)) names.push_back(node->op);
  return names;
}

}  // namespace frugal
