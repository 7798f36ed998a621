#include "ops/graph/segment.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

using namespace frugal;
using namespace frugal::ops;

namespace {

using List = std::vector<double>;

Tensor random_index(int64_t elements, int64_t rows) {
  const Tensor index = Tensor::empty({elements}, DType::i64);
  for (int64_t e = 0; e < elements; ++e)  // a third to one row
    index.mut<int64_t>()[e] =
        e % 3 == 0 ? 1
                   : static_cast<int64_t>(uniform_int({2, 2}, static_cast<uint64_t>(e),
                                                      static_cast<uint64_t>(rows)));
  return index;
}

}  // namespace

TEST_CASE("sums, means and maxima of unsorted segments, by hand") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  const Tensor index = Tensor::from<int64_t>({2, 0, 2, 2}, {4});
  CHECK(segment_sum(x, index, 4).to_vector() == List{3, 4, 0, 0, 13, 16, 0, 0});
  CHECK(error(segment_mean(x, index, 4), {3, 4, 0, 0, 13 / 3.0, 16 / 3.0, 0, 0}) < 1e-6);
  const SegmentMax most = segment_max(x, index, 4);
  CHECK(most.y.to_vector() == List{3, 4, 0, 0, 7, 8, 0, 0});
  CHECK(most.element.to_vector() == List{1, 1, -1, -1, 3, 3, -1, -1});
  const Tensor dy = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  CHECK(segment_max_backward(dy, most.element, 4).to_vector() == List{0, 0, 1, 2, 0, 0, 5, 6});
  CHECK(error(segment_mean_backward(dy, index), {5 / 3.0, 2, 1, 2, 5 / 3.0, 2, 5 / 3.0, 2}) < 1e-6);
  CHECK(gather_rows(dy, index).to_vector() == List{5, 6, 1, 2, 5, 6, 5, 6});
  CHECK(gather_rows(with_gaps(dy), with_gaps(index)).to_vector() == List{5, 6, 1, 2, 5, 6, 5, 6});
}

TEST_CASE("softmax over segments sums to 1, is not moved by a shift, and meets NaN as softmax") {
  const Tensor index = random_index(6000, 40), x = normals({6000, 3}, 4);
  const Tensor y = segment_softmax(x, index, 40);
  const Tensor total = segment_sum(y, index, 40);
  for (int64_t i = 0; i < total.numel(); ++i) CHECK(total.item(i) == doctest::Approx(1));
  const Tensor shifted = normals({6000, 3}, 4, DType::f32, 1, 1000);
  CHECK(error(segment_softmax(shifted, index, 40), y.to_vector()) < 1e-3);
  const Tensor few = Tensor::from<int64_t>({0, 1, 0, 2, 2}, {5});
  const Tensor odd = Tensor::from<double>({1, kNan, 1, kInf, 0}, {5, 1});
  CHECK(error(segment_softmax(odd, few, 3), {0.5, kNan, 0.5, kNan, kNan}) == 0);
}

TEST_CASE("segments have the same bits for every number of threads") {
  const Tensor index = random_index(20000, 300);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = normals({20000, 10}, 3, dtype), dy = normals({300, 10}, 5, dtype);
    const auto all = [&] {
      const SegmentMax most = segment_max(x, index, 300);
      const Tensor soft = segment_softmax(x, index, 300);
      return std::vector<Tensor>{segment_sum(x, index, 300),
                                 segment_mean(x, index, 300),
                                 most.y,
                                 most.element,
                                 soft,
                                 segment_softmax_backward(x, soft, index, 300),
                                 segment_max_backward(dy, most.element, 20000),
                                 segment_mean_backward(dy, index),
                                 gather_rows(dy, index)};
    };
    std::vector<Tensor> one;
    {
      ThreadsScope threads(1);
      one = all();
    }
    for (const int n : {2, 5}) {
      ThreadsScope threads(n);
      const std::vector<Tensor> many = all();
      for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], many[i]));
    }
  }
}

TEST_CASE("segments that do not fit are refused") {
  const Tensor x = normals({3, 2}, 1), index = Tensor::from<int64_t>({0, -1, 1}, {3});
  CHECK_THROWS_WITH_AS(segment_sum(x, index, 2),
                       doctest::Contains("[segment_sum] expected indices 0 to 1, got -1 at 1"),
                       Error);
  CHECK_THROWS_WITH_AS(segment_sum(x, index, -1),
                       doctest::Contains("[segment_sum] expected rows >= 0"), Error);
  CHECK_THROWS_WITH_AS(segment_max(x, Tensor::zeros({3}), 2),
                       doctest::Contains("[segment_max] expected index of dtype i64"), Error);
  CHECK_THROWS_WITH_AS(segment_mean(normals({3}, 1), index, 2),
                       doctest::Contains("[segment_mean] expected x with 2 axes"), Error);
  CHECK_THROWS_WITH_AS(gather_rows(x, index),
                       doctest::Contains("[gather_rows] expected indices 0 to 2, got -1 at 1"),
                       Error);
  CHECK_THROWS_WITH_AS(gather_rows(x, Tensor::zeros({2, 2}, DType::i64)),
                       doctest::Contains("[gather_rows] expected index with 1 axes"), Error);
}
