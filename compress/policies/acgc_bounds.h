// AC-GC's bounds: how far a saved tensor may be off, so that the gradient's error stays within e^2
// of its squared norm. Then the gradient's expected squared norm grows by at most 1 + e^2 where
// errors are unbiased (stochastic rounding), and by (1 + e)^2 whatever they are.
//
// Each bound B says |d| <= B, where d is the error of one element. There are two ways to count:
//   worst      no d breaks the bound (Cauchy-Schwarz). This is what was published.
//   expected   for independent unbiased d of variance v <= B^2 / 4 (stochastic rounding of step B),
//              the *expected* squared error keeps the bound. Such bounds are larger by about the
//              square root of the number of rows.
//
// Product (dW = sum of x dy). An entry of dW is a sum over positions p: |sum d_p dy_p|^2 <= n B^2
// sum |dy_p|^2, n = rows of dy; each dy meets `fan` elements, each for another entry. So
//   |error of dW|^2 <= n fan B^2 |dy|^2,   with equality where d = B sign(dy), |dy| constant and
//   fan meets all;   expected: <= v fan |dy|^2.
// Published: B^2 = e^2 |dW|^2 / (2 numel gain |dy|^2), with numel gain = n fan where nothing is cut
// off. This is half of what would suffice, so it holds. The speed version of the published code has
// 2 instead of 1/2, so it allows twice the squared error that it promises.
//
// Normalization (dx = w r (dy - mean(dy) - x^ dw / m), x^ = r (x - mean), r = 1/std, m rows, the
// moments kept). d makes x^ off by r d, dw = sum dy x^ by s with |s| <= r B sqrt(m) |dy|, and
//   |error of dx| = |w| r / m |x^ s + r d dw + r d s|
//                <= |w| r^2 B (|dy| + |dw| / sqrt(m) + r B |dy|)
// since |x^| = sqrt(m). All this is by channel. Each of K channels gets e^2 |dx|^2 / K, which makes
// the sum of bits least, and the same share of |dw|^2. Expected, for variance v:
//   |w|^2 r^4 v / m ((1 + r^2 v) |dy|^2 + (1 + 2 / m) dw^2),   and r^2 v |dy|^2 for dw.
//
// Normalization of rows (layer, RMS and group norm: D elements share r and, except in
// RMS norm, a mean; g = w dy and t = sum g x^ over them). d makes x^ off by r d, t by s with |s| <=
// r B |g|_1, and
//   |error of dx| = r / D |x^ s + r d t + r d s| <= r^2 B (|g|_1 + |t| + r B |g|_1) / sqrt(D)
// in a row, since |x^|^2 <= D. Codecs have no bounds by row, so one B holds for all rows:
//   |error of dx| <= a B + c B^2,   a^2 = sum r^4 (|g|_1 + |t|)^2 / D,   c^2 = sum r^6 |g|_1^2 / D
//   |error of dw|^2 <= B^2 sum (sum r |dy|)^2,   the outer sum over channels, the inner over rows,
// the last one with equality where d = B sign(dy). Expected, for variance v:
//   v sum r^4 / D ((1 + r^2 v) |g|^2 + (1 + 2 / D) t^2),   and v sum r^2 |dy|^2 for dw.
// The paper has no bounds for these. Both rules take the ones above.
//
// Any other op. The gradients of activation functions and of products of elements are dy g(x),
// element by element. Then samples of (x, dx / dy) give the largest slope L of g:
//   |error of dx| <= L B |dy|;   expected: L^2 v |dy|^2.
// Otherwise the gradient is taken to be linear in x, and each product of an element of x and one of
// dy counts once, with a factor of at most 1. Matrix products, softmax and losses are within that:
//   |error of dx| <= sqrt(numel) B |dy|;   expected: the relative error of x becomes the
//   gradient's, v = e^2 mean x^2.
// Ref: Evans & Aamodt 2021 (AC-GC).
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "compress/policies/policy_options.h"
#include "core/tensor.h"

namespace frugal::compress::acgc {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// The share of a squared gradient that errors may have. A gradient that is seen in training has
// errors itself. In the worst case they hardly count. Expected errors of e^2 make its square 1 +
// e^2 times as large, so the share is smaller by that. Otherwise errors would allow larger ones at
// each look, without end where e is 1 or more.
double allowed_share(double e, Count count);

// What a squared bound of 1 costs in squared error, for a product. B^2 = e^2 sum |dW|^2 / sum of
// prices, over all readers of the tensor.
double product_price(double rows, double fan, double dy2, Count count);
double published_price(double numel, double gain, double dy2);

// One channel of a normalization.
struct Channel {
  double weight = 1, invstd = 1;
  double dy2 = 0;  // |dy|^2
  double dw = 0;   // the gradient of the weight
  // For the published rule: how many dy are not 0, the largest |x| and the largest dy^2.
  double nonzeros = 0, max_x = 0, max_dy2 = 0;
};
// `allowed`: of the whole dx and dw, e^2 |dx|^2 and e^2 |dw|^2; infinity: does not count.
double normalized_bound2(const Channel& channel, double rows, double channels, double allowed_dx,
                         double allowed_dw, Count count);
// allowed_dx over the price, but at least 2^-16.
double published_normalized_bound2(const Channel& channel, double rows, double channels,
                                   double allowed_dx);
double published_normalized_price(const Channel& channel, double rows, double channels);

// A normalization of rows: its rows (with groups of channels, several for each row), and the
// squared error of dw that errors within a bound of 1 cause at worst, and for each unit of
// variance.
struct Row {
  double invstd = 1;
  double g1 = 0, g2 = 0, t = 0;  // |g|_1, |g|^2 and sum g x^
  double scale = 0;              // what dx is multiplied by; 0: invstd
};
struct RowSums {
  double elements = 1;  // elements of a row
  std::vector<Row> rows;
  double dw_worst = 0, dw_variance = 0;
  std::vector<double> slope;  // by channel: how much larger squared errors of y may be than of x
};
// allowed_dx, allowed_dw: see normalized_bound2().
double normalized_rows_bound2(const RowSums& sums, double allowed_dx, double allowed_dw,
                              Count count);
// x and dy [.., C]; `invstd` and `mean` (undefined: 0) as Use::NormalizedRows says; weight [C] or
// undefined. `normalized`: x is x^ already, and invstd is that of the rows before. The order of
// additions depends on the shapes alone.
struct RowNorm {
  Tensor mean, invstd, weight;
  int64_t groups = 1;
  bool normalized = false;
};
RowSums row_sums(const Tensor& x, const Tensor& dy, const RowNorm& norm);

// The largest slope of g where dx = dy g(x), seen in samples; none if dx / dy is no function of x.
// Tensors of equal shape that ops compute with.
std::optional<double> elementwise_slope(const Tensor& x, const Tensor& dy, const Tensor& dx);
double elementwise_bound2(double slope, double allowed_dx, double dy2, Count count);
double linear_bound2(double numel, double mean_x2, double e2, double dx2, double dy2, Count count);

// Sums of squares, counts of what is not zero and largest magnitudes by channel (last axis); the
// order of additions depends on the shape alone.
struct ChannelSums {
  std::vector<double> squares, nonzeros, max;
  double all() const;  // squares
};
ChannelSums channel_sums(const Tensor& x);

}  // namespace frugal::compress::acgc
