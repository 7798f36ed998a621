// Group quantizer: any width of 1 to 16 bits, stochastic, dithered (both unbiased) or nearest
// rounding.
//
// A tensor is seen as [rows, C], C its last axis, and each group of elements keeps its minimum `lo`
// and a step `scale`; an element x becomes the code q = floor((x - lo) / scale + u) and returns as
// lo + q * scale. How groups are cut and bytes are laid out: compress/quantize/group_layout.h. The
// arithmetic in every detail, so that each backend gives the same bytes:
// compress/quantize/quantize_reference.h.
//
// For |x| <= 1.5e38 in every group (see max_magnitude for the exact limit):
//   |x^ - x| <= scale (stochastic) or scale / 2 (dithered and nearest), plus one rounding of x^ to
//   the dtype;
//   scale <= (max - lo) / (2^bits - 1) * (1 + 2^-7), never below 2^-126, and min - lo <= |min| /
//   128; stochastic: E[x^] = x, up to scale * 2^-9 (u has 256 values) and the rounding of f32, and
//   the variance is f (1 - f) scale^2 with f the fraction of (x - lo) / scale.
// Dithered rounding writes the codes of stochastic rounding, and unpacking, which draws u again,
// takes away what was added: x^ = lo + (q + 1/2 - u) scale. The error is then uniform in +-scale/2
// whatever x is: unbiased up to scale * 2^-9, with variance scale^2 / 12, half of the mean of the
// above, for no byte.
// Values may leave the range of their group, or class, by scale / 2. Groups of one value, and those
// without negative values whose lo is below scale / 2, return as with stochastic rounding, so that
// zeros stay zeros and nothing becomes negative that was not (quantize_reference.h).
// Ref: Roberts 1962; Lipshitz et al. 1992 (subtractive dither).
// Where SaveInfo::sign is set, codes of 2 bits and more on the column axis carry its mask too, bit
// for bit (compress/quantize/quantize_split.h): each of the two classes of a group has a range and
// codes of its own, |x^ - x| is at most the step of the element's class, both are unbiased, and
// metadata takes 8 bytes a group instead of 4. With slope 0 the elements of bit 0 have about a
// tenth of the codes, at least 2. With slope 0 and 2 bits, one in 16 of them stands for all, so its
// error is up to 20 ranges; they are unbiased, too. Rounded to nearest, two codes serve them.
//
// A group that holds NaN, an infinity or a value beyond the limit unpacks to NaN in every element
// and is counted, where the mask stays exact. f64 goes through f32; bf16 and f16 return rounded to
// nearest. In f16, values that were rebuilt beyond +-65504 return as +-65504, the last finite
// numbers. So finite groups return finite in every dtype.
//
// Thread safety: pack and unpack of one codec may run at the same time. Bytes do not depend on the
// number of threads.
#pragma once
#include "autograd/packed_pass.h"
#include "compress/quantize/grouped.h"
#include "compress/quantize/nonfinite_count.h"
#include "compress/quantize/quantize_options.h"

namespace frugal::compress {

// Names one tensor's random words. Distinct (step, seq) of one seed never share a stream.
struct CodeStream {
  uint32_t key[2] = {};
  uint32_t counter[2] = {};
  uint64_t seed = 0, step = 0, seq = 0;  // what they were made of
};
CodeStream code_stream(uint64_t seed, const SaveInfo& info);

// Largest magnitude that a finite group may hold: 240 * 2^120 (3.19e38), half of it at 1 bit, so
// that every rebuilt value is finite in f32 and bf16.
float max_magnitude(int bits);

struct PackJob;
struct UnpackJob;

// A packed tensor: one u8 payload of layout().bytes() bytes, category `packed`.
class Quantized final : public Grouped {
 public:
  // stream: the one that rounded; slope: of SaveInfo::sign, where
  // layout.split.
  Quantized(Tensor payload, const GroupLayout& layout, const Shape& shape, DType dtype,
            Rounding rounding, const CodeStream& stream = {}, double slope = 0)
      : payload_(std::move(payload)),
        layout_(layout),
        shape_(shape),
        dtype_(dtype),
        rounding_(rounding),
        stream_(stream),
        slope_(slope) {}
  Tensor unpack() const override;
  // Into `out`, contiguous, of the packed shape, dtype and device. Errors: anything else.
  void unpack_into(const Tensor& out) const;
  // unpack() from `begin` to before `end` of the leading axis, bit for bit, at the cost of those
  // rows. Errors: a range outside the axis, a scalar.
  Tensor unpack_rows(int64_t begin, int64_t end) const override;

  bool carries_sign() const override { return layout_.split; }
  bool serves_one_op() const override;
  Tensor unpack_sign() const override;
  // unpack_sign() into a contiguous u8 `mask` of as many bytes, on the codes' device. Errors: codes
  // without signs, another mask.
  void unpack_sign_into(const Tensor& mask) const;
  // The mask of unpack_rows(begin, end)'s elements, a bitmask of that shape. Fastest where the
  // range begins at a row of [rows, C] that is a multiple of 8 and has a multiple of 8 of them;
  // else its bits are moved one by one. Undefined if the codes do not carry it. Errors: as
  // unpack_rows.
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override;

