#include "distributed/nccl.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "core/memory.h"
#include "tests/cuda_ranks/cuda_ranks.h"

namespace frugal::distributed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Small whole numbers: their sums are exact in each dtype, in any order.
Tensor term(int64_t elements, DType dtype, int rank) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < elements; ++i) values.push_back((i * 31 + rank * 17) % 23);
  return ops::contiguous(ops::cast(Tensor::from(values, {elements}), dtype));
}

std::vector<double> reduced(int64_t elements, DType dtype, Reduction reduction) {
  std::vector<double> all;
  for (int r = 0; r < ranks().size(); ++r) {
    const std::vector<double> x = term(elements, dtype, r).to_vector();
    if (r == 0) all = x;
    for (size_t i = 0; r > 0 && i < x.size(); ++i)
      all[i] = reduction == Reduction::sum   ? all[i] + x[i]
               : reduction == Reduction::max ? std::max(all[i], x[i])
                                             : std::min(all[i], x[i]);
  }
  return all;
}

std::vector<double> values_of(const Tensor& x) { return on_host(x).to_vector(); }

// Shares of all lengths, among them one of 0.
Bounds uneven_bounds(int64_t elements) {
  Bounds bounds{0};
  for (int r = 0; r + 1 < ranks().size(); ++r)
    bounds.push_back(r == 0 ? elements / 5 : bounds[static_cast<size_t>(r)]);
  bounds.push_back(elements);
  return bounds;
}
Bounds equal_bounds(int64_t each) {
  Bounds bounds;
  for (int64_t r = 0; r <= ranks().size(); ++r) bounds.push_back(r * each);
  return bounds;
}

constexpr DType kReducible[] = {DType::f32, DType::f64, DType::i64, DType::bf16};
constexpr DType kMovable[] = {DType::f32,  DType::f64, DType::i64,
                              DType::bf16, DType::u8,  DType::i32};

}  // namespace

TEST_CASE("NCCL serves the ranks where it should") {
  if (!gpu::available()) return;
  const Tensor x = on_gpu(Tensor::ones({10}));
  ranks().all_reduce(x);
  CHECK(values_of(x) == std::vector<double>(10, ranks().size()));
  if (expects_nccl() >= 0 && ranks().size() > 1) CHECK(uses_nccl(ranks()) == (expects_nccl() == 1));
  if (expects_nccl() == 1) CHECK(nccl_library() == "NCCL 2.28.9");
}

TEST_CASE("a rank alone computes through NCCL what it has") {
  if (!gpu::available()) return;
  if (nccl_library().empty()) {
    CHECK(expects_nccl() != 1);
    MESSAGE("left out: this machine has no NCCL");
    return;
  }
  if (ranks().size() > 1) return;
  const CommunicatorPtr one = with_nccl(alone(), true);
  for (const DType dtype : kReducible) {
    const Tensor x = on_gpu(term(1000, dtype, 0));
    Pending pending = one->begin_all_reduce(x, Reduction::sum, "all");
    pending.wait();
    one->reduce_scatter(x, {0, 1000});
    one->all_gather(x, Bounds{0, 1000});
    one->broadcast(x);
    CHECK(values_of(x) == term(1000, dtype, 0).to_vector());
    CHECK(pending.done());
    CHECK(pending.seconds() > 0);
    CHECK(pending.seconds() < 10);
    CHECK(x.storage().use_count() == 1);
  }
  CHECK(uses_nccl(*one));
  const Tensor x = on_gpu(term(50, DType::u8, 0)), y = Tensor::empty({50}, DType::u8, gpu());
  one->all_to_all(x, {0, 50}, y, {0, 50});
  CHECK(values_of(y) == values_of(x));
  if (cuda::device_count() == 1) return;
  const Tensor elsewhere = Tensor::ones({3}, DType::f32, {DeviceType::cuda, 1});
  CHECK_THROWS_WITH_AS(one->all_reduce(elsewhere),
                       doctest::Contains("[nccl] expected tensors of cuda:0, as in the first"),
                       Error);
}

TEST_CASE("all_reduce of CUDA tensors") {
  if (!gpu::available()) return;
  for (const DType dtype : kReducible)
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min})
      for (const int64_t n : {0, 1, 3, 1000, 65549}) {
        if (n > 1000 && reduction != Reduction::sum) continue;
        CAPTURE(name_of(dtype));
        CAPTURE(n);
        const Tensor x = on_gpu(term(n, dtype, ranks().rank()));
        const uint64_t version = x.storage()->version();
        ranks().all_reduce(x, reduction);
        CHECK(values_of(x) == reduced(n, dtype, reduction));
        if (n > 0 && ranks().size() > 1) CHECK(x.storage()->version() > version);
      }
}

TEST_CASE("sums of CUDA tensors have the same bits on all ranks") {
  if (!gpu::available()) return;
  const RngKey key{static_cast<uint64_t>(ranks().rank()) + 11, 3};
  const Tensor x = on_gpu(Tensor::randn({5000}, key));
  ranks().all_reduce(x);
  check_equal_everywhere(on_host(x));
}

