#include "compress/quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/quantize/fused_kernels.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "ops/dense/bitmask.h"

namespace frugal::compress {

void check_sign(const char* op, const Sign& sign, const Tensor& tensor) {
  const int64_t bytes = ops::bitmask_layout(tensor.shape()).bytes();
  const Tensor& mask = sign.mask;
  FRUGAL_CHECK(mask.defined() && mask.dtype() == DType::u8 && mask.is_contiguous() &&
                   mask.numel() == bytes && mask.device() == tensor.device(),
               "[{}] expected a contiguous mask of {} u8 on {} for {}, got {}", op, bytes,
               tensor.device().str(), tensor.shape(),
               mask.defined() ? describe(mask) : "an undefined one");
  FRUGAL_CHECK(std::isfinite(sign.slope), "[{}] expected a finite slope, got {}", op, sign.slope);
}
Quantizer::Quantizer(const QuantizeOptions& options) : options_(options) {
  FRUGAL_CHECK(options.bits >= 1 && options.bits <= kMaxBits,
               "[quantize] expected 1 to 16 bits, got {}", options.bits);
  FRUGAL_CHECK(options.group >= 8 && options.group <= 65536 && options.group % 8 == 0,
               "[quantize] expected a group size that is a multiple of 8 in 8..65536, got {}",
               options.group);
}

GroupLayout Quantizer::layout_of(const Shape& shape, bool with_sign) const {
  GroupLayout layout = make_layout(shape, options_.axis, options_.group, options_.bits);
  layout.split = with_sign && can_split(layout, shape);
  return layout;
}

bool Quantizer::can_carry_sign(const Shape& shape) const { return layout_of(shape, true).split; }

int64_t Quantizer::packed_bytes(const Shape& shape, bool with_sign) const {
  return layout_of(shape, with_sign).bytes();
}

void move_bits_kernel(Cpu, const MovedBits& moved, int64_t bytes) {
  parallel_for(0, bytes, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) moved(k);
  });
}

void Quantizer::check(const Tensor& tensor, const SaveInfo& info) const {
  FRUGAL_CHECK(tensor.defined() && is_floating(tensor.dtype()) && tensor.is_contiguous(),
               "[quantize] expected a contiguous floating tensor, got {}",
               tensor.defined() ? describe(tensor) : "an undefined one");
  if (info.sign != nullptr) check_sign("quantize", *info.sign, tensor);
}

namespace {

Tensor payload_of(const GroupLayout& layout, Device device) {
  CategoryScope scope(Category::packed);
  return Tensor::empty({layout.bytes()}, DType::u8, device);
}

void run(const PackJob& job, Device device) {
  dispatch(device, [&](auto backend) {
    job.layout.split ? split_quantize_kernel(backend, job) : quantize_kernel(backend, job);
  });
}

}  // namespace

std::unique_ptr<Packed> Quantizer::pack(const Tensor& tensor, const SaveInfo& info) const {
  check(tensor, info);
  return pack(tensor, info, layout_of(tensor.shape(), info.sign != nullptr), nullptr);
}

std::unique_ptr<Packed> Quantizer::pack_into(const Tensor& payload, const Tensor& tensor,
                                             const SaveInfo& info) const {
  check(tensor, info);
  const GroupLayout layout = layout_of(tensor.shape(), info.sign != nullptr);
  FRUGAL_CHECK(payload.defined() && payload.dtype() == DType::u8 && payload.is_contiguous() &&
                   payload.numel() == layout.bytes() && payload.device() == tensor.device(),
               "[quantize] expected {} contiguous bytes on {} to pack into, got {}", layout.bytes(),
               tensor.device().str(),
               payload.defined() ? describe(payload) : "an undefined tensor");
  return pack(tensor, info, layout, nullptr, payload);
}

PackJob Quantizer::job_of(const GroupLayout& layout, const Tensor& payload, DType dtype,
                          const SaveInfo& info) const {
  PackJob job;
  job.dtype = dtype;
  job.payload = static_cast<uint8_t*>(payload.raw());
  job.layout = layout;
  job.stream = code_stream(options_.seed, info);
  job.stochastic = options_.rounding != Rounding::nearest;
  job.nonfinite = &nonfinite_;
  if (layout.split) job.weights = split_weights(info.sign->slope, dtype, options_.rounding);
  return job;
}

std::unique_ptr<Packed> Quantizer::pack(const Tensor& tensor, const SaveInfo& info,
                                        const GroupLayout& layout, const PackedPass* pass,
                                        Tensor payload) const {
  if (!payload.defined()) payload = payload_of(layout, tensor.device());
  PackJob job = job_of(layout, payload, tensor.dtype(), info);
  job.x = tensor.raw();
  if (pass != nullptr) {
    quantize_and_run(job, *pass);
  } else {
    if (layout.split) job.mask = static_cast<const uint8_t*>(info.sign->mask.raw());
    run(job, tensor.device());
  }
  return std::make_unique<Quantized>(std::move(payload), layout, tensor.shape(), tensor.dtype(),
                                     options_.rounding, job.stream,
                                     layout.split ? info.sign->slope : 0);
}

