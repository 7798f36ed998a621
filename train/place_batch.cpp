#include "train/place_batch.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/cuda/cuda_staging.h"
#include "core/tensor_identity.h"
#include "ops/dense/copy.h"
#include "train/targets.h"

namespace frugal::train {
namespace {

constexpr std::array kOfHost = {"edge_index", "edge_weight", "edge_norm",
                                "x_row_ptr",  "x_col",       "x_value"};

Tensor moved(const Tensor& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  const CategoryScope scope(Category::input);
  if constexpr (kHasCuda)
    if (device.type == DeviceType::cuda && x.device() == kCpu)
      return cuda::staged(ops::contiguous(x), device);
  return to_device(ops::contiguous(x), device);
}
Tensor moved(const Tensor& x, Device device, DType dtype) {
  const CategoryScope scope(Category::input);
  const Tensor there = moved(x, device);
  return is_floating(x.dtype()) ? ops::cast(there, dtype) : there;
}

// These two are static: the trainer, evaluations and commands call placed() with batches of one
// source, and share no object that could own a memo.
Tensor moved_once(const Tensor& x, Device device, DType dtype) {
  using Key = std::tuple<TensorIdentity, DeviceType, int, DType>;
  static Memo<Key, Tensor> kept(2);  // of training and of testing
  forget_gone(kept);
  return kept.find_or_make({TensorIdentity(x), device.type, device.index, dtype},
                           [&] { return moved(x, device, dtype); });
}

struct Targets {
  Tensor all;
  CountedNodes counted;
};

Targets targets_of(const Tensor& target, const Tensor& weights, Device device) {
  const CountedNodes here = counted_nodes(to_device(target, kCpu), moved(weights, kCpu));
  Targets out;
  out.all = moved(target, device);
  out.counted.rows = moved(here.rows, device);
  out.counted.target = here.rows.defined() ? moved(here.target, device) : out.all;
  out.counted.weights = here.rows.defined() ? moved(here.weights, device) : Tensor();
  return out;
}

Targets targets_once(const Tensor& target, Device device) {
  using Key = std::tuple<TensorIdentity, DeviceType, int>;
  static Memo<Key, Targets> kept(4);  // of training, validation and testing
  forget_gone(kept);
  return kept.find_or_make({TensorIdentity(target), device.type, device.index},
                           [&] { return targets_of(target, Tensor(), device); });
}

// Has a sample answers of kIgnored? Those of the others make the loss.
bool some_answers_ignored(const Batch& batch) {
  if (!has_several_labels(batch.target) || batch.floats != FloatTargets::answers ||
      batch.target.device() != kCpu || batch.target.dtype() != DType::f32)
    return false;
  const float* const all = batch.target.data<float>();
  return std::any_of(all, all + batch.target.numel(), [](float answer) { return answer < 0; });
}

void count_rows(Batch& batch, Device device) {
  if (!batch.target.defined() || batch.target.device().type == DeviceType::meta ||
      find_tensor(batch.extras, "counted_target").defined())
    return;
  if (!find_tensor(batch.extras, "edge_index").defined() && !some_answers_ignored(batch)) return;
  const Tensor weights = find_tensor(batch.extras, "node_weight");
  const bool once = batch.held && device.type == DeviceType::cuda && !weights.defined();
  const Targets targets =
      once ? targets_once(batch.target, device) : targets_of(batch.target, weights, device);
  batch.target = targets.all;
  batch.extras.emplace_back("counted_target", targets.counted.target);
  if (targets.counted.rows.defined())
    batch.extras.emplace_back("counted_rows", targets.counted.rows);
  if (targets.counted.weights.defined())
    batch.extras.emplace_back("counted_weight", targets.counted.weights);
}

bool hides_nothing(const Tensor& mask) {
  if (mask.device() != kCpu || mask.dtype() != DType::i64 || !mask.is_contiguous()) return false;
  const auto* all = mask.data<int64_t>();
  return std::find(all, all + mask.numel(), 0) == all + mask.numel();
}

}  // namespace

Batch placed(Batch batch, const Module& model) {
  const Device device = model.device();
  count_rows(batch, device);
  const DType dtype = model.activations();
  if (device.type == DeviceType::meta && is_floating(batch.input.dtype())) {
    const CategoryScope scope(Category::input);
    batch.input = ops::cast(batch.input, dtype);  // as it will be on CUDA
  }
  if (device.type != DeviceType::cuda || batch.input.device() == device) return batch;
  std::erase_if(batch.extras, [](const auto& extra) {
    return extra.first == "attention_mask" && hides_nothing(extra.second);
  });
  batch.input = batch.held && is_floating(batch.input.dtype())
                    ? moved_once(batch.input, device, dtype)
                    : moved(batch.input, device, dtype);
  batch.target = moved(batch.target, device);
  for (auto& [name, tensor] : batch.extras)
    if (std::find(kOfHost.begin(), kOfHost.end(), name) == kOfHost.end())
      tensor = moved(tensor, device);
  return batch;
}

}  // namespace frugal::train
