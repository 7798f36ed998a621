// The differentiable functions. Images are NHWC, weights [K, R, S, C/groups]. Tensors are f32, bf16
// or, on the CPU alone, f64.
// Each function's formula, saved bytes and recipe stand in its .cpp (autograd/functions/), where
// forward and backward are side by side.
#pragma once
#include <optional>
#include <vector>

#include "autograd/variable.h"
#include "core/rng.h"
#include "ops/options.h"

namespace frugal {

// ---- dense (functions/conv.cpp, functions/matmul.cpp)
// x [N, H, W, C], weight [K, R, S, C/groups], bias [K] or undefined -> [N, OH, OW, K].  Saves: x,
// weight. A large x that is moved in, that nobody else holds and of which a 1x1 window meets at
// most a quarter of the pixels is released before y is made; only these pixels are kept until then.
Variable conv2d(Variable x, const Variable& weight, const Variable& bias,
                const Conv2dOptions& options = {});
// x [N, H, W, C], weight [C, R, S, K/groups] (PyTorch's conv_transpose2d: C in, K out) -> [N, OH,
// OW, K].  Saves: x, weight.
Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose2dOptions& options = {});
// x [..., I], weight [O, I], bias [O] or undefined -> [..., O].  Saves: x, weight.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});
// a [..., M, K], b [..., K, N], batch axes broadcast -> [..., M, N].  Saves: a, b.
Variable matmul(const Variable& a, const Variable& b);

// ---- normalisation (functions/batch_norm.cpp): x [..., C] over all rows, weight and bias [C].
// In training mode running_mean and running_var [C] are updated in place (unbiased variance),
// unless recomputing(). Saves: x, weight, bias, mean and 1/std (2C numbers), and for the relu forms
// the sign of y, 1 bit each. Recipe: linear, y = sign * (weight * (x - mean) * invstd + bias
// [+ residual]), in the residual form where the residual has one too.
struct BatchNormStats {
  Tensor running_mean, running_var;  // [C]
};
// An x that is moved in, whose bytes nobody else holds, gives them to y where a policy packs it in
// slices.
Variable batch_norm(Variable x, const Variable& weight, const Variable& bias,
                    const BatchNormStats& stats, const BatchNormOptions& options = {});
Variable batch_norm_relu(Variable x, const Variable& weight, const Variable& bias,
                         const BatchNormStats& stats, const BatchNormOptions& options = {});
// A residual that is moved in, whose bytes nobody else holds, gives them to y.
Variable batch_norm_add_relu(const Variable& x, Variable residual, const Variable& weight,
                             const Variable& bias, const BatchNormStats& stats,
                             const BatchNormOptions& options = {});

// batch_norm_add_relu() of a convolution, with the same bits and saves. A large output of a
// convolution with few products is made in slices, twice, and is never whole: once for the
// statistics and once for y. That needs a residual as above and a policy that packs in slices.
// Otherwise an x that is moved in is released before the norm runs.
struct Conv2dCall {
  Variable x;
  const Variable &weight, &bias;
  const Conv2dOptions& options;
};
Variable conv2d_batch_norm_add_relu(Conv2dCall conv, Variable residual, const Variable& weight,
                                    const Variable& bias, const BatchNormStats& stats,
                                    const BatchNormOptions& options = {});

// ---- elementwise (functions/elementwise.cpp). Functions of two tensors broadcast. What stands in
// parentheses after "or" is saved where a policy may make it lossy.
Variable add(const Variable& a, const Variable& b);   // Saves: nothing
Variable sub(const Variable& a, const Variable& b);   // Saves: nothing
Variable mul(const Variable& a, const Variable& b);   // Saves: a, b
Variable div(const Variable& a, const Variable& b);   // Saves: a, b (or 1 / b, a / b^2)
Variable scale(const Variable& x, double factor);     // Saves: nothing
Variable add_scalar(const Variable& x, double term);  // Saves: nothing
Variable neg(const Variable& x);                      // Saves: nothing
Variable exp(const Variable& x);                      // Saves: y
Variable log(const Variable& x);                      // Saves: x (or dy/dx)
Variable sqrt(const Variable& x);                     // Saves: y (or dy/dx)
Variable sigmoid(const Variable& x);                  // Saves: y (or dy/dx)
Variable tanh(const Variable& x);                     // Saves: y (or dy/dx)
Variable relu(const Variable& x);  // Saves: the sign, 1 bit. Recipe: linear, where x has one
Variable leaky_relu(const Variable& x, double slope = 0.01);  // Saves, recipe: as relu
Variable gelu(const Variable& x, Gelu kind = Gelu::exact);    // Saves: x. Recipe: yes, not linear
Variable silu(const Variable& x);                             // Saves: x. Recipe: yes, not linear
Variable clamp(const Variable& x, double lo, double hi);      // Saves: the in-range mask, 1 bit
// Sets elements to 0 with probability p and scales the others by 1/(1-p). Saves: the key, 16 bytes.
// Recipe: linear, where x has one.
Variable dropout(const Variable& x, double p, RngKey key);

