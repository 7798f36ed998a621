#include "distributed/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/memory.h"
#include "distributed/collectives.h"
#include "ops/dense/copy.h"
#include "tests/distributed/ranks.h"

namespace frugal::distributed {
namespace {

// What a rank holds: numbers with many digits, different on each rank.
Tensor term(int64_t elements, DType dtype, int rank) {
  if (dtype == DType::i64 || dtype == DType::i32 || dtype == DType::u8) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < elements; ++i) values.push_back((i * 7919 + rank * 104729) % 251);
    return ops::contiguous(ops::cast(Tensor::from(values, {elements}), dtype));
  }
  const RngKey key{static_cast<uint64_t>(rank) + 11, 3};
  return ops::contiguous(ops::cast(Tensor::randn({elements}, key), dtype));
}

// The reduction by a plain loop over all ranks' terms.
template <class T, class W>
std::vector<T> expected(int64_t elements, DType dtype, Reduction reduction) {
  std::vector<W> sums;
  for (int r = 0; r < ranks().size(); ++r) {
    const Tensor x = term(elements, dtype, r);
    for (int64_t i = 0; i < elements; ++i) {
      const auto value = static_cast<W>(x.data<T>()[i]);
      const auto at = static_cast<size_t>(i);
      if (r == 0)
        sums.push_back(value);
      else if (reduction == Reduction::sum)
        sums[at] = static_cast<W>(sums[at] + value);
      else
        sums[at] =
            reduction == Reduction::max ? std::max(sums[at], value) : std::min(sums[at], value);
    }
  }
  std::vector<T> out;
  for (const W sum : sums) out.push_back(static_cast<T>(sum));
  return out;
}

Tensor expected(int64_t elements, DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::f32:
      return Tensor::from(expected<float, float>(elements, dtype, reduction), {elements});
    case DType::f64:
      return Tensor::from(expected<double, double>(elements, dtype, reduction), {elements});
    case DType::i64:
      return Tensor::from(expected<int64_t, int64_t>(elements, dtype, reduction), {elements});
    default:
      return Tensor::from(expected<BFloat16, float>(elements, dtype, reduction), {elements});
  }
}

constexpr DType kReducible[] = {DType::f32, DType::f64, DType::i64, DType::bf16};
// Shorter than the number of ranks, odd, one segment for each rank, and several with a rest.
const int64_t kSizes[] = {0, 1, 3, 7, 1000, 65536, kSegment + 13};

}  // namespace

TEST_CASE("all_reduce adds in the order of the ranks, with the same bits on all of them") {
  for (const DType dtype : kReducible)
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min})
      for (const int64_t n : kSizes) {
        if (n > 1000 && reduction != Reduction::sum) continue;
        CAPTURE(name_of(dtype));
        CAPTURE(n);
        const Tensor x = term(n, dtype, ranks().rank());
        const uint64_t version = x.storage()->version();
        ranks().all_reduce(x, reduction);
        CHECK((bits_of(x) == bits_of(expected(n, dtype, reduction))));
        CHECK((x.storage()->version() > version) == (ranks().size() > 1 && n > 0));
        check_equal_everywhere(x);
      }
}

TEST_CASE("all_reduce keeps NaN and infinity, whichever rank has them") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (int holder = 0; holder < ranks().size(); ++holder) {
    const bool mine = holder == ranks().rank();
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      const Tensor x = Tensor::of({mine ? nan : 1.0, mine ? inf : 1.0}, DType::f32);
      ranks().all_reduce(x, reduction);
      CHECK(std::isnan(x.item(0)));
      CHECK((x.item(1) == inf) == (reduction != Reduction::min || ranks().size() == 1));
    }
  }
}

TEST_CASE("a view inside of a tensor is reduced, and nothing beside it changes") {
  const Tensor whole = Tensor::full({3, 4}, ranks().rank() + 1.0);
  ranks().all_reduce(whole[1]);
  const double n = ranks().size();
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(whole[0].item(i) == ranks().rank() + 1);
    CHECK(whole[1].item(i) == n * (n + 1) / 2);
    CHECK(whole[2].item(i) == ranks().rank() + 1);
  }
}