TEST_CASE("maxima and minima of CUDA tensors are NaN where a term is") {
  if (!gpu::available()) return;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int who = 0; who < ranks().size(); ++who)
    for (const Reduction reduction : {Reduction::max, Reduction::min}) {
      const Tensor x = on_gpu(Tensor::of({ranks().rank() == who ? nan : 1.0f, 2}));
      ranks().all_reduce(x, reduction);
      CHECK(std::isnan(values_of(x)[0]));
      CHECK(values_of(x)[1] == 2);
    }
}

TEST_CASE("reduce_scatter of CUDA tensors gives each rank its share, and leaves the rest alone") {
  if (!gpu::available()) return;
  const int rank = ranks().rank();
  for (const DType dtype : kReducible)
    for (const Bounds& bounds : {uneven_bounds(1003), equal_bounds(77)}) {
      CAPTURE(name_of(dtype));
      const int64_t n = bounds.back();
      const Tensor x = on_gpu(term(n, dtype, rank));
      ranks().reduce_scatter(x, bounds);
      std::vector<double> expected = term(n, dtype, rank).to_vector();
      const std::vector<double> sums = reduced(n, dtype, Reduction::sum);
      for (int64_t i = bounds[static_cast<size_t>(rank)]; i < bounds[static_cast<size_t>(rank) + 1];
           ++i)
        expected[static_cast<size_t>(i)] = sums[static_cast<size_t>(i)];
      CHECK(values_of(x) == expected);
    }
}

TEST_CASE("all_gather and broadcast of CUDA tensors take any dtype") {
  if (!gpu::available()) return;
  for (const DType dtype : kMovable) {
    CAPTURE(name_of(dtype));
    for (const Bounds& bounds : {uneven_bounds(1003), equal_bounds(77)}) {
      const int64_t n = bounds.back();
      const Tensor x = on_gpu(term(n, dtype, ranks().rank()));
      ranks().all_gather(x, bounds);
      std::vector<double> expected;
      for (int r = 0; r < ranks().size(); ++r) {
        const std::vector<double> theirs = term(n, dtype, r).to_vector();
        for (int64_t i = bounds[static_cast<size_t>(r)]; i < bounds[static_cast<size_t>(r) + 1];
             ++i)
          expected.push_back(theirs[static_cast<size_t>(i)]);
      }
      CHECK(values_of(x) == expected);
    }
    for (int root = 0; root < ranks().size(); ++root) {
      const Tensor x = on_gpu(term(1003, dtype, ranks().rank()));
      ranks().broadcast(x, root);
      CHECK(values_of(x) == term(1003, dtype, root).to_vector());
    }
  }
}

namespace {

// Rank s sends rank r `elements(s, r)` bytes, which say from whom and to whom.
template <class Elements>
void check_all_to_all(Elements elements) {
  const int n = ranks().size(), rank = ranks().rank();
  Bounds out{0}, in{0};
  std::vector<int64_t> sent, expected;
  for (int r = 0; r < n; ++r) {
    out.push_back(out.back() + elements(rank, r));
    in.push_back(in.back() + elements(r, rank));
    for (int64_t i = 0; i < elements(rank, r); ++i) sent.push_back((rank * 31 + r * 7 + i) % 251);
    for (int64_t i = 0; i < elements(r, rank); ++i)
      expected.push_back((r * 31 + rank * 7 + i) % 251);
  }
  for (const DType dtype : {DType::u8, DType::f32}) {
    const Tensor send = on_gpu(ops::contiguous(ops::cast(Tensor::from(sent, {out.back()}), dtype)));
    const Tensor receive = Tensor::zeros({in.back()}, dtype, gpu());
    ranks().all_to_all(send, out, receive, in, "shares");
    CHECK(values_of(receive) == std::vector<double>(expected.begin(), expected.end()));
    CHECK(values_of(send) == std::vector<double>(sent.begin(), sent.end()));
  }
}

}  // namespace

TEST_CASE("all_to_all of CUDA tensors") {
  if (!gpu::available()) return;
  check_all_to_all([](int, int) { return int64_t{100}; });
  check_all_to_all([](int from, int to) { return int64_t{1000} * from + 37 * to + 1; });
  check_all_to_all([](int from, int) { return int64_t{from == 0 ? 5 : 0}; });
  check_all_to_all([](int from, int to) { return int64_t{from + to == 1 ? 9 : 0}; });
  check_all_to_all([](int, int) { return int64_t{0}; });
}

TEST_CASE("operations on CUDA tensors run in order beside the program") {
  if (!gpu::available()) return;
  std::vector<Tensor> tensors;
  std::vector<Pending> pending;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(Tensor::full({1000 + i}, ranks().rank() + i, DType::f32, gpu()));
    pending.push_back(ranks().begin_all_reduce(tensors.back(), Reduction::sum, "some"));
  }
  const double n = ranks().size();
  for (size_t i = tensors.size(); i-- > 0;) {
    pending[i].wait();
    pending[i].wait();
    const Tensor twice = ops::clone(tensors[i]);  // in the order of the compute stream
    CHECK(values_of(twice) == std::vector<double>(static_cast<size_t>(tensors[i].numel()),
                                                  n * (n - 1) / 2 + n * static_cast<double>(i)));
    CHECK(pending[i].done());
    CHECK(pending[i].seconds() >= 0);
    CHECK(pending[i].stalled() >= 0);
    CHECK(tensors[i].storage().use_count() == 1);
  }
}

