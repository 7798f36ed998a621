#include "compress/quantize.h"

#include "compress/quantize_kernels.h"

namespace frugal::compress {

Quantizer::Quantizer(const QuantizeOptions& options) : options_(options) {
  FRUGAL_CHECK(options.bits >= 1 && options.bits <= 16, "[quantize] expected 1 to 16 bits, got {}",
               options.bits);
  FRUGAL_CHECK(options.group >= 8 && options.group <= 65536 && options.group % 8 == 0,
               "[quantize] expected a group size that is a multiple of 8 in 8..65536, got {}",
               options.group);
}

int64_t Quantizer::packed_bytes(const Shape& shape) const {
  return make_layout(shape, options_.axis, options_.group, options_.bits).bytes();
}

std::unique_ptr<Packed> Quantizer::pack(const Tensor& tensor, const SaveInfo& info) const {
  FRUGAL_CHECK(tensor.defined() && is_floating(tensor.dtype()) && tensor.is_contiguous(),
               "[quantize] expected a contiguous floating tensor, got {}",
               tensor.defined() ? describe(tensor) : "an undefined one");
  const GroupLayout layout =
      make_layout(tensor.shape(), options_.axis, options_.group, options_.bits);
  Tensor payload;
  {
    CategoryScope scope(Category::packed);
    payload = Tensor::empty({layout.bytes()}, DType::u8, tensor.device());
  }
  PackJob job;
  job.x = tensor.raw();
  job.dtype = tensor.dtype();
  job.payload = static_cast<uint8_t*>(payload.raw());
  job.layout = layout;
  job.stream = code_stream(options_.seed, info);
  job.stochastic = options_.rounding == Rounding::stochastic;
  job.nonfinite = &nonfinite_;
  dispatch(tensor.device(), [&](auto backend) { quantize_kernel(backend, job); });
  return std::make_unique<Quantized>(std::move(payload), layout, tensor.shape(), tensor.dtype());
}

Tensor Quantized::unpack() const {
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(shape_, dtype_, payload_.device());
  unpack_into(out);
  return out;
}

void Quantized::unpack_into(const Tensor& out) const {
  FRUGAL_CHECK(out.defined() && out.shape() == shape_ && out.dtype() == dtype_ &&
                   out.device() == payload_.device() && out.is_contiguous(),
               "[quantize] expected a contiguous {} {} on {} to unpack into, got {}", shape_,
               name_of(dtype_), payload_.device().str(),
               out.defined() ? describe(out) : "an undefined tensor");
  UnpackJob job;
  job.payload = static_cast<const uint8_t*>(payload_.raw());
  job.x = out.raw();
  job.dtype = dtype_;
  job.layout = layout_;
  dispatch(out.device(), [&](auto backend) { dequantize_kernel(backend, job); });
}

}  // namespace frugal::compress
