#include "autograd/contrastive_functions.h"

#include "bench/op_table/op_table.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {
namespace {

// Rows that stand beside x, of the dtype of parameters.
Tensor rows_beside(const Variable& x, int64_t rows, uint64_t seed) {
  const Tensor values = Tensor::randn({rows, x.size(1)}, {seed, 0});
  return beside(x, ops::cast(values, parameter_dtype(x)));
}

Case cosine(const std::string& name, int64_t rows, int64_t width) {
  return {
      .name = name,
      .inputs = {{{rows, width}}},
      .run = [=](const Variables& v) { return negative_cosine(v[0], rows_beside(v[0], rows, 7)); },
      .saved = elements({rows * width})};
}

Case contrast(const std::string& name, int64_t rows, int64_t width, int64_t queue,
              double temperature, int64_t rows_at_once) {
  return {.name = name,
          .inputs = {{{rows, width}}},
          .run =
              [=](const Variables& v) {
                return info_nce(v[0], unit_rows(rows_beside(v[0], rows, 8)),
                                unit_rows(rows_beside(v[0], queue, 9)), temperature, rows_at_once)
                    .loss;
              },
          .saved = elements({rows * width})};
}

}  // namespace

void add_contrastive(std::vector<Op>& rows) {
  rows.push_back({.name = "negative_cosine",
                  .cases = {cosine("rows", 3, 5), cosine("one row", 1, 4)},
                  .failures = {{[] {
                                  negative_cosine(leaf({2, 3}), f32({3, 2}));
                                },
                                "[negative_cosine] expected the target of shape [2, 3]"},
                               {[] { negative_cosine(leaf({2}), f32({2})); },
                                "[negative_cosine] expected x with 2 axes"},
                               {[] {
                                  negative_cosine(leaf({0, 2}), f32({0, 2}));
                                },
                                "[negative_cosine] expected at least one row and column"},
                               {[] {
                                  negative_cosine(leaf({2, 3}), Tensor::zeros({2, 3}, DType::i64));
                                },
                                "[negative_cosine] expected the target of dtype f32"}},
                  .bench = cosine("256 x 2048", 256, 2048)});
  rows.push_back({.name = "info_nce",
                  .cases = {contrast("all rows at once", 3, 4, 5, 0.2, 8),
                            contrast("two rows at once", 5, 4, 3, 0.5, 2),
                            contrast("a queue of one", 2, 3, 1, 1, 1)},
                  .failures = {{[] {
                                  info_nce(leaf({2, 3}), f32({3, 2}), f32({4, 3}), 1);
                                },
                                "[info_nce] expected the keys of shape [2, 3]"},
                               {[] {
                                  info_nce(leaf({2, 3}), f32({2, 3}), f32({4, 2}), 1);
                                },
                                "[info_nce] expected a queue of at least one row of 3 values"},
                               {[] {
                                  info_nce(leaf({2, 3}), f32({2, 3}), f32({0, 3}), 1);
                                },
                                "[info_nce] expected a queue of at least one row of 3 values"},
                               {[] {
                                  info_nce(leaf({2, 3}), f32({2, 3}), f32({4, 3}), 0);
                                },
                                "[info_nce] expected a temperature above 0"},
                               {[] {
                                  info_nce(leaf({2, 3}), f32({2, 3}), f32({4, 3}), 1, 0);
                                },
                                "[info_nce] expected at least one row at once"}},
                  .bench = contrast("256 x 128, queue 4096", 256, 128, 4096, 0.2, 256)});
}

}  // namespace frugal::op_table
