#include "ops/dense/matmul.h"

#include <doctest/doctest.h>

#include "ops/onednn_instructions.h"
#include "tests/error_bounds.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

using frugal_test::largest_bound;

Tensor iota(const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) x.mut<double>()[i] = static_cast<double>(i + 1);
  return cast(x, dtype);
}

Tensor f64(const Tensor& x) { return x.defined() ? cast(x, DType::f64) : x; }

}  // namespace

TEST_CASE("matmul: known products") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor a = iota({2, 3}, dtype), b = iota({3, 2}, dtype);
    CHECK(matmul(a, b).to_vector() == std::vector<double>{22, 28, 49, 64});
    CHECK(matmul(b, a).to_vector() == std::vector<double>{9, 12, 15, 19, 26, 33, 29, 40, 51});
    CHECK(matmul(a, a.transpose(0, 1)).to_vector() == std::vector<double>{14, 32, 32, 77});
    CHECK(matmul(a.transpose(0, 1), a).to_vector() ==
          std::vector<double>{17, 22, 27, 22, 29, 36, 27, 36, 45});
    // Two batches; the right-hand side is one matrix for both.
    const Tensor pair = iota({2, 1, 2}, dtype), one = iota({2, 1}, dtype);
    CHECK(matmul(pair, one).to_vector() == std::vector<double>{5, 11});
    CHECK(matmul(pair, one).shape() == Shape{2, 1, 1});
  }
}

TEST_CASE("matmul: f32 follows the f64 loops, whatever is transposed or broadcast") {
  const std::vector<std::pair<Shape, Shape>> cases = {{{1, 1}, {1, 1}},
                                                      {{1, 7}, {7, 1}},
                                                      {{7, 1}, {1, 7}},
                                                      {{17, 33}, {33, 65}},
                                                      {{64, 64}, {64, 64}},
                                                      {{128, 300}, {300, 10}},
                                                      {{3, 5, 8}, {3, 8, 6}},
                                                      {{3, 5, 8}, {8, 6}},
                                                      {{5, 8}, {3, 8, 6}},
                                                      {{1, 5, 8}, {3, 8, 6}},
                                                      {{4, 1, 5, 8}, {3, 8, 6}},
                                                      {{2, 3, 16, 32}, {2, 3, 32, 16}},
                                                      {{2, 1, 2, 3, 4}, {3, 1, 4, 5}}};
  for (const auto& [left, right] : cases) {
    const Tensor a = normals(left, 1), b = normals(right, 2);
    CAPTURE(describe(a) + " by " + describe(b));
    // These tensors hold equal values that lie transposed in memory.
    const Tensor at = contiguous(a.transpose(-1, -2)).transpose(-1, -2);
    const Tensor bt = contiguous(b.transpose(-1, -2)).transpose(-1, -2);
    const std::vector<double> expected = matmul(f64(a), f64(b)).to_vector();
    for (const Tensor& x : {a, at, with_gaps(a)})
      for (const Tensor& y : {b, bt, with_gaps(b)}) {
        CHECK(error(matmul(x, y), expected) < largest_bound(a.size(-1)));
        CHECK(matmul(x, y).is_contiguous());
      }
    CHECK(error(matmul(f64(a).transpose(-1, -2).transpose(-1, -2), f64(bt)), expected) == 0);
  }
}

TEST_CASE("matmul: views with an offset") {
  const Tensor x = normals({4, 8, 8}, 1);
  const Tensor a = x.select(0, 2), b = x.slice(0, 1, 3);
  CHECK(same_bits(matmul(a, b), matmul(clone(a), clone(b))));
}

TEST_CASE("matmul: empty extents") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    CHECK(matmul(normals({0, 3}, 1, dtype), normals({3, 2}, 2, dtype)).shape() == Shape{0, 2});
    CHECK(matmul(normals({0, 2, 3}, 1, dtype), normals({3, 2}, 2, dtype)).shape() ==
          Shape{0, 2, 2});
    // A sum over nothing is zero.
    CHECK(matmul(normals({2, 0}, 1, dtype), normals({0, 3}, 2, dtype)).to_vector() ==
          std::vector<double>(6, 0.0));
    const Tensor bias = iota({3}, dtype);
    CHECK(linear(normals({2, 0}, 1, dtype), normals({3, 0}, 2, dtype), bias).to_vector() ==
          std::vector<double>{1, 2, 3, 1, 2, 3});
    const Tensor none = normals({0, 4}, 1, dtype), w = normals({3, 4}, 2, dtype);
    CHECK(linear(none, w, bias).shape() == Shape{0, 3});
    CHECK(linear_backward_input(normals({0, 3}, 1, dtype), w).shape() == Shape{0, 4});
    CHECK(linear_backward_weight(normals({0, 3}, 1, dtype), none).to_vector() ==
          std::vector<double>(12, 0.0));
  }
}

