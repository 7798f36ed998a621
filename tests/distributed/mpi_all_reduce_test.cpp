#include "distributed/mpi_all_reduce.h"

#include "tests/distributed/ranks.h"

namespace frugal::distributed {

TEST_CASE("MPI's own all-reduce adds up what all ranks have") {
  const Tensor x = Tensor::from<float>({1, 2, static_cast<float>(ranks().rank())}, {3});
  if (ranks().size() == 1) {
    CHECK_THROWS_AS(seconds_of_mpi_all_reduce(x), Error);
    return;
  }
  ranks().barrier();
  CHECK(seconds_of_mpi_all_reduce(x) > 0);
  const auto n = static_cast<float>(ranks().size());
  CHECK(x.to_vector<float>() == std::vector<float>{n, 2 * n, n * (n - 1) / 2});
  check_equal_everywhere(x);  // the communicator works on after that
  CHECK_THROWS_WITH_AS(seconds_of_mpi_all_reduce(Tensor::zeros({3}, DType::f64)),
                       doctest::Contains("[mpi_all_reduce] expected a contiguous f32 tensor"),
                       Error);
}

TEST_CASE("imagined ranks take what the sums of a rank need, on meta") {
  const CommunicatorPtr four = imagined(4);
  const auto workspace = [] { return allocator(kMeta).report().of(Category::workspace); };
  const int64_t before = workspace();
  const Tensor x = Tensor::empty({1 << 20}, DType::f32, kMeta);
  four->all_reduce(x);
  const int64_t taken = workspace() - before;
  CHECK(taken > 0);
  four->all_reduce(x);
  CHECK(workspace() - before == taken);  // it is kept, and taken once
  CHECK(four->size() == 4);
}

}  // namespace frugal::distributed
