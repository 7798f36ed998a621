#include "autograd/functions.h"
#include "bench/op_table/op_table.h"

namespace frugal::op_table {
namespace {

enum class Form { plain, relu, add_relu };

BatchNormStats stats_like(const Variable& x) {
  const int64_t c = x.size(-1);
  CategoryScope scope(Category::parameter);
  return {Tensor::full({c}, 0.1, parameter_dtype(x), x.device()),
          Tensor::full({c}, 0.9, parameter_dtype(x), x.device())};
}

Case norm(const std::string& name, const Shape& x, Form form, bool training = true,
          bool affine = true) {
  BatchNormOptions options;
  options.training = training;
  const int64_t c = x.back(), n = x.numel();
  Case row{name, {{x, false, -1, 2}}, {}, {}};
  if (affine) {
    row.inputs.push_back({{c}, true, 0.5, 1.5});
    row.inputs.push_back({{c}, true});
  }
  if (form == Form::add_relu) row.inputs.push_back({x});
  row.run = [=](const Variables& v) {
    const Variable weight = affine ? v[1] : Variable(), bias = affine ? v[2] : Variable();
    if (form == Form::plain) return batch_norm(v[0], weight, bias, stats_like(v[0]), options);
    if (form == Form::relu) return batch_norm_relu(v[0], weight, bias, stats_like(v[0]), options);
    return batch_norm_add_relu(v[0], v.back(), weight, bias, stats_like(v[0]), options);
  };
  if (training) row.normalized_in = [c](int64_t i) { return i % c; };
  row.saved = [=](int64_t e) {
    std::vector<int64_t> bytes{n * e, c * e, c * e};  // x, mean, invstd
    if (form != Form::plain) bytes.push_back(mask_bytes(n));
    return bytes;
  };
  return row;
}

std::vector<Failure> failures() {
  return {{[] {
             batch_norm(leaf({1, 3}), {}, {}, {});
           },
           "[batch_norm] expected at least 2 rows"},
          {[] {
             batch_norm(leaf({0, 3}), {}, {}, {});
           },
           "[batch_norm] expected at least 2 rows"},
          {[] {
             batch_norm(leaf({4, 3}), leaf({2}), {}, {});
           },
           "[batch_norm] expected weight of shape [3]"},
          {[] { batch_norm(leaf({3}), {}, {}, {}); }, "[batch_norm] expected x [..., C]"}};
}

}  // namespace

void add_norm(std::vector<Op>& rows) {
  const size_t first = rows.size();
  rows.push_back(
      {.name = "batch_norm",
       .cases = {norm("images", {2, 3, 4, 5}, Form::plain), norm("rows", {7, 3}, Form::plain),
                 norm("running statistics", {2, 2, 2, 3}, Form::plain, false),
                 norm("no affine", {9, 4}, Form::plain, true, false)},
       .failures = failures(),
       .bench = norm("64 channels", {32, 32, 32, 64}, Form::plain)});
  rows.push_back({.name = "batch_norm_relu",
                  .cases = {norm("rows by eight", {2, 2, 4, 5}, Form::relu),
                            norm("odd rows", {7, 3}, Form::relu),
                            norm("running statistics", {8, 3}, Form::relu, false)},
                  .bench = norm("64 channels", {32, 32, 32, 64}, Form::relu)});
  rows.push_back({.name = "batch_norm_add_relu",
                  .cases = {norm("rows by eight", {2, 2, 4, 17}, Form::add_relu),
                            norm("odd rows", {7, 3}, Form::add_relu)},
                  .failures = {{[] {
                                  batch_norm_add_relu(leaf({4, 3}), leaf({3, 3}), {}, {}, {});
                                },
                                "[batch_norm] expected the residual of shape [4, 3]"}},
                  .bench = norm("64 channels", {32, 32, 32, 64}, Form::add_relu)});
  for (size_t i = first; i < rows.size(); ++i) rows[i].bias = kStatistics;
}

}  // namespace frugal::op_table
