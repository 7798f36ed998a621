#include "autograd/record.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autograd/node.h"
#include "autograd/timeline.h"
#include "autograd/trace.h"

namespace frugal {
namespace {

thread_local bool grad_mode = true;
thread_local GradientProbe* probe = nullptr;
thread_local bool meta_as_cuda = false;
std::atomic<uint64_t> next_node_number{1};

}  // namespace

bool grad_enabled() { return grad_mode; }
NoGrad::NoGrad() : previous_(grad_mode) { grad_mode = false; }
NoGrad::~NoGrad() { grad_mode = previous_; }
EnableGrad::EnableGrad() : previous_(grad_mode) { grad_mode = true; }
EnableGrad::~EnableGrad() { grad_mode = previous_; }

bool runs_as_cpu(Device device) {
  return device.type == DeviceType::cpu || (device.type == DeviceType::meta && !meta_as_cuda);
}
MetaAsCuda::MetaAsCuda(bool active)
    : previous_(std::exchange(meta_as_cuda, active || meta_as_cuda)) {}
MetaAsCuda::~MetaAsCuda() { meta_as_cuda = previous_; }

GradientProbe::GradientProbe() : outer_(std::exchange(probe, this)) {}
GradientProbe::~GradientProbe() {
  probe = outer_;
  if (outer_ != nullptr) outer_->found_ = outer_->found_ || found_;
}

bool recording(const Variables& inputs) {
  if (!grad_mode && probe == nullptr) return false;
  const bool wanted = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Variable& x) { return x.requires_grad(); });
  if (probe != nullptr && wanted) probe->found_ = true;
  return grad_mode && wanted;
}

Save save(const Variable& x) {
  if (!x.defined()) return {};
  if (x.is_held()) return {x.value(), Role::weight};
  if (!is_floating(x.dtype())) return save_exact(x.value());
  return {x.value(), Role::activation, x.producer()};
}
Save save(const Tensor& x) {
  if (!x.defined()) return {};
  return is_floating(x.dtype()) ? Save{x, Role::activation} : save_exact(x);
}
Save save_if(bool needed, const Variable& x) { return needed ? save(x) : Save{}; }
Save save_output(const Tensor& y) { return {y, Role::activation}; }
Save save_mask(const Tensor& mask) { return {mask, Role::mask}; }
Save save_sign(const Tensor& mask) {
  Save request = save_mask(mask);
  request.is_output_sign = true;
  return request;
}
Save save_exact(const Tensor& x) { return {x, Role::exact}; }
Save save_whole(const Tensor& x) { return {x, Role::whole}; }
Save for_recipe(const Variable& x) {
  return {x.value(), x.is_held() ? Role::weight : Role::activation, x.producer(), true};
}

bool keeps_known_noise(const char* op, const Variables& inputs, Save& x) {
  if (!recording(inputs) || !saves_may_be_lossy()) return true;
  x.curved = true;
  if (!x.kept.defined()) x.kept = keep(op, 0, x);
  return x.kept.knows_variance() || !x.kept.is_recipe();
}

PassedSave save_and_run(const char* op, const Variables& inputs, Save x, PackedPass pass,
                        const std::function<void(PackedPass&)>& kernels) {
  const std::function<void()> run = [&] { kernels(pass); };
  Fusion fusion{pass, run};
  const bool apart = !x.value.defined() || x.value.device().type != DeviceType::cuda ||
                     x.role != Role::activation || !x.value.is_contiguous() || !recording(inputs);
  if (!apart) x.kept = keep(op, 0, x, &fusion);
  if (!fusion.done) fusion.run();
  x.sign.mask = pass.kept;
  PassedSave out{pass.out, std::move(x), save_sign(pass.kept)};
  out.sign.kept = std::move(fusion.sign);
  return out;
}

void Backward::refuse_slot(int slot) const {
  throw Error(fmt::format(
      "[{}] expected a slot below {}, since the op saves {} tensors, got saved({}): what "
      "backward reads is named in record(op, inputs, output, {{save(x), ...}}, backward)",
      op_, slots_.size(), slots_.size(), slot));
}

void Backward::refuse_input(int input) const {
  throw Error(fmt::format("[{}] expected one of the op's {} inputs, counted from 0, got input {}",
                          op_, needs_.size(), input));
}

