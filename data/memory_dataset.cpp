#include "data/memory_dataset.h"

#include <algorithm>

namespace frugal::data {
namespace {

void check_labels(const int64_t* labels, int64_t count, int64_t classes) {
  for (int64_t i = 0; i < count; ++i)
    FRUGAL_CHECK(labels[i] >= 0 && labels[i] < classes,
                 "[dataset] expected labels in [0, {}), got {} at sample {}", classes, labels[i],
                 i);
}

Shape without_first(const Shape& shape) {
  return Shape(std::span<const int64_t>(shape.begin() + 1, shape.end()));
}

}  // namespace

ImageDataset::ImageDataset(std::vector<uint8_t> pixels, const Shape& shape,
                           std::vector<int64_t> labels, int64_t classes)
    : pixels_(std::move(pixels)), labels_(std::move(labels)), classes_(classes) {
  FRUGAL_CHECK(shape.dim() == 4 && shape.numel() == static_cast<int64_t>(pixels_.size()),
               "[dataset] expected the pixels of images [N, H, W, C], got {} bytes for shape {}",
               pixels_.size(), shape);
  FRUGAL_CHECK(shape[0] == size(), "[dataset] expected {} labels, one an image, got {}", shape[0],
               size());
  check_labels(labels_.data(), size(), classes);
  sample_shape_ = without_first(shape);
}

int64_t ImageDataset::get_into(int64_t index, RngKey /*key*/, float* out) const {
  const int64_t n = sample_shape_.numel();
  const uint8_t* in = pixels_.data() + index * n;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) / 255.0f;
  return labels_[static_cast<size_t>(index)];
}

MemoryDataset::MemoryDataset(const Tensor& inputs, const Tensor& labels, int64_t classes)
    : classes_(classes) {
  const auto on_cpu = [](const Tensor& t, DType dtype, int dim) {
    return t.defined() && t.device() == kCpu && t.dtype() == dtype && t.dim() == dim &&
           t.is_contiguous();
  };
  FRUGAL_CHECK(on_cpu(inputs, DType::f32, 4),
               "[dataset] expected contiguous inputs [N, H, W, C] f32 on cpu, got {}",
               describe(inputs));
  FRUGAL_CHECK(on_cpu(labels, DType::i64, 1) && labels.size(0) == inputs.size(0),
               "[dataset] expected contiguous labels [{}] i64 on cpu, got {}", inputs.size(0),
               describe(labels));
  inputs_.assign(inputs.data<float>(), inputs.data<float>() + inputs.numel());
  labels_.assign(labels.data<int64_t>(), labels.data<int64_t>() + labels.numel());
  sample_shape_ = without_first(inputs.shape());
  check_labels(labels_.data(), size(), classes);
}

int64_t MemoryDataset::get_into(int64_t index, RngKey /*key*/, float* out) const {
  const int64_t n = sample_shape_.numel();
  std::copy_n(inputs_.data() + index * n, n, out);
  return labels_[static_cast<size_t>(index)];
}

}  // namespace frugal::data
