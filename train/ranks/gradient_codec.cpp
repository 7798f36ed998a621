#include "train/ranks/gradient_codec.h"

#include "compress/quantize/quantize_kernels.h"
#include "core/random/random_streams.h"

namespace frugal::train {
namespace {

compress::GroupLayout layout_of(const GradientCodecOptions& options, int64_t elements) {
  return compress::make_layout({elements}, compress::GroupAxis::row, options.group, options.bits);
}

void check_pair(const Tensor& x, const Tensor& codes, int64_t bytes) {
  FRUGAL_CHECK(x.dtype() == DType::f32 && x.is_contiguous(),
               "[gradient_codec] expected contiguous f32, got {}", describe(x));
  FRUGAL_CHECK(codes.dtype() == DType::u8 && codes.numel() == bytes && codes.is_contiguous() &&
                   codes.device() == x.device(),
               "[gradient_codec] expected {} contiguous u8 on {} for {} elements, got {}", bytes,
               x.device().str(), x.numel(), describe(codes));
}

}  // namespace

GradientCodec::GradientCodec(const GradientCodecOptions& options) : options_(options) {
  FRUGAL_CHECK(options.bits >= 1 && options.bits <= 16,
               "[gradient_codec] expected 1 to 16 bits, got {}", options.bits);
  FRUGAL_CHECK(options.group >= 128 && options.group <= 65536 && options.group % 128 == 0,
               "[gradient_codec] expected a group size that is a multiple of 128 up to 65536, got "
               "{}",
               options.group);
}

int64_t GradientCodec::bytes(int64_t elements) const {
  return layout_of(options_, elements).bytes();
}

void GradientCodec::encode(const Tensor& x, const distributed::WireKey& key,
                           const Tensor& codes) const {
  check_pair(x, codes, bytes(x.numel()));
  SaveInfo info;
  info.step = key.step;
  info.seq = key.stream;
  compress::PackJob job;
  job.x = x.raw();
  job.payload = static_cast<uint8_t*>(codes.raw());
  job.layout = layout_of(options_, x.numel());
  job.stream = compress::code_stream(streams::rounding_of_gradients(options_.seed), info);
  job.nonfinite = &nonfinite_;
  dispatch(x.device(), [&](auto backend) { compress::quantize_kernel(backend, job); });
}

void GradientCodec::decode(const Tensor& codes, const Tensor& x) const {
  check_pair(x, codes, bytes(x.numel()));
  compress::UnpackJob job;
  job.payload = static_cast<const uint8_t*>(codes.raw());
  job.x = x.raw();
  job.layout = layout_of(options_, x.numel());
  job.end = x.numel();
  dispatch(x.device(), [&](auto backend) { compress::dequantize_kernel(backend, job); });
}

}  // namespace frugal::train