TEST_CASE("neither begin nor wait of NCCL blocks the host") {
  if (!gpu::available() || ranks().size() == 1) return;
  const Tensor x = on_gpu(Tensor::ones({1000}));
  ranks().all_reduce(x);
  if (!uses_nccl(ranks())) return;
  on_host(x);
  ranks().barrier();
  constexpr double kLate = 1;
  if (ranks().rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
  const auto begin = Clock::now();
  Pending pending = ranks().begin_all_reduce(x, Reduction::sum, "late");
  pending.wait();
  if (ranks().rank() == 0) {
    CHECK(seconds_since(begin) < kLate / 2);
    CHECK_FALSE(pending.done());
  }
  CHECK(values_of(x)[0] == ranks().size() * ranks().size());
  REQUIRE(pending.done());
  if (ranks().rank() == 0) {
    CHECK(pending.seconds() > kLate / 2);
    CHECK(pending.stalled() > kLate / 2);
  }
}

TEST_CASE("a dropped handle keeps its tensor until the operation has ended") {
  if (!gpu::available() || ranks().size() == 1) return;
  constexpr int64_t kElements = 40000;
  Tensor here = Tensor::full({kElements}, ranks().rank() + 5, DType::f32, gpu());
  {
    const Tensor x = Tensor::full({kElements}, ranks().rank() + 5, DType::f32, gpu());
    Pending pending = ranks().begin_broadcast(x, 0, "dropped");
    if (ranks().rank() > 0) {
      pending.wait();
      here = ops::clone(x);
    }
  }
  // Would lie where x was.
  std::vector<Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(Tensor::full({kElements}, -1, DType::f32, gpu()));
  CHECK(values_of(here) == std::vector<double>(kElements, 5));
  for (const Tensor& other : others) CHECK(values_of(other) == std::vector<double>(kElements, -1));
  ranks().barrier();
}

TEST_CASE("channels and tensors of the host beside CUDA tensors") {
  if (!gpu::available()) return;
  static const CommunicatorPtr other = ranks().channel();
  const double n = ranks().size();
  for (int i = 0; i < 3; ++i) {
    const Tensor x = Tensor::full({3000}, ranks().rank(), DType::f32, gpu()),
                 y = Tensor::ones({10}, DType::f32, gpu()), z = Tensor::ones({7});
    Pending first = ranks().begin_all_reduce(x, Reduction::sum, "large"),
            second = other->begin_all_reduce(y, Reduction::sum, "small"),
            third = other->begin_all_reduce(z, Reduction::sum, "on the host");
    third.wait();
    second.wait();
    first.wait();
    CHECK(values_of(x) == std::vector<double>(3000, n * (n - 1) / 2));
    CHECK(values_of(y) == std::vector<double>(10, n));
    CHECK(z.to_vector() == std::vector<double>(7, n));
  }
}

TEST_CASE("operations on CUDA tensors take no memory of the GPU") {
  if (!gpu::available()) return;
  const Tensor x = Tensor::ones({1 << 16}, DType::f32, gpu());
  ranks().all_reduce(x);
  on_host(x);
  allocator(gpu()).reset_peak();
  const int64_t before = allocator(gpu()).report().live_total;
  ranks().all_reduce(x);
  on_host(x);
  CHECK(allocator(gpu()).report().peak_total == before);
}

TEST_CASE("wrong arguments with CUDA tensors are refused before anything begins") {
  if (!gpu::available() || ranks().size() == 1) return;
  const Tensor x = Tensor::ones({4, 4}, DType::f32, gpu());
  CHECK_THROWS_WITH_AS(ranks().all_reduce(x.transpose(0, 1)),
                       doctest::Contains("[all_reduce] expected a contiguous tensor"), Error);
  CHECK_THROWS_WITH_AS(ranks().all_reduce(Tensor::ones({2}, DType::u8, gpu())),
                       doctest::Contains("[all_reduce] expected f32, f64, i64 or bf16, got"),
                       Error);
  CHECK_THROWS_WITH_AS(ranks().all_gather(x, Bounds{0, 3}),
                       doctest::Contains("bounds in ascending order from 0 to 16, got 0, 3"),
                       Error);
  CHECK_THROWS_WITH_AS(ranks().broadcast(x, ranks().size()),
                       doctest::Contains("[broadcast] expected a root from 0 to"), Error);
  const Tensor one = Tensor::ones({ranks().size()}, DType::f32, gpu());
  const Bounds each = even_bounds(ranks().size(), ranks().size());
  CHECK_THROWS_WITH_AS(ranks().all_to_all(one, each, Tensor::ones({ranks().size()}), each),
                       doctest::Contains("[all_to_all] expected two tensors of one dtype on one"),
                       Error);
  ranks().all_reduce(x);
  CHECK(values_of(x)[0] == ranks().size());
}

}  // namespace frugal::distributed
