// The variance of what unpack() gives: one number per group, spread over its elements.
#include <cstring>
#include <vector>

#include "compress/quantize_kernels.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"

namespace frugal::compress {

void variance_kernel(Cpu, const UnpackJob& job) {
  const GroupLayout& layout = job.layout;
  with_real(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* x = static_cast<T*>(job.x);
    parallel_for(0, layout.groups, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> variances(static_cast<size_t>(layout.cols));
      for (int64_t g = begin; g < end; ++g) {
        const uint8_t* scales = job.payload + layout.meta_offset(g) + layout.metas() * 2;
        for (int64_t c = 0; c < layout.cols; ++c) {
          uint16_t upper;
          std::memcpy(&upper, scales + (layout.shared ? 0 : c) * 2, 2);
          const uint32_t bits = uint32_t{upper} << 16;
          float scale;
          std::memcpy(&scale, &bits, 4);
          std::memcpy(&upper, scales + ((layout.shared ? 0 : c) - layout.metas()) * 2, 2);
          const uint32_t lo_bits = uint32_t{upper} << 16;
          float lo;
          std::memcpy(&lo, &lo_bits, 4);
          const T parts = job.dithered && takes_dither_away(lo, scale) ? 12 : 6;
          variances[static_cast<size_t>(c)] = static_cast<T>(scale) * static_cast<T>(scale) / parts;
        }
        for (int64_t r = 0; r < layout.rows_of(g); ++r) {
          const int64_t at = (g * layout.group_rows + r) * layout.cols;
          const int64_t n = std::min(layout.cols, layout.numel - at);
          std::copy_n(variances.data(), n, x + at);
        }
      }
    });
  });
}

Tensor Quantized::unpack_variance() const {
  if (!knows_variance()) return {};
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(shape_, dtype_, payload_.device());
  UnpackJob job;
  job.payload = static_cast<const uint8_t*>(payload_.raw());
  job.x = out.raw();
  job.dtype = dtype_;
  job.layout = layout_;
  job.end = layout_.numel;
  job.dithered = rounding_ == Rounding::dithered;
  if (out.numel() > 0) dispatch(out.device(), [&](auto backend) { variance_kernel(backend, job); });
  return out;
}

}  // namespace frugal::compress