TEST_CASE("linear: a known layer") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x = iota({2, 2}, dtype), w = iota({3, 2}, dtype), b = iota({3}, dtype);
    CHECK(linear(x, w, {}).to_vector() == std::vector<double>{5, 11, 17, 11, 25, 39});
    CHECK(linear(x, w, b).to_vector() == std::vector<double>{6, 13, 20, 12, 27, 42});
    const Tensor dy = iota({2, 3}, dtype);
    CHECK(linear_backward_input(dy, w).to_vector() == std::vector<double>{22, 28, 49, 64});
    CHECK(linear_backward_weight(dy, x).to_vector() == std::vector<double>{13, 18, 17, 24, 21, 30});
  }
}

TEST_CASE("linear: f32 follows f64, any number of axes, strided or not") {
  for (const Shape& shape :
       {Shape{9}, Shape{1, 9}, Shape{33, 9}, Shape{2, 3, 4, 9}, Shape{7, 64}}) {
    CAPTURE(shape.str());
    const Tensor x = normals(shape, 1), w = normals({20, shape.back()}, 2), b = normals({20}, 3);
    for (const bool bias : {false, true}) {
      const Tensor add = bias ? b : Tensor();
      const Tensor y = linear(x, w, add);
      CHECK(error(y, linear(f64(x), f64(w), f64(add)).to_vector()) < largest_bound(x.size(-1) + 1));
      CHECK(same_bits(linear(with_gaps(x), with_gaps(w), add), y));
    }
    const Tensor dy = normals(linear(x, w, {}).shape(), 4);
    const Tensor dx = linear_backward_input(dy, w), dw = linear_backward_weight(dy, x);
    CHECK(dx.shape() == x.shape());
    CHECK(dw.shape() == w.shape());
    CHECK(error(dx, linear_backward_input(f64(dy), f64(w)).to_vector()) < largest_bound(w.size(0)));
    CHECK(error(dw, linear_backward_weight(f64(dy), f64(x)).to_vector()) <
          largest_bound(x.numel() / x.size(-1)));
    CHECK(same_bits(linear_backward_weight(with_gaps(dy), with_gaps(x)), dw));
  }
}

TEST_CASE("matmul: the same bits at every run") {
  const Tensor a = normals({4, 70, 300}, 1), b = normals({300, 50}, 2);
  for (int threads = 1; threads <= 4; ++threads) {
    const ThreadsScope scope(threads);
    CHECK(same_bits(matmul(a, b), matmul(a, b)));
  }
}

TEST_CASE("gradients of weights over thousands of rows have the same bits for every thread count") {
#ifdef __x86_64__
  // Elsewhere oneDNN's kernels share other sums, too (findings/onednn_threads.sh).
  if (!onednn::uses_avx512()) return;
#endif
  for (const auto& [rows, dtype] :
       {std::pair<int64_t, DType>{2032, DType::f32}, {5000, DType::f32}, {5000, DType::bf16}})
    for (const auto& [out, in] : {std::pair{1, 8}, {16, 16}, {100, 8}, {64, 100}, {24, 300}}) {
      CAPTURE(rows);
      CAPTURE(out);
      CAPTURE(in);
      const Tensor dy = cast(normals({rows, out}, 1), dtype),
                   x = cast(normals({rows, in}, 2), dtype);
      Tensor one, sum;
      for (const int threads : {1, 2, 3, 4, 8}) {
        const ThreadsScope scope(threads);
        const Tensor dw = linear_backward_weight(dy, x), twice = clone(dw);
        add_linear_backward_weight(twice, dy, x);
        if (threads == 1) {
          one = dw;
          sum = twice;
          CHECK(error(dw, linear_backward_weight(f64(dy), f64(x)).to_vector()) <
                largest_bound(rows));
        }
        CHECK(same_bits(dw, one));
        CHECK(same_bits(twice, sum));
      }
    }
}