int64_t Backward::slice_items(int slot, int64_t item_bytes, int64_t unit) const {
  const SavedTensor& saved = this->slot(slot);
  const int64_t step = sum_items(slot, item_bytes, unit);
  if (!saved.defined() || saved.shape().dim() == 0) return step;
  const int64_t n = std::max<int64_t>(saved.shape()[0], 1);
  if (step >= n || (!saved.is_raw() && has_rows(slot, step, n))) return step;
  return n;
}

int64_t Backward::sum_items(int slot, int64_t item_bytes, int64_t unit) const {
  const SavedTensor& saved = this->slot(slot);
  if (!saved.defined() || saved.shape().dim() == 0) return 1;
  const int64_t n = saved.shape()[0], all = std::max<int64_t>(n, 1);
  if (slice_bytes_ <= 0) return all;
  const int64_t fit = std::max<int64_t>(slice_bytes_ / std::max<int64_t>(item_bytes, 1), 1);
  return std::min((fit + unit - 1) / unit * unit, all);
}

std::vector<Edge> edges_to(const Variables& inputs) {
  std::vector<Edge> edges;
  for (const Variable& x : inputs) {
    if (x.defined())
      edges.push_back({x.producer(), x.accumulator(), x.shape()});
    else
      edges.emplace_back();
  }
  return edges;
}

std::shared_ptr<Node> make_node(const char* op, const Variables& inputs, const Tensor& output,
                                const std::vector<Save>& saves, BackwardFn backward,
                                RecipeSpec recipe) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->number = next_node_number++;
  if (Timeline* timeline = active_timeline(); timeline != nullptr) timeline->made(node->number);
  node->inputs = edges_to(inputs);
  node->backward = std::move(backward);
  node->recipe = std::move(recipe);
  node->shape = output.shape();
  node->dtype = output.dtype();
  node->device = output.device();
  node->slice_bytes = slice_bytes();
  std::vector<SavedTensor> slots;
  for (const Save& request : saves)
    slots.push_back(request.kept.defined() ? request.kept
                                           : keep(op, static_cast<int>(slots.size()), request));
  for (size_t i = 0; i < saves.size(); ++i) {
    // A recipe needs all of its sources.
    if (saves[i].only_for_recipe && !slots[i].defined()) node->recipe = {};
    if (saves[i].is_output_sign && slots[i].defined()) node->sign_slot = static_cast<int>(i);
  }
  node->slots = Slots(std::move(slots));
  return node;
}

void tell(Trace& trace, const OpName& op, const Variables& inputs, const Tensor& output) {
  TracedOp traced;
  traced.name = op.name();
  for (const Variable& x : inputs) traced.inputs.push_back(x.defined() ? x.value() : Tensor());
  traced.output = output;
  op.describe(traced);
  trace.add(std::move(traced));
}

Variable record(const OpName& op, const Variables& inputs, Tensor output,
                const std::vector<Save>& saves, BackwardFn backward, RecipeSpec recipe) {
  if (Trace* trace = active_trace(); trace != nullptr) tell(*trace, op, inputs, output);
  Timeline* const timeline = active_timeline();
  if (timeline != nullptr)
    for (const Variable& x : inputs)
      if (x.defined()) timeline->reads(x.value().storage()->id());
  std::shared_ptr<Node> node;
  if (recording(inputs))
    node = make_node(op.name(), inputs, output, saves, std::move(backward), std::move(recipe));
  if (timeline != nullptr) timeline->op(op.name());
  if (node == nullptr) return Variable(std::move(output));
  return make_output(std::move(output), std::move(node));
}

Node::~Node() {
  std::vector<std::shared_ptr<Node>> doomed;
  auto take = [&](std::vector<Edge>& edges) {
    for (Edge& edge : edges)
      if (edge.node != nullptr && edge.node.use_count() == 1)
        doomed.push_back(std::move(edge.node));
  };
  take(inputs);
  while (!doomed.empty()) {
    const std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
    take(node->inputs);
  }
}

bool Node::has_recipe() const {
  if (!recipe.fn || walked) return false;
  for (int i = 0; i < slots.size(); ++i)
    if (slots[i].recipe_depth() >= kMaxRecipeDepth) return false;
  return true;
}

}  // namespace frugal