  // Takes, where all rows are asked for unless it says otherwise:
  //   Map       functions that have estimates (ops/dense/elementwise.h), where codes carry no sign;
  //             on the CPU, and accounted for on meta, where the variance is known.
  //   Affine    of rows, in f32 and bf16, by the mask that the codes carry; on the CPU with a
  //             residual, too, where rows begin at a block of 8 rows of the view. It costs
  //             what unpack_rows costs. Errors: as unpack_rows, a map of another shape.
  //   Combine, Sums  in groups by column: f32 and bf16, on the CPU of at least 16 columns. They
  //             take rows that begin at a block of 8 rows of the view (Sums not on CUDA); where
  //             `mask.bits` is defined, all rows.
  //   Variance  scale^2 / 6, the mean of f (1 - f) scale^2 over f, or scale^2 / 12 where dithered,
  //             in the tensor's dtype, whose own rounding it leaves out; of any rows. Known for
  //             f32, f64 and bf16, not rounded to nearest, in groups that carry no sign.
  bool run(PackedPass& pass) const override;
  bool knows_variance() const override {
    return rounding_ != Rounding::nearest && !layout_.split && dtype_ != DType::f16;
  }

  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }
  const Tensor& payload() const override { return payload_; }
  std::vector<Part> parts() const override { return {{0, layout_}}; }
  const GroupLayout& layout() const { return layout_; }
  double slope() const { return slope_; }

 private:
  struct Range {
    Shape shape;
    int64_t begin = 0, end = 0;  // elements
  };
  Range range_of(int64_t begin, int64_t end) const;
  Range range_of(const Rows& rows) const;
  // Elements [begin, end) of the view, through `affine` if it is defined, or their bits, to `x`.
  // REQUIRES: `begin` at a block of 8 rows, where no rows are left out of the last block if it is
  // bits.
  void read(int64_t begin, int64_t end, void* x, bool sign, const Tensor& affine = {}) const;
  Tensor unpack_range(const Range& range, const Tensor& affine) const;
  UnpackJob unpack_job(int64_t begin, int64_t end, void* x) const;
  bool run(const PackedPass::Map& map, PackedPass& pass) const;
  bool run(const PackedPass::Affine& affine, PackedPass& pass) const;
  bool run(const PackedPass::Combine& combine, PackedPass& pass) const;
  bool run(const PackedPass::Sums& sums, PackedPass& pass) const;
  bool run(const PackedPass::Variance& variance, PackedPass& pass) const;
  bool map_in_slices(const PackedPass::Map& map, Tensor& out) const;

  Tensor payload_;
  GroupLayout layout_;
  Shape shape_;
  DType dtype_;
  Rounding rounding_;
  CodeStream stream_;
  double slope_;
};

class Quantizer final : public Codec {
  class Slices;

 public:
  explicit Quantizer(const QuantizeOptions& options = {});  // Errors: an option out of range
  // Errors: a tensor that is not contiguous or not floating; a sign whose mask is not the tensor's
  // (ops/dense/bitmask.h) or whose slope is not finite.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  // pack() into a contiguous u8 `payload` of packed_bytes(), on the tensor's device, which the
  // codes then hold. Errors: as pack, and another payload.
  std::unique_ptr<Packed> pack_into(const Tensor& payload, const Tensor& tensor,
                                    const SaveInfo& info) const;
  // Takes, on CUDA and in groups of at most 256 elements: Affine in groups by column, with
  // `rectify` where masks are by rows, and Map of functions that have estimates. Errors: as pack.
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override;
  // Null on CUDA, whose kernels pack whole tensors, and on the row axis, whose groups do not end
  // with a row of the tensor. Errors: slices of another shape, dtype, device or order.
  std::unique_ptr<SlicePacker> pack_slices(const Tensor& like, const SaveInfo& info) const override;
  const QuantizeOptions& options() const { return options_; }
  // Whether the codes of such a tensor would carry SaveInfo::sign: 2 bits or more, the column axis,
  // and 8 rows of [rows, C] for each byte row of the mask.
  bool can_carry_sign(const Shape& shape) const;
  // The bytes that pack() would allocate, without and with a sign given.
  int64_t packed_bytes(const Shape& shape, bool with_sign = false) const;
  // Groups packed so far that held a non-finite value (NaN, infinity or beyond max_magnitude).
  int64_t nonfinite_groups() const { return nonfinite_.value(); }

 private:
  GroupLayout layout_of(const Shape& shape, bool with_sign) const;
  // Errors: see pack().
  void check(const Tensor& tensor, const SaveInfo& info) const;
  // pack() into `payload`, or new memory where it is undefined, with `pass` unless null.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info,
                               const GroupLayout& layout, const PackedPass* pass,
                               Tensor payload = {}) const;
  // What pack() does, before it has values.
  PackJob job_of(const GroupLayout& layout, const Tensor& payload, DType dtype,
                 const SaveInfo& info) const;

  QuantizeOptions options_;
  mutable NonfiniteCount nonfinite_;
};

}  // namespace frugal::compress