// ---- reductions (functions/reduce.cpp); empty `axes`: all axes. Saves: nothing; max saves
// indices.
Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keep_dim = false);
Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keep_dim = false);
Variable max(const Variable& x, int axis, bool keep_dim = false);

// ---- softmax and losses (functions/softmax.cpp, functions/loss.cpp). What stands in parentheses
// after "and" or "or" is saved where a policy may make it lossy.
Variable softmax(const Variable& x, int axis = -1);      // Saves: y (and y^2)
Variable log_softmax(const Variable& x, int axis = -1);  // Saves: y (or e^y)
// logits [..., C], target [...] i64, row_weights like target or undefined -> scalar: the (weighted)
// mean or sum over the targets that are not ignored. Saves: target, row_weights, the logits and one
// log-sum-exp a row; under a lossy policy the probabilities instead of the last two. Backward
// writes over saved logits that nobody else holds. Probabilities take the place of logits that a
// caller moves in and nobody else holds.
Variable cross_entropy(Variable logits, const Tensor& target,
                       const CrossEntropyOptions& options = {}, const Tensor& row_weights = {});
// cross_entropy(linear(x, weight, bias), target) of x [..., I], weight [C, I], bias [C] or
// undefined and target [...] i64. It makes `rows_at_once` rows of logits at a time, so that the
// logits are never all in memory. `top` [rows] i64 is the class of each row's highest logit. Saves:
// the gradients of x, weight and bias, which the forward pass makes, and the number of rows that
// count; neither x nor weight. Gradients of parameters are counted as gradients. Errors: shapes
// that do not fit; no rows; rows_at_once below 1; those of cross_entropy. Ref: Hsu et al. 2024
// (Liger Kernel), which also makes gradients together with the loss.
struct LinearCrossEntropy {
  Variable loss;
  Tensor top;
};
// With a `soft_cap` above 0, a product z gives the logit soft_cap tanh(z / soft_cap).
LinearCrossEntropy linear_cross_entropy(const Variable& x, const Variable& weight,
                                        const Variable& bias, const Tensor& target,
                                        const CrossEntropyOptions& options, int64_t rows_at_once,
                                        double soft_cap = 0);
// logits and target of one shape, row_weights like its leading axis or undefined -> scalar: the
// (weighted) mean or sum of -t log sigmoid(x) - (1 - t) log sigmoid(-x). Saves: d(loss)/d(logits).
Variable binary_cross_entropy(const Variable& logits, const Tensor& target,
                              const BinaryCrossEntropyOptions& options = {},
                              const Tensor& row_weights = {});
// logits and target of one shape [..., C] -> scalar: the mean cross-entropy with the shares of the
// classes in target, over the rows whose first share is not below 0. Saves: d(loss)/d(logits).
Variable soft_cross_entropy(const Variable& logits, const Tensor& target,
                            double label_smoothing = 0);
Variable mse_loss(const Variable& x, const Variable& target);  // scalar mean. Saves: the difference

// ---- pooling (functions/pool.cpp), NHWC
// Saves: the index, of which an element has 1 bit in windows of at most 2 cells, 2 in those of at
// most 4, 4 in those of at most 16, 8 in those of at most 256, and 32 in larger ones.
Variable max_pool2d(const Variable& x, const Pool2dOptions& options);
Variable avg_pool2d(const Variable& x, const Pool2dOptions& options);           // Saves: nothing
Variable adaptive_avg_pool2d(const Variable& x, int64_t out_h, int64_t out_w);  // Saves: nothing
Variable global_avg_pool2d(const Variable& x);  // [N, H, W, C] -> [N, C]. Saves: nothing
// Images of another size (functions/interpolate.cpp). Saves: nothing. Recipe: linear, where x has
// one.
Variable interpolate(const Variable& x, int64_t out_h, int64_t out_w,
                     const InterpolateOptions& options = {});

// ---- shape (functions/shape.cpp). Saves: nothing. reshape and transpose give views where that is
// possible.
Variable reshape(const Variable& x, const Shape& shape);  // one extent may be -1
Variable transpose(const Variable& x, int a, int b);
Variable slice(const Variable& x, int axis, int64_t begin, int64_t end);
Variable concat(const Variables& xs, int axis);
Variable pad(const Variable& x, const std::vector<std::pair<int64_t, int64_t>>& padding,
             double value = 0);                 // per axis
Variable cast(const Variable& x, DType dtype);  // x itself if it has that dtype
// x [N, H, W, C] -> every stride-th pixel, with zero channels before and after
// (functions/shortcut.cpp). Saves: nothing
Variable subsample_pad(const Variable& x, int64_t stride, int64_t before, int64_t after);

}  // namespace frugal
