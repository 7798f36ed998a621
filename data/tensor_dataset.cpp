#include "data/tensor_dataset.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/words/quoted.h"

namespace frugal::data {

void check_finite_samples(const std::string& where, const Tensor& samples) {
  const auto* from = samples.data<float>();
  const int64_t count = samples.numel() / std::max<int64_t>(samples.size(0), 1);
  for (int64_t i = 0; i < samples.numel(); ++i)
    FRUGAL_CHECK(std::isfinite(from[i]),
                 "[tensors] {}: expected finite numbers, got {} in sample {}", in_quotes(where),
                 std::isnan(from[i]) ? std::abs(from[i]) : from[i], i / count);
}

TensorDataset::TensorDataset(const std::string& where, const Tensor& inputs, SampleTargets targets,
                             bool channels_first)
    : targets_(std::move(targets)), channels_first_(channels_first) {
  FRUGAL_CHECK(inputs.defined() && inputs.device() == kCpu && inputs.is_contiguous() &&
                   (inputs.dtype() == DType::f32 || inputs.dtype() == DType::u8) &&
                   inputs.dim() >= 2 && inputs.numel() > 0,
               "[tensors] {}: expected samples of f32 or u8, got {}", in_quotes(where),
               describe(inputs));
  FRUGAL_CHECK(inputs.size(0) == size(), "[tensors] {}: expected {} targets, one a sample, got {}",
               in_quotes(where), inputs.size(0), size());
  shape_ = Shape(std::span<const int64_t>(inputs.shape().begin() + 1, inputs.shape().end()));
  FRUGAL_CHECK(!channels_first || shape_.dim() == 3,
               "[tensors] {}: expected samples [C, H, W], got {}", in_quotes(where), shape_);
  if (inputs.dtype() == DType::u8) {
    const auto* from = static_cast<const uint8_t*>(inputs.raw());
    bytes_.assign(from, from + inputs.numel());
  } else {
    check_finite_samples(where, inputs);
    const auto* from = inputs.data<float>();
    floats_.assign(from, from + inputs.numel());
  }
  if (channels_first) shape_ = {shape_[1], shape_[2], shape_[0]};
}

int64_t TensorDataset::get_into(int64_t index, RngKey /*key*/, float* out) const {
  const int64_t count = shape_.numel(), at = index * count;
  const int64_t channels = channels_first_ ? shape_[2] : 1, pixels = count / channels;
  const auto value = [&](int64_t i) {
    return bytes_.empty() ? floats_[static_cast<size_t>(at + i)]
                          : static_cast<float>(bytes_[static_cast<size_t>(at + i)]) / 255.0f;
  };
  for (int64_t i = 0; i < pixels; ++i)
    for (int64_t c = 0; c < channels; ++c) out[i * channels + c] = value(c * pixels + i);
  return targets_.labels[static_cast<size_t>(index)];
}

Selection::Selection(DatasetPtr inner, std::vector<int64_t> indices)
    : inner_(std::move(inner)), indices_(std::move(indices)) {
  for (const int64_t index : indices_)
    FRUGAL_CHECK(index >= 0 && index < inner_->size(),
                 "[selection] expected indices in [0, {}), got {}", inner_->size(), index);
}

}  // namespace frugal::data
