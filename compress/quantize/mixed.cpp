#include "compress/quantize/mixed.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "compress/quantize/quantize_kernels.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "core/random/random_streams.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"

namespace frugal::compress {
namespace {

constexpr int64_t kSegment = int64_t{64} << 10;  // elements: what is gathered stays in the cache
constexpr int64_t kAlign = 16;
constexpr int64_t kSampleRows = 16;
constexpr int64_t kSignRows = 64;

// Calls f for each segment. Segments run in parallel if there are enough of them to keep all
// threads busy. Otherwise, and on other devices, f itself runs in parallel.
template <class F>
void for_segments(const MixedLayout& layout, Device device, const F& f) {
  const auto n = static_cast<int64_t>(layout.segments.size());
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(static_cast<size_t>(i));
  };
  if (device == kCpu && n >= 4 * num_threads())
    parallel_for(0, n, 1, run);
  else
    run(0, n);
}

// The number of samples from order[first] on that lie one after the other in the tensor.
int64_t neighbours(const std::vector<int32_t>& order, int64_t first) {
  const auto from = order.begin() + first;
  const auto end =
      std::adjacent_find(from, order.end(), [](int32_t a, int32_t b) { return b != a + 1; });
  return end == order.end() ? end - from : end - from + 1;
}

class Mixed final : public Grouped {
 public:
  Mixed(Tensor payload, MixedLayout layout, const Shape& shape, DType dtype, Rounding rounding,
        double slope)
      : payload_(std::move(payload)),
        layout_(std::move(layout)),
        shape_(shape),
        dtype_(dtype),
        rounding_(rounding),
        weights_(split_weights(slope, dtype, rounding)) {}

