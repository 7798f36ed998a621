#include "compress/bounded/error_bounded.h"

#include <algorithm>
#include <cmath>

#include "compress/bounded/bounded_entropy.h"
#include "compress/bounded/bounded_fixed.h"
#include "compress/bounded/bounded_predicted.h"
#include "compress/bounded/zfp_codec.h"
#include "compress/quantize/within_f16.h"
#include "ops/dense/copy.h"

namespace frugal::compress {

double ErrorBound::least() const { return *std::min_element(of_.begin(), of_.end()); }

std::vector<std::string> error_bounded_names() {
  std::vector<std::string> names{"fixed", "fixed_z", "entropy", "predicted"};
  if (has_zfp()) names.emplace_back("zfp");
  return names;
}

std::unique_ptr<ErrorBounded> make_error_bounded(std::string_view name,
                                                 const ErrorBoundedOptions& options) {
  if (name == "fixed" || name == "fixed_z")
    return std::make_unique<BoundedFixed>(
        BoundedFixedOptions{options, WidthRule::tight, name == "fixed_z"});
  if (name == "entropy") return std::make_unique<BoundedEntropy>(options);
  if (name == "predicted") return std::make_unique<BoundedPredicted>(options);
  if (name == "zfp" && has_zfp()) return make_zfp(options);
  throw Error(fmt::format("[error_bounded] expected {}, got \"{}\"",
                          fmt::join(error_bounded_names(), ", "), name));
}

namespace bounded {

Tensor checked(const char* op, const Tensor& tensor, const ErrorBound& bound) {
  FRUGAL_CHECK(tensor.defined() && is_floating(tensor.dtype()) && tensor.is_contiguous(),
               "[{}] expected a contiguous floating tensor, got {}", op,
               tensor.defined() ? describe(tensor) : "an undefined one");
  const int64_t channels = tensor.dim() == 0 ? 1 : tensor.shape().back();
  FRUGAL_CHECK(bound.size() == 1 || static_cast<int64_t>(bound.size()) == channels,
               "[{}] expected one bound or one for each of {} channels, got {}", op, channels,
               bound.size());
  for (size_t c = 0; c < bound.size(); ++c)
    FRUGAL_CHECK(bound.at(static_cast<int64_t>(c)) >= 0, "[{}] expected bounds >= 0, got {}", op,
                 bound.at(static_cast<int64_t>(c)));
  CategoryScope scope(Category::workspace);
  return ops::cast(tensor, DType::f32);
}

Tensor on_host(const Tensor& tensor) {
  const CategoryScope scope(Category::workspace);
  return tensor.device().type == DeviceType::cuda ? to_device(tensor, kCpu) : tensor;
}

Tensor packed_bytes(int64_t size, Device device) {
  CategoryScope scope(Category::packed);
  return Tensor::empty({size}, DType::u8, device);
}

Tensor meta_payload(int64_t head, int64_t numel, const ErrorBoundedOptions& options) {
  const double bytes = std::ceil(options.meta_bits * static_cast<double>(numel) / 8);
  return packed_bytes(head + static_cast<int64_t>(bytes), kMeta);
}

Tensor placed(const Tensor& payload, Device device) {
  CategoryScope scope(Category::packed);
  return to_device(payload, device);
}

namespace {
// Decoded values in the dtype of their tensor. CUDA has no tensors of f16.
Tensor in_dtype(const Tensor& decoded, DType dtype) {
  if (dtype == DType::f16 && decoded.device() == kCpu) {
    auto* const x = decoded.mut<float>();
    for (int64_t i = 0; i < decoded.numel(); ++i) x[i] = within_f16(x[i]);
  }
  return ops::cast(decoded, dtype);
}
}  // namespace

Tensor Payload::range(const Shape& shape, int64_t begin, int64_t end) const {
  CategoryScope scope(Category::workspace);
  const Device device = payload_.device();
  if (device.type == DeviceType::cuda && !decodes_on_cuda()) {
    here_ = to_device(payload_, kCpu);
    const Tensor out = Tensor::empty(shape, DType::f32);
    if (begin < end) decode(begin, end, out.mut<float>());
    here_ = {};
    return in_dtype(to_device(out, device), dtype_);
  }
  const Tensor out = Tensor::empty(shape, DType::f32, device);
  if (begin < end && device != kMeta) decode(begin, end, out.mut<float>());
  return in_dtype(out, dtype_);
}

Tensor Payload::unpack() const { return range(shape_, 0, shape_.numel()); }

Tensor Payload::unpack_rows(int64_t begin, int64_t end) const {
  FRUGAL_CHECK(shape_.dim() > 0 && begin >= 0 && begin <= end && end <= shape_[0],
               "[error_bounded] expected a range within the leading axis of {}, got {} to {}",
               shape_, begin, end);
  Shape shape = shape_;
  shape[0] = end - begin;
  const int64_t item = shape_[0] == 0 ? 0 : shape_.numel() / shape_[0];
  return range(shape, begin * item, end * item);
}

}  // namespace bounded

}  // namespace frugal::compress
