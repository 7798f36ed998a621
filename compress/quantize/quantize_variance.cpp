// The variance of the values that unpack() gives: one number per group, for each of its elements.
// Estimates that use the variance run in slices that stay in a cache.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "compress/quantize/quantize_kernels.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/dense/elementwise.h"
#include "ops/simd/convert_loops.h"

namespace frugal::compress {

void variance_kernel(Cpu, const UnpackJob& job) {
  const GroupLayout& layout = job.layout;
  const auto spread = [&](auto zero) {
    using T = decltype(zero);
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    T* x = static_cast<T*>(job.x);
    const int64_t each = std::max<int64_t>(layout.group_rows * layout.cols, 1);
    parallel_for(
        job.begin / each, (job.end + each - 1) / each, 1, [&](int64_t first, int64_t last) {
          std::vector<T> variances(static_cast<size_t>(layout.cols));
          for (int64_t g = first; g < last; ++g) {
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
              const Real parts = job.dithered && takes_dither_away(lo, scale) ? 12 : 6;
              variances[static_cast<size_t>(c)] =
                  static_cast<T>(static_cast<Real>(scale) * static_cast<Real>(scale) / parts);
            }
            for (int64_t r = 0; r < layout.rows_of(g); ++r) {
              const int64_t at = (g * layout.group_rows + r) * layout.cols;
              const int64_t from = std::max(at, job.begin),
                            to = std::min(at + layout.cols, job.end);
              if (from < to)
                std::copy_n(variances.data() + (from - at), to - from, x + (from - job.begin));
            }
          }
        });
  };
  if (job.dtype == DType::bf16) return spread(BFloat16{});
  with_real(job.dtype, spread);
}

bool Quantized::run(const PackedPass::Variance&, PackedPass& pass) const {
  if (!knows_variance() || pass.out.defined()) return false;
  const Range range = range_of(pass.rows);
  CategoryScope scope(Category::workspace);
  // Kernels begin at a block of 8 rows.
  const int64_t block = 8 * std::max<int64_t>(layout_.cols, 1), from = range.begin / block * block;
  const Tensor out = Tensor::empty({range.end - from}, dtype_, payload_.device());
  const UnpackJob job = unpack_job(from, range.end, out.raw());
  if (range.begin < range.end)
    dispatch(out.device(), [&](auto backend) { variance_kernel(backend, job); });
  pass.out = out.slice(0, range.begin - from, range.end - from).view(range.shape);
  return true;
}

// Each lane goes through its share of the tensor in slices. A slice of x and of its variance stays
// in a core's cache between unpacking and use. Threads synchronize once. The functions take f32:
// slices of bf16 are widened.
bool Quantized::map_in_slices(const PackedPass::Map& map, Tensor& out) const {
  if (!knows_variance() || layout_.numel == 0) return false;
  constexpr int64_t kMostLanes = 8;
  const bool narrow = dtype_ == DType::bf16;
  const int64_t slice_bytes = narrow ? 1 << 15 : 1 << 16;  // bytes of x as f32 or f64
  const int64_t block = 8 * layout_.cols, all = layout_.numel;
  const int64_t block_bytes = block * static_cast<int64_t>(size_of(narrow ? DType::f32 : dtype_));
  int64_t step = std::min(std::max<int64_t>(slice_bytes / block_bytes, 1) * block, all);
  int64_t slices = (all + step - 1) / step, lanes = std::min(slices, kMostLanes);
  // The number of bytes does not depend on the number of threads, because plans count it for other
  // machines. More threads have smaller slices. No element depends on where its slice begins.
  const int64_t room = lanes * step;
  if (num_threads() > lanes && room > block) {
    step = std::max<int64_t>(room / block / num_threads(), 1) * block;
    slices = (all + step - 1) / step;
    lanes = std::min(slices, room / step);
  }
  if (!out.defined()) out = Tensor::empty(shape_, dtype_, payload_.device());
  const Tensor to = out.view({all}), dy = map.dy.defined() ? map.dy.view({all}) : map.dy;
  CategoryScope scope(Category::workspace);
  const auto make_room = [&](DType dtype) {
    return Tensor::empty({room}, dtype, payload_.device());
  };
  const Tensor unpacked = make_room(dtype_), variances = make_room(dtype_);
  std::array<Tensor, 3> wide;  // x, the variance, dy and then the result
  if (narrow)
    for (Tensor& each : wide) each = make_room(DType::f32);
  if (payload_.device() == kMeta) return true;
  const int64_t group = layout_.group_rows * layout_.cols;
  const auto run_lane = [&](int64_t lane) {
    int64_t told = -1, told_elements = 0;  // the group whose variance the lane's room has
    for (int64_t i = slices * lane / lanes; i < slices * (lane + 1) / lanes; ++i) {
      const int64_t begin = i * step, n = std::min(all, begin + step) - begin;
      const auto own = [&](const Tensor& whole) {
        return whole.slice(0, lane * step, lane * step + n);
      };
      const bool in_one = begin / group == (begin + n - 1) / group;
      const bool is_told = in_one && told == begin / group && n <= told_elements;
      Tensor x = own(unpacked), variance = own(variances), y = to.slice(0, begin, begin + n);
      Tensor gradient = dy.defined() ? dy.slice(0, begin, begin + n) : dy;
      dequantize_kernel(Cpu{}, unpack_job(begin, begin + n, x.raw()));
      if (!is_told) variance_kernel(Cpu{}, unpack_job(begin, begin + n, variance.raw()));
      if (narrow) {
        const auto widened = [&](const Tensor& from, const Tensor& copy, bool is_done = false) {
          if (!is_done) ops::simd::widen(from.data<BFloat16>(), copy.mut<float>(), n);
          return copy;
        };
        x = widened(x, own(wide[0]));
        variance = widened(variance, own(wide[1]), is_told);
        y = own(wide[2]);
        if (dy.defined()) gradient = widened(gradient, y);
      }
      if (dy.defined())
        ops::unary_backward_estimate_kernel(Cpu{}, map.f, gradient, x, variance, y);
      else
        ops::unary_estimate_kernel(Cpu{}, map.f, x, variance, y);
      if (narrow) ops::simd::narrow(y.data<float>(), to.mut<BFloat16>() + begin, n);
      if (!is_told) told = in_one ? begin / group : -1, told_elements = n;
    }
  };
  parallel_for(0, lanes, 1, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) run_lane(lane);
  });
  out.bump_version();
  return true;
}

}  // namespace frugal::compress
