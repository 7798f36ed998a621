// The table of differentiable functions: one row each, walked by the tests (gradients, precision,
// layouts, saved bytes, codecs, recipes, checkpoints, failures) and by `frugal bench ops`. A new
// function needs one row here. The test `export` also wants a row of export/lower_*.cpp for it, or
// a reason why it has none.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace frugal::op_table {

// One input, filled with U[lo, hi).
struct Input {
  Shape shape;
  bool parameter = false;  // saved at no cost
  double lo = -1, hi = 1;
};

struct Case {
  std::string name;
  std::vector<Input> inputs = {};
  std::function<Variable(const Variables&)> run = {};
  // The bytes of each tensor that the node keeps for backward, parameters and what is counted as
  // their gradients left out; `element` is the size of the dtype.
  std::function<std::vector<int64_t>(int64_t element)> saved = {};
  bool smooth = true;  // a finite difference approximates the gradient
  // Says the number of the group with whose statistics element i of input 0 is normalized, for a
  // norm whose gradient has a bias (kStatistics). Empty: the gradient has none.
  std::function<int64_t(int64_t i)> normalized_in = {};
};

// What must be refused, and a part of the message.
struct Failure {
  std::function<void()> run;
  std::string message;
};

struct Op {
  std::string name;  // as graph_ops() gives it
  std::vector<Case> cases = {};
  std::vector<Failure> failures = {};
  Case bench = {};  // a case of realistic size; empty name: none
  // Why unbiased codes do not give unbiased gradients; empty: they do, and tests hold it to that.
  std::string bias = {};
  // Under a lossy policy the op keeps another tensor, in which its gradient is linear. If that
  // tensor is kept without loss, the gradients differ by rounding only.
  bool other_form = false;
  double tolerance = 1e-5;  // f32 against f64, relative to the largest element
};

const std::vector<Op>& rows();

// Variables for a case, all requiring grad: values depend on (seed, position) only, equal in every
// dtype. With bf16, parameters are f32.
Variables make_inputs(const Case& c, DType dtype, Device device = kCpu, uint64_t seed = 1);

// ---- families, one file each
void add_dense(std::vector<Op>& rows);
void add_norm(std::vector<Op>& rows);
void add_elementwise(std::vector<Op>& rows);
void add_reduce(std::vector<Op>& rows);
void add_loss(std::vector<Op>& rows);
void add_pool(std::vector<Op>& rows);
void add_shape(std::vector<Op>& rows);
void add_transformer(std::vector<Op>& rows);
void add_graph(std::vector<Op>& rows);
void add_detection(std::vector<Op>& rows);
void add_contrastive(std::vector<Op>& rows);
void add_adapters(std::vector<Op>& rows);

// ---- reasons for Op::bias
inline constexpr const char* kSmooth =
    "smooth in what is kept: corrected to second order by the variance that a codec tells";
inline constexpr const char* kStatistics =
    "of the n products of a normalized group, one is of a value's noise with itself: 1 / n of its "
    "variance stays";  // dx_i = s (z_i - mean(z) - y_i mean(z y)), y with noise e: -s z_i e_i^2 / n
inline constexpr const char* kScores = "probabilities are made again from rounded scores";

// ---- shorthands for rows
using Saved = std::function<std::vector<int64_t>(int64_t)>;
Saved nothing();
Saved elements(std::vector<int64_t> counts);  // tensors of so many elements
Saved bytes(int64_t n);                       // one tensor of so many bytes
Case one(const std::string& name, const Shape& shape, std::function<Variable(const Variable&)> f,
         Saved saved = nothing());  // a case with one input
inline int64_t mask_bytes(int64_t elements) { return (elements + 7) / 8; }
Tensor beside(const Variable& x, const Tensor& values);  // these values on x's device
DType parameter_dtype(const Variable& x);                // f32 beside an x of bf16, else x's dtype
Tensor f32(const Shape& shape);                          // zeros, for failures
Variable leaf(const Shape& shape);                       // zeros that require a gradient

}  // namespace frugal::op_table