class Quantizer::Slices final : public SlicePacker {
 public:
  Slices(Tensor payload, const PackJob& job, const Tensor& like, Rounding rounding, double slope)
      : payload_(std::move(payload)),
        job_(job),
        shape_(like.shape()),
        rounding_(rounding),
        slope_(slope),
        item_rows_(job.layout.rows / shape_[0]) {}

  int64_t unit() const override {
    return job_.layout.group_rows / std::gcd(job_.layout.group_rows, item_rows_);
  }
  bool carries_sign() const override { return job_.layout.split; }

  void add(const Tensor& rows, const Tensor& mask) override {
    Shape expected = shape_;
    if (rows.defined() && rows.dim() > 0) expected[0] = rows.size(0);
    FRUGAL_CHECK(rows.defined() && rows.shape() == expected && rows.dtype() == job_.dtype &&
                     rows.device() == payload_.device() && rows.is_contiguous(),
                 "[quantize] expected contiguous rows of a {} {} on {}, got {}", shape_,
                 name_of(job_.dtype), payload_.device().str(),
                 rows.defined() ? describe(rows) : "an undefined tensor");
    const int64_t end = next_ + rows.size(0);
    FRUGAL_CHECK(next_ % unit() == 0 && end <= shape_[0] && (end % unit() == 0 || end == shape_[0]),
                 "[quantize] expected slices of multiples of {} rows up to {}, got {} to {}",
                 unit(), shape_[0], next_, end);
    if (job_.layout.split) check_sign("quantize", {mask, slope_}, rows);
    const int64_t group = job_.layout.group_rows;
    job_.first = next_ * item_rows_ / group;
    job_.count = ceil_div(end * item_rows_, group) - job_.first;
    job_.x = rows.raw();
    job_.mask = mask.defined() ? static_cast<const uint8_t*>(mask.raw()) : nullptr;
    next_ = end;
    if (rows.numel() > 0) run(job_, rows.device());
  }

  std::unique_ptr<Packed> finish() override {
    FRUGAL_ASSERT(next_ == shape_[0]);
    return std::make_unique<Quantized>(std::move(payload_), job_.layout, shape_, job_.dtype,
                                       rounding_, job_.stream, slope_);
  }

 private:
  Tensor payload_;
  PackJob job_;
  Shape shape_;
  Rounding rounding_;
  double slope_;
  int64_t item_rows_;  // rows of the view in an item of the leading axis
  int64_t next_ = 0;
};

std::unique_ptr<SlicePacker> Quantizer::pack_slices(const Tensor& like,
                                                    const SaveInfo& info) const {
  if (like.device().type == DeviceType::cuda || like.dim() < 2 || like.numel() == 0) return nullptr;
  const GroupLayout layout = layout_of(like.shape(), info.sign != nullptr);
  if (layout.shared || layout.rows % like.size(0) != 0) return nullptr;
  Tensor payload = payload_of(layout, like.device());
  const PackJob job = job_of(layout, payload, like.dtype(), info);
  return std::make_unique<Slices>(std::move(payload), job, like, options_.rounding,
                                  layout.split ? info.sign->slope : 0);
}

UnpackJob Quantized::unpack_job(int64_t begin, int64_t end, void* x) const {
  UnpackJob job;
  job.payload = static_cast<const uint8_t*>(payload_.raw());
  job.x = x;
  job.dtype = dtype_;
  job.layout = layout_;
  job.begin = begin;
  job.end = end;
  job.weights = split_weights(slope_, dtype_, rounding_);
  job.dithered = rounding_ == Rounding::dithered;
  job.stream = stream_;
  return job;
}

void Quantized::read(int64_t begin, int64_t end, void* x, bool sign, const Tensor& affine) const {
  UnpackJob job = unpack_job(begin, end, x);
  if (affine.defined()) job.affine = static_cast<const float*>(affine.raw());
  dispatch(payload_.device(), [&](auto backend) {
    sign            ? split_sign_kernel(backend, job)
    : layout_.split ? split_dequantize_kernel(backend, job)
                    : dequantize_kernel(backend, job);
  });
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
  read(0, layout_.numel, out.raw(), false);
}

Quantized::Range Quantized::range_of(int64_t begin, int64_t end) const {
  FRUGAL_CHECK(shape_.dim() > 0 && begin >= 0 && begin <= end && end <= shape_[0],
               "[quantize] expected a range within the leading axis of {}, got {} to {}", shape_,
               begin, end);
  Range range;
  range.shape = shape_;
  range.shape[0] = end - begin;
  const int64_t row = shape_[0] == 0 ? 0 : layout_.numel / shape_[0];
  range.begin = begin * row;
  range.end = end * row;
  return range;
}

Quantized::Range Quantized::range_of(const Rows& rows) const {
  if (rows.of == 0) return {shape_, 0, layout_.numel};
  return range_of(rows.begin, rows.end);
}

Tensor Quantized::unpack_rows(int64_t begin, int64_t end) const {
  return unpack_range(range_of(begin, end), {});
}