  Tensor unpack() const override {
    CategoryScope scope(Category::workspace);
    Tensor out = Tensor::empty(shape_, dtype_, payload_.device());
    read(0, layout_.samples.numel, out.raw(), false);
    return out;
  }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    CategoryScope scope(Category::workspace);
    Tensor out = Tensor::empty(rows(begin, end), dtype_, payload_.device());
    read(begin * layout_.samples.stride, end * layout_.samples.stride, out.raw(), false);
    return out;
  }
  bool carries_sign() const override { return layout_.split; }
  bool serves_one_op() const override {
    const auto draws = [&](const MixedLayout::Segment& segment) {
      return may_draw_rows(weights_, segment.layout.bits);
    };
    return layout_.split && std::any_of(layout_.segments.begin(), layout_.segments.end(), draws);
  }
  Tensor unpack_sign() const override {
    if (!layout_.split) return {};
    CategoryScope scope(Category::workspace);
    Tensor mask = ops::empty_bitmask(shape_, payload_.device());
    read(0, layout_.samples.numel, mask.raw(), true);
    return mask;
  }
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override {
    const Shape shape = rows(begin, end);
    const int64_t from = begin * layout_.samples.stride, to = end * layout_.samples.stride;
    const int64_t block = 8 * layout_.samples.cols;
    if (!layout_.split || from % block != 0 || to % block != 0) return {};
    CategoryScope scope(Category::workspace);
    Tensor mask = ops::empty_bitmask(shape, payload_.device());
    read(from, to, mask.raw(), true);
    return mask;
  }
  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }
  const Tensor& payload() const override { return payload_; }
  std::vector<Part> parts() const override {
    std::vector<Part> all;
    for (const MixedLayout::Segment& segment : layout_.segments)
      all.push_back({segment.offset, segment.layout});
    return all;
  }

 private:
  Shape rows(int64_t begin, int64_t end) const {
    FRUGAL_CHECK(begin >= 0 && begin <= end && end <= shape_[0],
                 "[mixed] expected a range within the leading axis of {}, got {} to {}", shape_,
                 begin, end);
    Shape shape = shape_;
    shape[0] = end - begin;
    return shape;
  }

  // Writes elements [from, to) of the tensor, or their signs, to `out`.
  void read(int64_t from, int64_t to, void* out, bool sign) const {
    if (payload_.device() == kMeta || from >= to) return;
    for_segments(layout_, payload_.device(), [&](size_t i) {
      read_segment(layout_.segments[i], from, to, static_cast<char*>(out), sign);
    });
  }

  void run_segment(const MixedLayout::Segment& segment, int64_t begin, int64_t end, void* x,
                   bool sign) const {
    UnpackJob job;
    job.payload = static_cast<const uint8_t*>(payload_.raw()) + segment.offset;
    job.x = x;
    job.dtype = dtype_;
    job.layout = segment.layout;
    job.begin = begin;
    job.end = end;
    job.weights = weights_;
    job.dithered = rounding_ == Rounding::dithered;
    job.stream = segment.stream;
    dispatch(payload_.device(), [&](auto backend) {
      sign            ? split_sign_kernel(backend, job)
      : layout_.split ? split_dequantize_kernel(backend, job)
                      : dequantize_kernel(backend, job);
    });
  }

  void read_segment(const MixedLayout::Segment& segment, int64_t from, int64_t to, char* out,
                    bool sign) const {
    struct Piece {
      int64_t at, count, to;  // elements: in the segment, how many, in `out`
    };
    std::vector<Piece> pieces;
    const Samples& samples = layout_.samples;
    const auto first = layout_.order.begin() + segment.first, last = first + segment.count;
    auto p = std::partition_point(first, last, [&](int32_t n) { return samples.end(n) <= from; });
    while (p != last && samples.begin(*p) < to) {
      auto q = p + 1;
      while (q != last && *q == *(q - 1) + 1) ++q;
      const int64_t begin = std::max(from, samples.begin(*p));
      const int64_t end = std::min(to, samples.end(*(q - 1)));
      pieces.push_back(
          {(p - first) * samples.size() + begin - samples.begin(*p), end - begin, begin - from});
      p = q;
    }
    if (pieces.empty()) return;
    // Kernels begin at a block of 8 rows. A piece that begins elsewhere goes through a buffer.
    const int64_t block = 8 * segment.layout.cols;
    const bool direct = std::all_of(pieces.begin(), pieces.end(),
                                    [&](const Piece& piece) { return piece.at % block == 0; });
    FRUGAL_ASSERT(direct || !sign);
    const auto size = static_cast<int64_t>(size_of(dtype_));
    if (direct) {
      for (const Piece& piece : pieces)
        run_segment(segment, piece.at, piece.at + piece.count,
                    out + (sign ? piece.to / 8 : piece.to * size), sign);
      return;
    }
    CategoryScope scope(Category::workspace);
    const int64_t base = pieces.front().at / block * block;
    const int64_t end = pieces.back().at + pieces.back().count;
    const Tensor staged = Tensor::empty({end - base}, dtype_, payload_.device());
    run_segment(segment, base, end, staged.raw(), false);
    for (const Piece& piece : pieces)
      copy_bytes(out + piece.to * size, staged.device(),
                 static_cast<const char*>(staged.raw()) + (piece.at - base) * size, staged.device(),
                 piece.count * size);
  }

  Tensor payload_;
  MixedLayout layout_;
  Shape shape_;
  DType dtype_;
  Rounding rounding_;
  SplitWeights weights_;
};

// The values of the samples of a segment, one after the other. If they lie so in x, no copy is
// made.
const void* gather(const Tensor& x, int64_t unit, const MixedLayout& layout,
                   const MixedLayout::Segment& segment, Tensor& staged) {
  const auto* from = static_cast<const char*>(x.raw());
  const Samples& samples = layout.samples;
  const int32_t* order = layout.order.data() + segment.first;
  const auto bytes = [unit](int64_t elements) { return elements * unit / 8; };
  if (order[segment.count - 1] - order[0] == segment.count - 1)
    return from + bytes(samples.begin(order[0]));
  CategoryScope scope(Category::workspace);
  staged = Tensor::empty({bytes(segment.layout.numel)}, DType::u8, x.device());
  auto* to = static_cast<char*>(staged.raw());
  for (int64_t i = 0, next; i < segment.count; i = next) {
    next = i + 1;
    while (next < segment.count && order[next] == order[next - 1] + 1) ++next;
    const int64_t begin = samples.begin(order[i]), count = samples.end(order[next - 1]) - begin;
    copy_bytes(to, x.device(), from + bytes(begin), x.device(), bytes(count));
    to += bytes(count);
  }
  return staged.raw();
}

}  // namespace

