#include "compress/quantize/fused_kernels.h"
#include "compress/quantize/quantize.h"
#include "compress/quantize/quantize_units.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/elementwise.h"

namespace frugal::compress {
namespace {

bool is_cuda(const Tensor& x) { return kHasCuda && x.device().type == DeviceType::cuda; }

// Can a pass read or write this tensor beside x?
bool fits(const Tensor& other, int64_t numel, DType dtype) {
  return !other.defined() ||
         (other.numel() == numel && other.dtype() == dtype && other.is_contiguous());
}

const uint8_t* mask_bytes(const Tensor& mask) {
  return mask.defined() ? mask.data<uint8_t>() : nullptr;
}

// Groups of more rows are read twice, and before the second time y may have been written over the
// residual.
constexpr int64_t kMappedRows = 256;

}  // namespace

std::unique_ptr<Packed> Quantizer::pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                                PackedPass& pass) const {
  if (!is_cuda(tensor) || tensor.numel() == 0) return nullptr;
  const bool makes_mask = pass.rectifies();
  const GroupLayout layout = layout_of(tensor.shape(), makes_mask && info.sign != nullptr);
  if (layout.group_rows > kMappedRows) return nullptr;
  if (const auto* map = std::get_if<PackedPass::Map>(&pass.what)) {
    if (!ops::has_estimate(map->f) || map->dy.defined()) return nullptr;
  } else if (const auto* affine = std::get_if<PackedPass::Affine>(&pass.what)) {
    if (layout.shared || !fits(affine->residual, tensor.numel(), tensor.dtype())) return nullptr;
  } else {
    return nullptr;
  }
  if (makes_mask && !ops::bitmask_layout(tensor.shape()).by_rows) return nullptr;
  if (!pass.out.defined())
    pass.out = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  if (makes_mask && !layout.split) pass.kept = ops::empty_bitmask(tensor.shape(), tensor.device());
  return pack(tensor, info, layout, &pass);
}

void quantize_and_run(const PackJob& job, const PackedPass& pass) {
  PackPassJob work;
  work.out = pass.out.raw();
  if (const auto* map = std::get_if<PackedPass::Map>(&pass.what)) work.function = map->f;
  if (const auto* affine = std::get_if<PackedPass::Affine>(&pass.what)) {
    work.affine = affine->a.data<float>();
    if (affine->residual.defined()) work.residual = affine->residual.raw();
    work.rectify = affine->rectify;
  }
  if (pass.kept.defined()) work.kept = pass.kept.mut<uint8_t>();
  if constexpr (kHasCuda)
    job.layout.split ? split_quantize_and_run_kernel(Cuda{}, job, work)
                     : quantize_and_run_kernel(Cuda{}, job, work);
}

bool Quantized::run(const PackedPass::Map& map, PackedPass& pass) const {
  if (pass.rows.of != 0 || layout_.split || !ops::has_estimate(map.f) ||
      !fits(map.dy, layout_.numel, dtype_) || !fits(pass.out, layout_.numel, dtype_))
    return false;
  // A step on meta plans one on the CPU.
  if (payload_.device() == kCpu || payload_.device() == kMeta) return map_in_slices(map, pass.out);
  if (!is_cuda(payload_)) return false;
  if (!pass.out.defined()) pass.out = Tensor::empty(shape_, dtype_, payload_.device());
  MapJob job{unpack_job(0, layout_.numel, pass.out.raw()), map.f, nullptr, knows_variance()};
  if (map.dy.defined()) job.dy = map.dy.raw();
  if constexpr (kHasCuda) map_codes_kernel(Cuda{}, job);
  return true;
}

// Whether the device has kernels for Combine and Sums of such codes. A step on meta plans one on
// the CPU.
static bool has_column_kernels(const GroupLayout& layout, DType dtype, Device device) {
  if (layout.shared) return false;
  if (device.type == DeviceType::cuda) return kHasCuda;
  return (dtype == DType::f32 || dtype == DType::bf16) && layout.cols >= kLanes;
}

bool Quantized::run(const PackedPass::Combine& combine, PackedPass& pass) const {
  const Device device = payload_.device();
  const Tensor& bits = pass.mask.bits;
  const Range range = range_of(pass.rows);
  const int64_t numel = range.end - range.begin;
  if (!has_column_kernels(layout_, dtype_, device) || layout_.cols * 4 != combine.k.numel() ||
      range.begin % (8 * layout_.cols) != 0 || !fits(combine.y, numel, dtype_) ||
      !fits(pass.out, numel, dtype_) ||
      (bits.defined() && (!ops::bitmask_layout(shape_).by_rows || numel != layout_.numel)))
    return false;
  if (!pass.out.defined()) pass.out = Tensor::empty(range.shape, dtype_, device);
  const CombineJob job{unpack_job(range.begin, range.end, pass.out.raw()), combine.y.raw(),
                       combine.k.data<float>(), mask_bytes(bits), pass.mask.in_codes};
  dispatch(device, [&](auto backend) { combine_codes_kernel(backend, job); });
  return true;
}

bool Quantized::run(const PackedPass::Sums& sums, PackedPass& pass) const {
  const Device device = payload_.device();
  const Tensor& bits = pass.mask.bits;
  const Range range = range_of(pass.rows);
  const int64_t numel = range.end - range.begin;
  const bool all = numel == layout_.numel;
  if (!has_column_kernels(layout_, dtype_, device) || numel == 0 ||
      (is_cuda(payload_) && pass.rows.of != 0) || layout_.cols != sums.center.numel() ||
      sums.chunk_rows % 8 != 0 || range.begin % (8 * layout_.cols) != 0 ||
      !fits(sums.y, numel, dtype_) || !fits(pass.out, numel, dtype_) ||
      (bits.defined() && (!ops::bitmask_layout(shape_).by_rows || !all)))
    return false;
  const ColumnSumsJob job{unpack_job(range.begin, range.end, nullptr),
                          sums.y,
                          sums.center,
                          pass.out,
                          sums.partial,
                          sums.chunk_rows,
                          bits,
                          pass.mask.in_codes};
  dispatch(device, [&](auto backend) { column_sums_codes_kernel(backend, job); });
  return true;
}

}  // namespace frugal::compress
