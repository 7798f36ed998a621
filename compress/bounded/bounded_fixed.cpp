#include "compress/bounded/bounded_fixed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/bounded/bounded_fixed_kernels.h"
#include "compress/quantize/quantize_reference.h"

namespace frugal::compress {

using namespace bounded;

namespace {

constexpr int kMaxFraction = 15;

Code published_code(const Range& range, double bound) {
  if (!range.finite) return {0, 0, kRaw};
  const float m = std::max(std::fabs(range.min), std::fabs(range.max));
  if (m == 0) return {0, 0, 0};
  const int width = std::min(published_width(static_cast<double>(m), bound) + 1, kMaxFraction + 1);
  const float step = std::ldexp(m, 1 - width);
  if (!(m < 0x1p125f) || step < 0x1p-126f) return {0, 0, kRaw};
  return {-m, step, width};
}

double code_bits(const Code& code, int64_t values) {
  return static_cast<double>(code.width) * static_cast<double>(values);
}

}  // namespace

int published_width(double max_abs, double bound) {
  const double bits = std::trunc(std::log2(max_abs) - std::log2(bound) - 1);
  // A bound of 0 or infinity makes `bits` infinite. If `bits` is NaN, as for 0 / 0, the width is
  // the largest.
  return 1 + (bits >= 1  ? static_cast<int>(std::min<double>(bits, kMaxFraction))
              : bits < 1 ? 1
                         : kMaxFraction);
}

BoundedFixed::BoundedFixed(const BoundedFixedOptions& options) : options_(options) {
  FRUGAL_CHECK(options.of.max_bits >= 1 && options.of.max_bits <= 16,
               "[bounded_fixed] expected max_bits in 1..16, got {}", options.of.max_bits);
  FRUGAL_CHECK(options.of.min_bits >= 0 && options.of.min_bits <= options.of.max_bits,
               "[bounded_fixed] expected min_bits in 0..{}, got {}", options.of.max_bits,
               options.of.min_bits);
}

std::unique_ptr<bounded::Payload> BoundedFixed::pack(const Tensor& tensor, const ErrorBound& bound,
                                                     const SaveInfo& info) const {
  const Tensor x = checked("bounded_fixed", tensor, bound);
  const View view = make_view(tensor.shape());
  const int64_t head = view.channels * kCodeBytes;
  if (x.device() == kMeta)
    return std::make_unique<PackedFixed>(meta_payload(head, view.numel, options_.of),
                                         tensor.shape(), tensor.dtype(), view, std::vector<Code>(),
                                         false);
  const auto* values = x.data<float>();

  std::vector<Range> ranges;
  dispatch(x.device(),
           [&](auto backend) { ranges = ranges_kernel(backend, values, view, options_.zeros); });
  std::vector<Code> codes, others;
  double plain = 0, masked = static_cast<double>(view.numel + 64 * view.blocks());
  for (int64_t c = 0; c < view.channels; ++c) {
    const Range& range = ranges[static_cast<size_t>(c)];
    const double limit = bound.at(c);
    auto code_of = [&](float min, float max) {
      if (!range.finite) return Code{0, 0, kRaw};
      return options_.rule == WidthRule::published ? published_code(range, limit)
                                                   : tight_code(min, max, limit, options_.of);
    };
    codes.push_back(range.values == 0 ? Code{} : code_of(range.min, range.max));
    plain += code_bits(codes.back(), range.values);
    if (!options_.zeros) continue;
    const int64_t nonzero = range.values - range.zeros;
    others.push_back(nonzero == 0 ? Code{} : code_of(range.nonzero_min, range.nonzero_max));
    masked += code_bits(others.back(), nonzero);
  }
  const bool with_masks = options_.zeros && masked < plain;
  if (with_masks) codes = std::move(others);

  const CodeStream stream = code_stream(options_.of.seed, info);
  const bool stochastic = options_.of.rounding == Rounding::stochastic;
  const FixedCodes how{view, make_lanes(view, codes), with_masks, stochastic ? &stream : nullptr};
  std::vector<int64_t> ends;
  if (with_masks)
    dispatch(x.device(), [&](auto backend) { ends = masked_sizes_kernel(backend, values, how); });
  int64_t size = how.head() + (with_masks ? 0 : view.blocks() * how.lanes.block_bytes);
  for (int64_t& end : ends) end = size += end;
  std::vector<uint8_t> first(static_cast<size_t>(how.head()));
  write_codes(codes, first.data());
  if (with_masks) std::memcpy(first.data() + head, ends.data(), ends.size() * 8);
  Tensor payload = packed_bytes(size, x.device());
  dispatch(x.device(),
           [&](auto backend) { pack_fixed_kernel(backend, values, how, first, payload); });
  return std::make_unique<PackedFixed>(std::move(payload), tensor.shape(), tensor.dtype(), view,
                                       std::move(codes), with_masks);
}

void PackedFixed::decode(int64_t begin, int64_t end, float* out) const {
  const FixedCodes how{view_, make_lanes(view_, codes_), masked_};
  dispatch(payload().device(),
           [&](auto backend) { unpack_fixed_kernel(backend, payload(), how, begin, end, out); });
}

}  // namespace frugal::compress