Samples samples_of(const Shape& shape, bool with_sign) {
  Samples samples;
  samples.numel = shape.numel();
  samples.cols = shape.dim() == 0 ? 1 : shape.back();
  const int64_t leading = shape.dim() == 0 ? 1 : shape[0];
  samples.stride = leading > 0 ? samples.numel / leading : 0;
  const int64_t rows = samples.cols > 0 ? samples.stride / samples.cols : 0;
  samples.each = std::max<int64_t>(ceil_div(leading, kMaxSamples), 1);
  // A vector is one row, whatever its length.
  const int64_t least = rows > 0 ? ceil_div(with_sign ? kSignRows : kSampleRows, rows) : leading;
  samples.each = std::max(samples.each, least);
  if (with_sign && rows > 0)
    samples.each = round_up(samples.each, 8 / std::gcd<int64_t, int64_t>(rows, 8));
  samples.count = std::max<int64_t>(leading / samples.each, 1);
  return samples;
}

MixedQuantizer::MixedQuantizer(const MixedOptions& options) : options_(options) {
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    QuantizeOptions each;
    each.bits = bits;
    each.group = options.group;
    each.rounding = options.rounding;
    each.seed = options.seed;
    uniform_.emplace_back(each);
  }
}

const Quantizer& MixedQuantizer::uniform(int bits) const {
  FRUGAL_CHECK(bits >= 1 && bits <= kMaxBits, "[mixed] expected 1 to 16 bits, got {}", bits);
  return uniform_[static_cast<size_t>(bits - 1)];
}

bool MixedQuantizer::can_carry_sign(const Shape& shape) const {
  return uniform(2).can_carry_sign(shape);
}

int64_t MixedQuantizer::nonfinite_groups() const {
  int64_t sum = nonfinite_.value();
  for (const Quantizer& quantizer : uniform_) sum += quantizer.nonfinite_groups();
  return sum;
}

MixedLayout MixedQuantizer::layout_of(const Shape& shape, std::span<const int> widths,
                                      bool with_sign) const {
  MixedLayout layout;
  layout.samples = samples_of(shape, with_sign);
  const Samples& samples = layout.samples;
  FRUGAL_CHECK(static_cast<int64_t>(widths.size()) == samples.count,
               "[mixed] expected the widths of {} samples of {}, got {}", samples.count, shape,
               widths.size());
  for (size_t n = 0; n < widths.size(); ++n)
    FRUGAL_CHECK(widths[n] >= 1 && widths[n] <= kMaxBits,
                 "[mixed] expected 1 to 16 bits for sample {}, got {}", n, widths[n]);
  layout.order.resize(widths.size());
  std::iota(layout.order.begin(), layout.order.end(), 0);
  const auto width = [&](int32_t n) { return widths[static_cast<size_t>(n)]; };
  std::stable_sort(layout.order.begin(), layout.order.end(),
                   [&](int32_t a, int32_t b) { return width(a) < width(b); });
  // So many samples together make whole row groups.
  const int64_t whole =
      options_.group / std::gcd(options_.group, std::max<int64_t>(samples.rows(), 1));
  const int64_t chunk =
      round_up(std::max<int64_t>(kSegment / std::max<int64_t>(samples.size(), 1), 1), whole);
  layout.split = with_sign;
  const auto count = static_cast<int64_t>(layout.order.size());
  for (int64_t first = 0; first < count;) {
    const int bits = width(layout.order[static_cast<size_t>(first)]);
    int64_t last = first;
    while (last < count && width(layout.order[static_cast<size_t>(last)]) == bits) ++last;
    while (first < last) {
      int64_t take = std::min(chunk, last - first);
      if (last - first - take < chunk / 2) take = last - first;
      // If one sample makes whole row groups, a segment has only samples that are neighbours in the
      // tensor. They are packed without a copy.
      if (whole == 1) take = std::min(take, neighbours(layout.order, first));
      const int32_t end = layout.order[static_cast<size_t>(first + take - 1)];
      // The last sample of the tensor is the last one of its segment, and may be larger.
      const int64_t numel = (take - 1) * samples.size() + samples.end(end) - samples.begin(end);
      const Shape view = samples.cols > 0 && numel % samples.cols == 0
                             ? Shape{numel / samples.cols, samples.cols}
                             : Shape{numel};
      MixedLayout::Segment segment{first,
                                   take,
                                   layout.bytes,
                                   make_layout(view, GroupAxis::column, options_.group, bits),
                                   {}};
      layout.split = layout.split && can_split(segment.layout, view);
      layout.segments.push_back(segment);
      layout.bytes += round_up(segment.layout.bytes(), kAlign);
      first += take;
    }
  }
  if (!layout.split) return layout;
  layout.bytes = 0;
  for (MixedLayout::Segment& segment : layout.segments) {
    segment.layout.split = true;
    segment.offset = layout.bytes;
    layout.bytes += round_up(segment.layout.bytes(), kAlign);
  }
  return layout;
}

