#include "compress/quantize/fused_kernels.h"
#include "compress/quantize/quantize.h"
#include "ops/dense/bitmask.h"

namespace frugal::compress {
namespace {

bool has_kernel(ops::Unary f) {
  return f == ops::Unary::gelu_exact || f == ops::Unary::gelu_tanh || f == ops::Unary::silu;
}

bool is_cuda(const Tensor& x) { return kHasCuda && x.device().type == DeviceType::cuda; }

// What a pass reads or writes beside x.
bool fits(const Tensor& other, int64_t numel, DType dtype) {
  return !other.defined() ||
         (other.numel() == numel && other.dtype() == dtype && other.is_contiguous());
}

const uint8_t* bytes_of(const Tensor& mask) {
  return mask.defined() ? mask.data<uint8_t>() : nullptr;
}

// Groups of more rows are read twice, and the second time y may have taken the residual's place.
constexpr int64_t kMappedRows = 256;

}  // namespace

std::unique_ptr<Packed> Quantizer::pack_mapped(const Tensor& tensor, const SaveInfo& info,
                                               MapForward& map) const {
  if (!is_cuda(tensor) || tensor.numel() == 0) return nullptr;
  const bool wants_mask = map.relu && !map.function;
  const GroupLayout layout = layout_of(tensor.shape(), wants_mask && info.sign != nullptr);
  if (layout.group_rows > kMappedRows) return nullptr;
  if (map.function ? !has_kernel(*map.function)
                   : layout.shared || !fits(map.residual, tensor.numel(), tensor.dtype()))
    return nullptr;
  if (wants_mask && !ops::bitmask_layout(tensor.shape()).by_rows) return nullptr;
  if (!map.y.defined()) map.y = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  if (wants_mask && !layout.split) map.mask = ops::empty_bitmask(tensor.shape(), tensor.device());
  return pack(tensor, info, layout, &map);
}

void quantize_mapped(const PackJob& job, const MapForward& map) {
  MapJob work;
  work.function = map.function;
  if (map.affine.defined()) work.affine = map.affine.data<float>();
  if (map.residual.defined()) work.residual = map.residual.raw();
  work.relu = map.relu;
  work.y = map.y.raw();
  if (map.mask.defined()) work.mask = map.mask.mut<uint8_t>();
  if constexpr (kHasCuda)
    job.layout.split ? split_quantize_mapped_kernel(Cuda{}, job, work)
                     : quantize_mapped_kernel(Cuda{}, job, work);
}

bool Quantized::run_pass(PackedPass& pass) const {
  // A step on meta plans one on the CPU.
  if (payload_.device() == kCpu || payload_.device() == kMeta) {
    auto* unary = std::get_if<UnaryPass>(&pass.what);
    return unary != nullptr && fits(unary->dy, layout_.numel, dtype_) &&
           fits(unary->out, layout_.numel, dtype_) && in_slices(*unary);
  }
  if (!is_cuda(payload_)) return false;
  return std::visit([&](auto& wanted) { return over_codes(wanted); }, pass.what);
}

bool Quantized::over_codes(UnaryPass& pass) const {
  if (layout_.split || !has_kernel(pass.function) || !fits(pass.dy, layout_.numel, dtype_) ||
      !fits(pass.out, layout_.numel, dtype_))
    return false;
  if (!pass.out.defined()) pass.out = Tensor::empty(shape_, dtype_, payload_.device());
  UnaryJob job{unpack_job(0, layout_.numel, pass.out.raw()), pass.function, nullptr,
               knows_variance()};
  if (pass.dy.defined()) job.dy = pass.dy.raw();
  if constexpr (kHasCuda) unary_codes_kernel(Cuda{}, job);
  return true;
}

bool Quantized::over_codes(NormSums& pass) const {
  const PassMask& mask = pass.mask;
  if (layout_.shared || layout_.numel == 0 || layout_.cols != pass.mean.numel() ||
      !fits(pass.dy, layout_.numel, dtype_) || !fits(pass.g, layout_.numel, dtype_) ||
      (mask.bits.defined() && !ops::bitmask_layout(shape_).by_rows))
    return false;
  const NormSumsJob job{unpack_job(0, layout_.numel, nullptr),
                        pass.dy,
                        pass.mean,
                        pass.g,
                        pass.partial,
                        mask.bits,
                        mask.in_codes};
  if constexpr (kHasCuda) norm_sums_codes_kernel(Cuda{}, job);
  return true;
}

bool Quantized::over_codes(NormGradient& pass) const {
  const PassMask& mask = pass.mask;
  const Rows range = rows(pass.begin, pass.end);
  if (layout_.shared || layout_.cols * 4 != pass.affine.numel() ||
      range.begin % (8 * layout_.cols) != 0 || !fits(pass.dy, range.end - range.begin, dtype_) ||
      !fits(pass.dx, range.end - range.begin, dtype_) ||
      (mask.bits.defined() &&
       (!ops::bitmask_layout(shape_).by_rows || range.end - range.begin != layout_.numel)))
    return false;
  NormGradientJob job{unpack_job(range.begin, range.end, pass.dx.raw()), pass.dy.raw(),
                      pass.affine.data<float>(), bytes_of(mask.bits), mask.in_codes};
  if constexpr (kHasCuda) norm_gradient_codes_kernel(Cuda{}, job);
  return true;
}

}  // namespace frugal::compress
