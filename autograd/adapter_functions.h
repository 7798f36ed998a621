// The differentiable functions of adapters: small trained matrices beside the frozen weight of a
// layer. f32 and f64; on CUDA f32 and bf16. Formulas: functions/adapters.cpp.
#pragma once
#include "autograd/variable.h"
#include "core/rng.h"

namespace frugal {

// y [..., O], x [..., I], a [r, I], b [O, r] -> y + scale drop(x) a^T b^T [..., O]. A y that is
// moved in, whose bytes nobody else holds, gives them to the result.
// Saves: x (also the function that gave y saves it, at no more cost), drop(x) a^T (r numbers a
// row), a and b.  Recipe: linear, where y has one (autograd/product_recipes.h).
// Errors: shapes that do not fit; those of dropout.
// Ref: Hu et al. 2022 (LoRA), section 4.1; Kalajdzievski 2023 (rsLoRA) for another scale.
struct LowRankOptions {
  double scale = 1;
  double dropout = 0;  // the probability that this function takes a value of x for 0
  RngKey key = {};
};
Variable add_low_rank(Variable y, const Variable& x, const Variable& a, const Variable& b,
                      const LowRankOptions& options = {});

// y [..., O], magnitude [O], norm [O], bias [O] or undefined ->
// y + (magnitude / norm - 1) (y - bias) [..., O]: the rows of the weight that made y get the length
// `magnitude` where they have the length `norm`, which counts as a constant.
// Saves: y - bias, magnitude, norm.
// Errors: shapes that do not fit.
// Ref: Liu et al. 2024 (DoRA), equations 5 and 11.
Variable scale_to_magnitude(const Variable& y, const Variable& magnitude, const Tensor& norm,
                            const Variable& bias = {});

}  // namespace frugal