int64_t MixedQuantizer::packed_bytes(const Shape& shape, std::span<const int> widths,
                                     bool with_sign) const {
  if (!widths.empty() &&
      std::all_of(widths.begin(), widths.end(), [&](int bits) { return bits == widths.front(); }))
    return uniform(widths.front()).packed_bytes(shape, with_sign);
  return layout_of(shape, widths, with_sign).bytes;
}

std::unique_ptr<Packed> MixedQuantizer::pack(const Tensor& tensor, const SaveInfo& info,
                                             std::span<const int> widths) const {
  FRUGAL_CHECK(tensor.defined() && is_floating(tensor.dtype()) && tensor.is_contiguous(),
               "[mixed] expected a contiguous floating tensor, got {}",
               tensor.defined() ? describe(tensor) : "an undefined one");
  if (info.sign != nullptr) check_sign("mixed", *info.sign, tensor);
  MixedLayout layout = layout_of(tensor.shape(), widths, info.sign != nullptr);
  if (std::all_of(widths.begin(), widths.end(), [&](int bits) { return bits == widths.front(); }))
    return uniform(widths.front()).pack(tensor, info);
  Tensor payload;
  {
    CategoryScope scope(Category::packed);
    payload = Tensor::empty({layout.bytes}, DType::u8, tensor.device());
  }
  const double slope = layout.split ? info.sign->slope : 0;
  const bool runs = tensor.device() != kMeta;
  const int64_t unit = 8 * static_cast<int64_t>(size_of(tensor.dtype()));
  // Each segment draws from a stream of its own, which is also not the stream of a tensor packed at
  // one width.
  for (size_t i = 0; i < layout.segments.size(); ++i)
    layout.segments[i].stream = code_stream(streams::rounding_of_part(options_.seed, i), info);
  if (runs) {
    for_segments(layout, tensor.device(), [&](size_t i) {
      const MixedLayout::Segment& segment = layout.segments[i];
      Tensor staged, staged_mask;
      PackJob job;
      job.x = gather(tensor, unit, layout, segment, staged);
      job.dtype = tensor.dtype();
      job.payload = static_cast<uint8_t*>(payload.raw()) + segment.offset;
      job.layout = segment.layout;
      job.stream = segment.stream;
      job.stochastic = options_.rounding != Rounding::nearest;
      job.nonfinite = &nonfinite_;
      if (layout.split) {
        job.mask =
            static_cast<const uint8_t*>(gather(info.sign->mask, 1, layout, segment, staged_mask));
        job.weights = split_weights(slope, tensor.dtype(), options_.rounding);
      }
      dispatch(tensor.device(), [&](auto backend) {
        layout.split ? split_quantize_kernel(backend, job) : quantize_kernel(backend, job);
      });
      const int64_t bytes = segment.layout.bytes(), left = round_up(bytes, kAlign) - bytes;
      if (tensor.device() == kCpu)
        std::memset(job.payload + bytes, 0, static_cast<size_t>(left));
      else if (left > 0)
        ops::fill(payload.slice(0, segment.offset + bytes, segment.offset + bytes + left), 0);
    });
  }
  return std::make_unique<Mixed>(std::move(payload), std::move(layout), tensor.shape(),
                                 tensor.dtype(), options_.rounding, slope);
}

}  // namespace frugal::compress
