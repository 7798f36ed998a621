#include "train/place_batch.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/cuda/cuda_staging.h"
#include "ops/dense/copy.h"
#include "train/held_copies.h"

namespace frugal::train {
namespace {

// What graphs are built from is read on the host.
constexpr std::array kOfHost = {"edge_index", "edge_weight", "edge_norm",
                                "x_row_ptr",  "x_col",       "x_value"};

Tensor moved_in(DType dtype, const Tensor& x, Device device) {
  const CategoryScope scope(Category::input);
  const Tensor there = moved_to(x, device);
  return is_floating(x.dtype()) ? ops::cast(there, dtype) : there;
}

// The memo is static: the trainer, evaluations and commands place batches of one source, and share
// no object that could own it.
Tensor moved_once(const Tensor& x, Device device, DType dtype) {
  using Key = std::tuple<TensorIdentity, DeviceType, int, DType>;
  static HeldCopies<Key, Tensor> kept(2);  // one for training and one for testing
  return kept.find_or_make({TensorIdentity(x), device.type, device.index, dtype},
                           [&] { return moved_in(dtype, x, device); });
}

bool hides_nothing(const Tensor& mask) {
  if (mask.device() != kCpu || mask.dtype() != DType::i64 || !mask.is_contiguous()) return false;
  const auto* all = mask.data<int64_t>();
  return std::find(all, all + mask.numel(), 0) == all + mask.numel();
}

}  // namespace

Tensor moved_to(const Tensor& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  const CategoryScope scope(Category::input);
  if constexpr (kHasCuda)
    if (device.type == DeviceType::cuda && x.device() == kCpu)
      return cuda::staged(ops::contiguous(x), device);
  return to_device(ops::contiguous(x), device);
}

Batch place_batch(Batch batch, const Module& model) {
  const Device device = model.device();
  const DType dtype = model.activations();
  const bool real = is_floating(batch.input.dtype());
  if (device.type == DeviceType::meta && real) {
    const CategoryScope scope(Category::input);
    batch.input = ops::cast(batch.input, dtype);  // as it will be on CUDA
  }
  if (device == kCpu && dtype == DType::bf16 && real && batch.input.dtype() != dtype)
    batch.input =
        batch.held ? moved_once(batch.input, device, dtype) : moved_in(dtype, batch.input, device);
  if (device.type != DeviceType::cuda || batch.input.device() == device) return batch;
  std::erase_if(batch.extras, [](const auto& extra) {
    return extra.first == "attention_mask" && hides_nothing(extra.second);
  });
  batch.input = batch.held && real ? moved_once(batch.input, device, dtype)
                                   : moved_in(dtype, batch.input, device);
  batch.target = moved_to(batch.target, device);
  for (auto& [name, tensor] : batch.extras)
    if (std::find(kOfHost.begin(), kOfHost.end(), name) == kOfHost.end())
      tensor = moved_to(tensor, device);
  return batch;
}

}  // namespace frugal::train
