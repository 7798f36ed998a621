#include "train/metrics/knn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/parallel.h"

using namespace frugal;
using namespace frugal::train;

namespace {

// The definition, neighbour by neighbour.
std::vector<int64_t> slow(const Tensor& bank, const std::vector<int64_t>& labels,
                          const Tensor& rows, const KnnOptions& options) {
  const auto cosine = [&](int64_t r, int64_t b) {
    double dot = 0, rr = 0, bb = 0;
    for (int64_t i = 0; i < rows.size(1); ++i) {
      const double x = rows.select(0, r).item(i), y = bank.select(0, b).item(i);
      dot += x * y, rr += x * x, bb += y * y;
    }
    return dot / std::sqrt(rr * bb);
  };
  std::vector<int64_t> answers;
  for (int64_t r = 0; r < rows.size(0); ++r) {
    std::vector<std::pair<double, int64_t>> all;
    for (int64_t b = 0; b < bank.size(0); ++b) all.emplace_back(-cosine(r, b), b);
    std::sort(all.begin(), all.end());
    std::map<int64_t, double> votes;
    for (int64_t i = 0; i < std::min(options.k, bank.size(0)); ++i) {
      const auto& [negated, b] = all[static_cast<size_t>(i)];
      votes[labels[static_cast<size_t>(b)]] += std::exp(-negated / options.temperature);
    }
    answers.push_back(std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                      })->first);
  }
  return answers;
}

std::vector<int64_t> some_labels(int64_t count) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(i * i % 4);
  return labels;
}

}  // namespace

TEST_CASE("knn answers as its definition says, on any number of threads") {
  const Tensor bank = Tensor::randn({60, 5}, {1, 0}), rows = Tensor::randn({70, 5}, {2, 0});
  for (const int64_t k : {1, 7, 200}) {
    const KnnOptions options{.k = k, .temperature = 0.1};
    const Knn knn(bank, some_labels(60), 4, options);
    const std::vector<int64_t> wanted = slow(bank, some_labels(60), rows, options);
    const int before = num_threads();
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      CHECK(knn.classify(rows) == wanted);
    }
    set_num_threads(before);
  }
}

TEST_CASE("knn: a near neighbour has more votes than several far ones") {
  const Tensor bank = Tensor::of({{1, 0}, {0.2, 1}, {0.2, 1}, {0.2, 1}});
  const Tensor row = Tensor::of({{3, 0.3}});
  CHECK(Knn(bank, {1, 0, 0, 0}, 2, {.k = 4, .temperature = 0.1}).classify(row)[0] == 1);
  CHECK(Knn(bank, {1, 0, 0, 0}, 2, {.k = 4, .temperature = 10}).classify(row)[0] == 0);
  CHECK(Knn(bank, {1, 0, 0, 0}, 2, {.k = 1}).classify(row)[0] == 1);
}

TEST_CASE("knn refuses what it cannot use") {
  const Tensor bank = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(Knn(bank, {0}, 2), doctest::Contains("[knn] expected a label for each"),
                       Error);
  CHECK_THROWS_WITH_AS(Knn(bank, {0, 2}, 2), doctest::Contains("[knn] expected labels in [0, 2)"),
                       Error);
  CHECK_THROWS_WITH_AS(Knn(bank, {0, 1}, 2, {.k = 0}), doctest::Contains("[knn] expected a k"),
                       Error);
  const Knn knn(bank, {0, 1}, 2);
  CHECK_THROWS_WITH_AS(knn.classify(Tensor::ones({1, 2})),
                       doctest::Contains("[knn] expected the features of shape [1, 3]"), Error);
}
