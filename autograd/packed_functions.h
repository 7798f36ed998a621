// Differentiable products with weights that do not train and are in few bits.
#pragma once
#include "autograd/variable.h"
#include "ops/dense/packed_matrix.h"

namespace frugal {

// x [..., I], weight [O, I], bias [O] or undefined -> x weight^T + bias, [..., O]. The weight has
// no gradient. Forward and backward unpack a tile of it at a time (ops/dense/packed_linear.h).
// Saves: nothing beside the packed weight itself, whose bytes outlive the step anyway.
// Recipe: linear, while a ProductRecipes lives (autograd/product_recipes.h).
// Errors: those of ops::packed_linear().
Variable packed_linear(const Variable& x, const ops::PackedMatrix& weight,
                       const Variable& bias = {});

}  // namespace frugal
