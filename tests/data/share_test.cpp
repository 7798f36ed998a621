#include "data/batch_source.h"

#include <doctest/doctest.h>

#include "data/batch_source.h"

using namespace frugal;
using namespace frugal::data;

namespace {

// A source that was written for one process.
class OneProcess : public BatchSource {
 public:
  std::optional<Batch> next() override { return Batch{Tensor::zeros({2, 1}), Tensor::zeros({2})}; }
  int64_t batches() const override { return 3; }
  int64_t samples() const override { return 6; }
  LoaderState state() const override { return {}; }
  void seek(const LoaderState&) override {}
};

std::vector<int64_t> borders(int64_t samples, int size) {
  std::vector<int64_t> out;
  for (int rank = 0; rank < size; ++rank) {
    const Share share{rank, size};
    out.push_back(share.begin(samples));
    if (rank > 0) CHECK(Share{rank - 1, size}.end(samples) == out.back());
  }
  out.push_back(Share{size - 1, size}.end(samples));
  return out;
}

}  // namespace

TEST_CASE("shares follow each other and differ by at most one sample") {
  using Ints = std::vector<int64_t>;
  CHECK(borders(10, 1) == Ints{0, 10});
  CHECK(borders(8, 4) == Ints{0, 2, 4, 6, 8});
  CHECK(borders(10, 4) == Ints{0, 2, 5, 7, 10});
  CHECK(borders(3, 5) == Ints{0, 0, 1, 1, 2, 3});
  CHECK(borders(0, 2) == Ints{0, 0, 0});
  CHECK(Share{}.is_whole());
  CHECK_FALSE(Share{0, 2}.is_whole());
}

TEST_CASE("the smallest batch of an epoch is its rest, if it has one") {
  CHECK(smallest_of(12, 4) == 4);
  CHECK(smallest_of(13, 4) == 1);
  CHECK(smallest_of(3, 4) == 3);
}

TEST_CASE("a source without set_share() serves one process alone") {
  OneProcess source;
  source.set_share({0, 1});
  CHECK(source.smallest_batch() == 1);
  CHECK_THROWS_WITH_AS(
      source.set_share({1, 2}),
      doctest::Contains("[batches] expected a source that gives each process its share"), Error);
  CHECK_THROWS_WITH_AS(source.set_share({1, 1}), doctest::Contains("got rank 1 and size 1"), Error);
}