TEST_CASE("reduce_scatter gives each rank its share of the sum") {
  const int64_t n = 3 * kSegment / 4 + 5;
  // The second case: the last rank owns everything.
  Bounds last(static_cast<size_t>(ranks().size()), 0);
  last.push_back(n);
  for (const Bounds& bounds : {even_bounds(n, ranks().size()), last}) {
    const Tensor x = term(n, DType::f64, ranks().rank());
    const Tensor whole = expected(n, DType::f64, Reduction::sum);
    ranks().reduce_scatter(x, bounds);
    const auto r = static_cast<size_t>(ranks().rank());
    const Tensor mine = x.slice(0, bounds[r], bounds[r + 1]);
    CHECK((bits_of(mine) == bits_of(whole.slice(0, bounds[r], bounds[r + 1]))));
  }
}

TEST_CASE("all_gather brings every share to every rank, for any dtype") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i32, DType::u8})
    for (const int64_t n : kSizes) {
      const Tensor x = term(n, dtype, ranks().rank());
      const Bounds bounds = even_bounds(n, ranks().size());
      ranks().all_gather(x);
      for (int r = 0; r < ranks().size(); ++r) {
        const int64_t begin = bounds[static_cast<size_t>(r)],
                      end = bounds[static_cast<size_t>(r) + 1];
        CHECK((bits_of(x.slice(0, begin, end)) == bits_of(term(n, dtype, r).slice(0, begin, end))));
      }
    }
}

TEST_CASE("all_gather of texts of different lengths") {
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(rank) * 100000, static_cast<char>('a' + rank));
  };
  const std::vector<std::string> all = ranks().all_gather(text_of(ranks().rank()), "texts");
  REQUIRE(all.size() == static_cast<size_t>(ranks().size()));
  for (int r = 0; r < ranks().size(); ++r) CHECK(all[static_cast<size_t>(r)] == text_of(r));
}

TEST_CASE("broadcast copies the root's values to all ranks") {
  for (int root = 0; root < ranks().size(); ++root)
    for (const int64_t n : kSizes) {
      const Tensor x = term(n, DType::bf16, ranks().rank());
      ranks().broadcast(x, root);
      CHECK((bits_of(x) == bits_of(term(n, DType::bf16, root))));
    }
  const std::string mine = "rank " + std::to_string(ranks().rank());
  CHECK(ranks().broadcast(mine, ranks().size() - 1) ==
        "rank " + std::to_string(ranks().size() - 1));
}

// Rank s sends rank r `elements(s, r)` numbers, which say from whom, to whom and where they are.
template <class Elements>
void check_all_to_all(DType dtype, Elements elements) {
  const int n = ranks().size(), rank = ranks().rank();
  const auto numbers = [&](int from, int to) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < elements(from, to); ++i)
      values.push_back((from * 31 + to * 7 + i) % 251);
    const auto count = static_cast<int64_t>(values.size());
    return ops::contiguous(ops::cast(Tensor::from(values, {count}), dtype));
  };
  Bounds out{0}, in{0};
  for (int r = 0; r < n; ++r) {
    out.push_back(out.back() + elements(rank, r));
    in.push_back(in.back() + elements(r, rank));
  }
  const Tensor send = Tensor::empty({out.back()}, dtype);
  const Tensor receive = Tensor::full({in.back()}, 1, dtype);
  const auto share = [](const Tensor& x, const Bounds& bounds, int r) {
    const auto at = static_cast<size_t>(r);
    return x.slice(0, bounds[at], bounds[at + 1]);
  };
  for (int r = 0; r < n; ++r)
    if (elements(rank, r) > 0) ops::copy_into(share(send, out, r), numbers(rank, r));
  const std::string before = bits_of(send);
  const uint64_t version = receive.storage()->version();
  ranks().all_to_all(send, out, receive, in, "shares");
  CHECK(receive.storage()->version() > version);
  CHECK((bits_of(send) == before));
  for (int r = 0; r < n; ++r) {
    CAPTURE(r);
    CHECK((bits_of(share(receive, in, r)) == bits_of(numbers(r, rank))));
  }
}

