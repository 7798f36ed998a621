// Elementwise work on a saved tensor that a codec may do in the pass that packs or unpacks it, so
// that nobody reads or writes the tensor once more. Results are those of the op's own kernels.
#pragma once
#include <optional>
#include <variant>

#include "autograd/saved_tensor.h"
#include "ops/dense/functors.h"

namespace frugal {

// y of x, [..., C], while x is packed.
struct MapForward {
  // y = function(x); without one z = (x - affine[0]) affine[1] + affine[2] [+ residual] by channel,
  // and with relu 0 where that is <= 0.
  std::optional<ops::Unary> function;
  Tensor affine = {};    // [3, C] f32
  Tensor residual = {};  // like x, contiguous
  bool relu = false;
  Tensor y = {};     // where y goes, contiguous, may be the residual; undefined: is made
  Tensor mask = {};  // of relu (ops/dense/bitmask.h): is made where the codes do not carry it
};

// Where a pass finds the mask of x's elements: in the codes, or of the layout by rows; else all
// bits are set.
struct PassMask {
  bool in_codes = false;
  Tensor bits = {};
};

// out = f(x), or with dy, contiguous, dy f'(x); less what the variance of x adds to it, where that
// is known (ops/dense/elementwise.h).
struct UnaryPass {
  ops::Unary function;
  Tensor dy = {};
  Tensor out = {};  // like x, contiguous, may be dy; undefined: is made
};

// What ops::gradient_sums_kernel does for all rows.
struct NormSums {
  Tensor dy, mean;
  Tensor g = {};  // where the masked dy goes, may be dy; undefined: nowhere
  Tensor partial;
  PassMask mask = {};
};

// What ops::input_gradient_kernel does, for items from `begin` to before `end` of the leading axis:
// dy and dx are of these, and so are bits.
struct NormGradient {
  Tensor dy, affine, dx;
  int64_t begin = 0, end = 0;
  PassMask mask = {};
};

struct PackedPass {
  std::variant<UnaryPass, NormSums, NormGradient> what;
};

// f(x), or dy f'(x) to dx (undefined: made), from the codes of x; undefined where it is to be
// unpacked.
Tensor unary_of_codes(const SavedTensor& x, ops::Unary f);
Tensor unary_gradient_of_codes(const SavedTensor& x, ops::Unary f, const Tensor& dy,
                               const Tensor& dx = {});

}  // namespace frugal
