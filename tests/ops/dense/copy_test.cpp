#include "ops/dense/copy.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("copy: contiguous gives a contiguous tensor back, and copies any other") {
  const Tensor x = normals({3, 4}, 1);
  CHECK(contiguous(x).storage()->id() == x.storage()->id());
  const Tensor t = x.transpose(0, 1), c = contiguous(t);
  CHECK(c.is_contiguous());
  CHECK(c.storage()->id() != x.storage()->id());
  CHECK(c.to_vector() == t.to_vector());
  CHECK(clone(x).storage()->id() != x.storage()->id());
  CHECK(same_bits(clone(x), x));
}

TEST_CASE("copy: every layout, of sizes with and without remainders") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const int64_t n : {1, 2, 7, 16, 33, 70}) {
      CAPTURE(n);
      const Tensor x = cast(normals({2, n, 3, n + 1}, 2, DType::f32, 40, 100), dtype);
      const std::vector<std::vector<int>> orders = {{0, 2, 1, 3}, {3, 2, 1, 0}, {0, 3, 1, 2},
                                                    {2, 0, 3, 1}, {0, 1, 3, 2}, {1, 3, 0, 2}};
      for (const std::vector<int>& order : orders) {
        const Tensor view = x.permute(order);
        CHECK(contiguous(view).to_vector() == view.to_vector());
        // The other way: into a strided output.
        const Tensor out = Tensor::zeros(x.shape(), dtype), source = contiguous(view);
        copy_into(out.permute(order), source);
        CHECK(same_bits(out, x));
      }
      CHECK(same_bits(contiguous(with_gaps(x)), x));
      const Tensor part = x.slice(1, n / 2, n).slice(3, 1, n + 1);
      CHECK(contiguous(part).to_vector() == part.to_vector());
    }
}

TEST_CASE("copy: strides of 0 repeat") {
  const Tensor x = Tensor::from<float>({1, 2, 3}, {3});
  const Tensor rows = contiguous(x.as_strided({2, 3}, {0, 1}, 0));
  const Tensor columns = contiguous(x.as_strided({3, 2}, {1, 0}, 0));
  CHECK(rows.to_vector() == std::vector<double>{1, 2, 3, 1, 2, 3});
  CHECK(columns.to_vector() == std::vector<double>{1, 1, 2, 2, 3, 3});
}

TEST_CASE("copy: only the elements of the view are written") {
  const Tensor out = Tensor::full({4, 5}, 9);
  copy_into(out.slice(0, 1, 3).slice(1, 2, 4), Tensor::zeros({2, 2}));
  CHECK(out.to_vector() == std::vector<double>{9, 9, 9, 9, 9, 9, 9, 0, 0, 9,  //
                                               9, 9, 0, 0, 9, 9, 9, 9, 9, 9});
}

TEST_CASE("copy: casts between all dtypes") {
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      const Tensor x = cast(Tensor::from<int64_t>({0, 1, 2, 100}, {4}), from);
      const std::vector<double> expected = from == DType::bool_ || to == DType::bool_
                                               ? std::vector<double>{0, 1, 1, 1}
                                               : std::vector<double>{0, 1, 2, 100};
      CHECK(cast(x, to).dtype() == to);
      CHECK(cast(x, to).to_vector() == expected);
    }
}

TEST_CASE("copy: casts truncate towards 0, round to nearest, and keep NaN and infinity") {
  const Tensor x = Tensor::from<double>({-1.9, 1.9, 0.25}, {3});
  CHECK(cast(x, DType::i32).to_vector() == std::vector<double>{-1, 1, 0});
  CHECK(cast(x, DType::bool_).to_vector() == std::vector<double>{1, 1, 1});
  CHECK(cast(Tensor::full({}, 1 + 0x1p-8 + 0x1p-9), DType::bf16).item() == 1 + 0x1p-7);
  CHECK(cast(Tensor::full({}, 1 + 0x1p-11 + 0x1p-12), DType::f16).item() == 1 + 0x1p-10);
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16}) {
    const Tensor odd = cast(Tensor::from<float>({NAN, INFINITY, -INFINITY}, {3}), dtype);
    CHECK(std::isnan(odd.item(0)));
    CHECK(odd.item(1) == kInf);
    CHECK(odd.item(2) == -kInf);
  }
  const Tensor same = Tensor::zeros({2});
  CHECK(cast(same, DType::f32).storage()->id() == same.storage()->id());
  CHECK(cast(x.as_strided({2}, {2}, 0), DType::f32).to_vector()[1] == 0.25);
}

TEST_CASE("copy: casts to integers give the nearest value that the integer has, and 0 for NaN") {
  const Tensor x = Tensor::from<double>({-1e300, -300, -0.5, 255.5, 1e300, NAN}, {6});
  for (const DType from : {DType::f64, DType::f32}) {
    CAPTURE(name_of(from));
    CHECK(cast(cast(x, from), DType::u8).to_vector() == std::vector<double>{0, 0, 0, 255, 255, 0});
    CHECK(cast(cast(x, from), DType::i32).to_vector() ==
          std::vector<double>{-0x1p31, -300, 0, 255, 0x1p31 - 1, 0});
    CHECK(cast(cast(x, from), DType::i64).to_vector() ==  // f64 rounds 2^63 - 1 to 2^63
          std::vector<double>{-0x1p63, -300, 0, 255, 0x1p63, 0});
  }
}

TEST_CASE("copy: fills of integers are casts of the number") {
  for (const double value : {-1e300, -300.5, 255.5, 1e300, static_cast<double>(NAN)})
    for (const DType dtype : {DType::u8, DType::i32, DType::i64}) {
      CAPTURE(value);
      CAPTURE(name_of(dtype));
      const Tensor out = Tensor::zeros({2, 2}, dtype);
      fill(out.slice(1, 0, 1), value);
      CHECK(out.item(2) == cast(Tensor::from<double>({value}, {1}), dtype).item());
      CHECK(out.item(1) == 0);
    }
}

TEST_CASE("copy: fill writes every dtype and layout") {
  for (const DType dtype : kAllTypes) {
    const Tensor out = Tensor::zeros({3, 4}, dtype);
    fill(out.slice(1, 1, 3), 1);
    CHECK(out.to_vector() == std::vector<double>{0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0});
  }
}

TEST_CASE("copy: empty tensors, scalars and meta") {
  CHECK(contiguous(Tensor::zeros({0, 3}).transpose(0, 1)).shape() == Shape{3, 0});
  CHECK(cast(Tensor::full({}, 3), DType::i64).item() == 3);
  const Tensor meta = Tensor::empty({4, 5}, DType::f32, kMeta);
  CHECK(contiguous(meta.transpose(0, 1)).is_contiguous());
  CHECK(cast(meta, DType::bf16).nbytes() == 40);
  fill(meta, 1);
}

TEST_CASE("copy: mistakes are named") {
  CHECK_THROWS_WITH_AS(copy_into(Tensor::zeros({2}), Tensor::zeros({3})),
                       doctest::Contains("[copy] expected the source of shape [2]"), Error);
  CHECK_THROWS_WITH_AS(copy_into(Tensor::zeros({2}), Tensor::empty({2}, DType::f32, kMeta)),
                       doctest::Contains("[copy] expected one device"), Error);
  CHECK_THROWS_AS(cast(Tensor(), DType::f32), Error);
  CHECK_THROWS_AS(fill(Tensor(), 0), Error);
}

}  // namespace frugal::ops