bool Quantized::run(PackedPass& pass) const {
  return std::visit([&](const auto& what) { return run(what, pass); }, pass.what);
}

bool Quantized::run(const PackedPass::Affine& affine, PackedPass& pass) const {
  const Range range = range_of(pass.rows);
  const bool has_kernel = dtype_ == DType::f32 || dtype_ == DType::bf16;
  if (!pass.mask.in_codes || !layout_.split || !has_kernel || affine.a.dtype() != DType::f32 ||
      affine.rectify || pass.out.defined())
    return false;
  const Tensor& residual = affine.residual;
  if (residual.defined() &&
      (payload_.device().type == DeviceType::cuda || residual.dtype() != dtype_ ||
       residual.numel() != range.end - range.begin || !residual.is_contiguous() ||
       range.begin % (8 * layout_.cols) != 0))
    return false;
  FRUGAL_CHECK((affine.a.shape() == Shape{3, layout_.cols}) && affine.a.is_contiguous() &&
                   affine.a.device() == payload_.device(),
               "[quantize] expected a contiguous affine map of shape [3, {}], got {}", layout_.cols,
               describe(affine.a));
  if (!residual.defined()) {
    pass.out = unpack_range(range, affine.a);
    return true;
  }
  CategoryScope scope(Category::workspace);
  pass.out = Tensor::empty(range.shape, dtype_, payload_.device());
  UnpackJob job = unpack_job(range.begin, range.end, pass.out.raw());
  job.affine = affine.a.data<float>();
  job.residual = residual.raw();
  if (payload_.device() == kCpu && range.begin < range.end) split_dequantize_kernel(Cpu{}, job);
  return true;
}

Tensor Quantized::unpack_range(const Range& range, const Tensor& affine) const {
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(range.shape, dtype_, payload_.device());
  if (range.begin == range.end) return out;
  auto* x = static_cast<char*>(out.raw());
  const int64_t block = 8 * layout_.cols, size = static_cast<int64_t>(size_of(dtype_));
  // Kernels begin at a block of 8 rows. The elements before the first whole block go through a
  // buffer.
  int64_t direct = range.begin;
  if (direct % block != 0) {
    direct = std::min(round_up(direct, block), range.end);
    const int64_t from = range.begin / block * block;
    const Tensor staged = Tensor::empty({direct - from}, dtype_, payload_.device());
    read(from, direct, staged.raw(), false, affine);
    if (payload_.device() != kMeta)
      copy_bytes(x, out.device(),
                 static_cast<const char*>(staged.raw()) + (range.begin - from) * size,
                 staged.device(), (direct - range.begin) * size);
  }
  if (direct < range.end) read(direct, range.end, x + (direct - range.begin) * size, false, affine);
  return out;
}

bool Quantized::serves_one_op() const {
  return layout_.split && may_draw_rows(split_weights(slope_, dtype_, rounding_), layout_.bits);
}

Tensor Quantized::unpack_sign() const {
  if (!layout_.split) return {};
  CategoryScope scope(Category::workspace);
  Tensor mask = ops::empty_bitmask(shape_, payload_.device());
  unpack_sign_into(mask);
  return mask;
}

void Quantized::unpack_sign_into(const Tensor& mask) const {
  const int64_t bytes = ops::bitmask_layout(shape_).bytes();
  FRUGAL_CHECK(layout_.split && mask.defined() && mask.dtype() == DType::u8 &&
                   mask.is_contiguous() && mask.numel() == bytes &&
                   mask.device() == payload_.device(),
               "[quantize] expected codes with signs, and {} contiguous bytes on {} for them",
               bytes, payload_.device().str());
  read(0, layout_.numel, mask.raw(), true);
}

Tensor Quantized::unpack_sign_rows(int64_t begin, int64_t end) const {
  const Range range = range_of(begin, end);
  if (!layout_.split) return {};
  CategoryScope scope(Category::workspace);
  Tensor mask = ops::empty_bitmask(range.shape, payload_.device());
  if (range.begin == range.end) return mask;
  const int64_t cols = layout_.cols, block = 8 * cols;
  const ops::BitmaskLayout to = ops::bitmask_layout(range.shape);
  if (to.by_rows && range.begin % block == 0) {
    read(range.begin, range.end, mask.raw(), true);
    return mask;
  }
  // Reads the blocks around the range. Then each bit is moved to its place in the narrowed shape.
  const int64_t from = range.begin / block * block, numel = range.end - range.begin;
  const int64_t until = round_up(range.end, block);
  const Tensor whole = Tensor::empty({(until - from) / 8}, DType::u8, payload_.device());
  read(from, until, whole.raw(), true);
  const MovedBits moved{static_cast<const uint8_t*>(whole.raw()), cols,    range.begin - from,
                        static_cast<uint8_t*>(mask.raw()),        to.cols, numel};
  dispatch(mask.device(), [&](auto backend) { move_bits_kernel(backend, moved, mask.numel()); });
  return mask;
}

}  // namespace frugal::compress