TEST_CASE("all_to_all brings each rank what the others have for it") {
  for (const DType dtype : {DType::u8, DType::f32, DType::i64}) {
    check_all_to_all(dtype, [](int, int) { return int64_t{100}; });
    // All lengths differ.
    check_all_to_all(dtype, [](int from, int to) { return int64_t{1000} * from + 37 * to + 1; });
    // Only rank 0 sends, and nobody does.
    check_all_to_all(dtype, [](int from, int) { return int64_t{from == 0 ? 5 : 0}; });
    check_all_to_all(dtype, [](int, int) { return int64_t{0}; });
    // A share of several segments goes one way, and a short one comes back.
    check_all_to_all(dtype, [](int from, int to) {
      return from < to ? 6 * kSegment / 4 + 11 : from == to ? int64_t{0} : int64_t{3};
    });
  }
}

TEST_CASE("all_to_all of a rank alone copies") {
  const Tensor x = Tensor::of({1, 2, 3}), y = Tensor::zeros({3});
  alone()->all_to_all(x, {0, 3}, y, {0, 3});
  CHECK(y.to_vector() == x.to_vector());
  CHECK_THROWS_WITH_AS(alone()->all_to_all(x, {0, 3}, Tensor::zeros({2}), {0, 2}),
                       doctest::Contains("expected as many elements as are sent, 3, got 2"), Error);
}

TEST_CASE("a barrier and a number") {
  ranks().barrier();
  const double n = ranks().size();
  CHECK(ranks().all_reduce(ranks().rank() + 0.5) == n * n / 2);
  CHECK(ranks().all_reduce(1.0 * ranks().rank(), Reduction::max) == n - 1);
}

TEST_CASE("operations that were begun run in order beside the program") {
  std::vector<Tensor> tensors;
  std::vector<Pending> pending;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(Tensor::full({10000 + i}, ranks().rank() + i));
    pending.push_back(ranks().begin_all_reduce(tensors.back(), Reduction::sum, "some"));
  }
  for (size_t i = tensors.size(); i-- > 0;) {
    pending[i].wait();
    CHECK(pending[i].done());
    CHECK(pending[i].seconds() >= 0);
    const double n = ranks().size();
    CHECK(tensors[i].item(9999) == n * (n - 1) / 2 + n * static_cast<double>(i));
  }
  pending.clear();
  for (const Tensor& x : tensors) CHECK(x.storage().use_count() == 1);
  // A dropped handle takes nothing back, and keeps the tensor.
  {
    const Tensor x = Tensor::ones({300000});
    ranks().begin_all_reduce(x, Reduction::sum, "dropped");
  }
  ranks().barrier();
}

TEST_CASE("operations of two channels do not wait for each other") {
  static const CommunicatorPtr other = ranks().channel();
  CHECK(other->rank() == ranks().rank());
  CHECK(other->size() == ranks().size());
  const Tensor x = Tensor::full({3000000}, ranks().rank()), y = Tensor::ones({10});
  const auto check = [&](Pending a, Pending b) {
    a.wait();
    b.wait();
  };
  // Ranks begin them in different orders.
  if (ranks().rank() % 2 == 0) {
    Pending first = ranks().begin_all_reduce(x, Reduction::max, "large");
    check(first, other->begin_all_reduce(y, Reduction::sum, "small"));
  } else {
    Pending second = other->begin_all_reduce(y, Reduction::sum, "small");
    second.wait();
    check(second, ranks().begin_all_reduce(x, Reduction::max, "large"));
  }
  CHECK(x.item(2999999) == ranks().size() - 1);
  CHECK(y.item(9) == ranks().size());
}

TEST_CASE("operations take no memory but windows for the other ranks' terms") {
  const Tensor x = Tensor::ones({1 << 22});
  ranks().all_reduce(x);
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().live_total;
  ranks().all_reduce(x);
  CHECK(allocator(kCpu).report().peak_total == before);
  // Each of the two channels has a window, and that of the small one is small.
  CHECK(allocator(kCpu).report().of(Category::workspace) <=
        (ranks().size() - 1) * (kWindow * kSegment + 64));
}

TEST_CASE("tensors of meta are left alone") {
  const Tensor x = Tensor::empty({1000}, DType::f32, kMeta);
  Pending pending = ranks().begin_all_reduce(x, Reduction::sum, "");
  CHECK(pending.done());
  pending.wait();
  ranks().broadcast(x);
}