TEST_CASE("products of every form have the same bits for every thread count") {
#ifdef __x86_64__
  // Elsewhere oneDNN's kernels share other sums, too (findings/onednn_threads.sh).
  if (!onednn::uses_avx512()) return;
#endif
  struct Form {
    Shape a, b;  // the axes before those of the matrices
    int64_t rows, terms, columns;
  };
  const Form forms[] = {{{}, {}, 64, 4096, 16},   {{}, {}, 40, 2048, 24},
                        {{2}, {2}, 64, 2048, 64}, {{2}, {}, 64, 4096, 32},
                        {{}, {3}, 24, 2100, 32},  {{2, 1}, {1, 3}, 16, 4100, 20},
                        {{4}, {4}, 16, 8192, 16}, {{2}, {2}, 512, 64, 512},
                        {{8}, {8}, 33, 2032, 17}, {{1, 2}, {2, 2}, 1, 5000, 8}};
  for (const Form& form : forms)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool turned_a : {false, true})
        for (const bool turned_b : {false, true}) {
          CAPTURE(form.terms);
          CAPTURE(name_of(dtype));
          CAPTURE(turned_a);
          CAPTURE(turned_b);
          const auto made = [&](Shape shape, int64_t m, int64_t n, bool turned, uint64_t seed) {
            shape.push_back(turned ? n : m);
            shape.push_back(turned ? m : n);
            const Tensor x = cast(normals(shape, seed), dtype);
            return turned ? x.transpose(-1, -2) : x;
          };
          const Tensor a = made(form.a, form.rows, form.terms, turned_a, 1),
                       b = made(form.b, form.terms, form.columns, turned_b, 2);
          const Tensor exact = matmul(f64(a), f64(b));
          Tensor one;
          for (const int threads : {1, 2, 3, 4, 8}) {
            const ThreadsScope scope(threads);
            const Tensor c = matmul(a, b);
            if (threads == 1) {
              one = c;
              const double stored =
                  dtype == DType::bf16 ? frugal_test::rounding_bound(1, dtype) : 0;
              CHECK(error(c, exact.to_vector()) < largest_bound(form.terms) + stored);
            }
            CHECK(same_bits(c, one));
          }
        }
}

TEST_CASE("matmul: meta tensors have shapes") {
  const Tensor a = Tensor::empty({8, 1, 1 << 20, 64}, DType::f32, kMeta);
  const Tensor b = Tensor::empty({3, 64, 1 << 20}, DType::f32, kMeta);
  CHECK(matmul(a, b).shape() == Shape{8, 3, 1 << 20, 1 << 20});
  CHECK(linear(a, Tensor::empty({5, 64}, DType::f32, kMeta), {}).shape() ==
        Shape{8, 1, 1 << 20, 5});
}

TEST_CASE("matmul and linear: errors say what was expected") {
  const Tensor a = normals({2, 3}, 1), w = normals({4, 3}, 2);
  fails("[matmul] expected [..., M, K] and [..., K, N], got [2, 3] and [2, 3]",
        [&] { matmul(a, a); });
  fails("[matmul] expected [..., M, K] and [..., K, N], got [3] and [3, 4]", [&] {
    matmul(normals({3}, 1), normals({3, 4}, 1));
  });
  fails("[matmul] expected shapes that broadcast", [&] {
    matmul(normals({2, 2, 3}, 1), normals({3, 3, 4}, 1));
  });
  fails("[matmul] expected b to be a tensor", [&] { matmul(a, {}); });
  fails("[matmul] expected a of dtype f32, f64 or bf16", [&] { matmul(cast(a, DType::f16), a); });
  fails("[matmul] expected tensors of one dtype and device", [&] {
    matmul(a, normals({3, 2}, 1, DType::f64));
  });
  fails("[linear] expected x [..., 3] for weight [4, 3], got [2, 4]", [&] {
    linear(normals({2, 4}, 1), w, {});
  });
  fails("[linear] expected weight with 2 axes", [&] { linear(a, normals({4, 3, 1}, 1), {}); });
  fails("[linear] expected bias of shape [4]", [&] { linear(a, w, normals({3}, 1)); });
  fails("[linear backward] expected dy [..., O] and weight [O, I], got [2, 3] and [4, 3]",
        [&] { linear_backward_input(a, w); });
  fails("[linear backward] expected dy [..., O] and x [..., I] with the same rows", [&] {
    linear_backward_weight(normals({3, 4}, 1), a);
  });
}

}  // namespace frugal::ops