TEST_CASE("wrong arguments are refused before anything is sent") {
  if (ranks().size() == 1) return;
  const Tensor x = Tensor::ones({4, 4});
  CHECK_THROWS_WITH_AS(ranks().all_reduce(x.transpose(0, 1)),
                       doctest::Contains("[all_reduce] expected a contiguous tensor"), Error);
  CHECK_THROWS_WITH_AS(ranks().all_reduce(Tensor::ones({2}, DType::u8)),
                       doctest::Contains("[all_reduce] expected f32, f64, i64 or bf16, got"),
                       Error);
  CHECK_THROWS_WITH_AS(ranks().all_gather(x, Bounds{0, 3}),
                       doctest::Contains("bounds in ascending order from 0 to 16, got 0, 3"),
                       Error);
  CHECK_THROWS_WITH_AS(ranks().broadcast(x, ranks().size()),
                       doctest::Contains("[broadcast] expected a root from 0 to"), Error);
  const Tensor one = Tensor::ones({ranks().size()});
  const Bounds each = even_bounds(ranks().size(), ranks().size());
  CHECK_THROWS_WITH_AS(ranks().all_to_all(one, Bounds{0, 1}, one, each),
                       doctest::Contains("[all_to_all] expected"), Error);
  CHECK_THROWS_WITH_AS(
      ranks().all_to_all(one, each, Tensor::ones({ranks().size()}, DType::u8), each),
      doctest::Contains("[all_to_all] expected two tensors of one dtype"), Error);
  Bounds mine(static_cast<size_t>(ranks().rank()) + 1, 0);  // this rank sends itself everything
  mine.resize(static_cast<size_t>(ranks().size()) + 1, ranks().size());
  CHECK_THROWS_WITH_AS(ranks().all_to_all(one, mine, Tensor::ones({ranks().size()}), each),
                       doctest::Contains("elements from this rank itself, got 1"), Error);
  CHECK_THROWS_WITH_AS(from_environment({.timeout = -1}),
                       doctest::Contains("expected a timeout of at least 0"), Error);
}

TEST_CASE("from_environment gives the same communicator every time") {
  CHECK(from_environment({.timeout = 60}).get() == &ranks());
  CHECK(ranks().size() == launch().ranks);
}

TEST_CASE("even bounds") {
  CHECK(even_bounds(10, 4) == Bounds{0, 3, 6, 8, 10});
  CHECK(even_bounds(2, 4) == Bounds{0, 1, 2, 2, 2});
  CHECK(even_bounds(0, 2) == Bounds{0, 0, 0});
}

TEST_CASE("a communicator of one does nothing") {
  const CommunicatorPtr one = alone();
  CHECK(one->rank() == 0);
  CHECK(one->size() == 1);
  const Tensor x = Tensor::ones({5});
  const uint64_t version = x.storage()->version();
  one->all_reduce(x);
  one->all_gather(x);
  one->broadcast(x);
  one->barrier();
  CHECK(x.storage()->version() == version);
  CHECK(one->all_gather("text") == std::vector<std::string>{"text"});
  CHECK(one->broadcast("text") == "text");
  CHECK(one->all_reduce(2.5) == 2.5);
}

TEST_CASE("the environment says how many ranks there are") {
  struct Variable {
    const char* name;
    std::string before;
    bool was_set;
    explicit Variable(const char* n) : name(n), was_set(std::getenv(n) != nullptr) {
      if (was_set) before = std::getenv(n);
      unsetenv(n);
    }
    ~Variable() { was_set ? setenv(name, before.c_str(), 1) : unsetenv(name); }
  };
  const Variable mpirun("OMPI_COMM_WORLD_SIZE"), pmi("PMI_SIZE"), srun("SLURM_STEP_NUM_TASKS");
  CHECK(launch().ranks == 1);
  CHECK(launch().variable.empty());
  setenv(srun.name, "3", 1);
  CHECK(launch().ranks == 3);
  CHECK(launch().variable == srun.name);
  if (mpi_library().empty())
    CHECK_THROWS_WITH_AS(from_environment(),
                         doctest::Contains("built without MPI, got one of 3 (SLURM_STEP_NUM_TASKS"),
                         Error);
  setenv(pmi.name, "4", 1);
  CHECK(launch().ranks == 4);
  for (const char* wrong : {"", "0", "-1", "two", "2x"}) {
    setenv(pmi.name, wrong, 1);
    CHECK_THROWS_WITH_AS(launch(), doctest::Contains("expected the environment's PMI_SIZE"), Error);
  }
}

}  // namespace frugal::distributed
