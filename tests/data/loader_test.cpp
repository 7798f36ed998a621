#include "data/loader.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "core/cores.h"
#include "data/image/transforms.h"
#include "data/made_ahead.h"
#include "data/memory_dataset.h"
#include "data/tensor_dataset.h"
#include "tests/data/shares.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

std::shared_ptr<const Dataset> numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count * 12));
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<int64_t> labels(static_cast<size_t>(count));
  std::iota(labels.begin(), labels.end(), int64_t{0});
  return std::make_shared<MemoryDataset>(Tensor::from(values, {count, 2, 3, 2}),
                                         Tensor::from(labels, {count}), count);
}

DatasetPtr augmented(int64_t count) {
  return std::make_shared<HorizontalFlip>(std::make_shared<PadCrop>(numbers(count), 1));
}

using Contents = std::vector<std::pair<std::vector<double>, std::vector<double>>>;

void append(Contents& contents, const Batch& batch) {
  contents.emplace_back(batch.input.to_vector(), batch.target.to_vector());
}

Contents take_epochs(Loader& loader, int epochs) {
  Contents contents;
  for (int epoch = 0; epoch < epochs; ++epoch)
    while (const auto batch = loader.next()) append(contents, *batch);
  return contents;
}

// Throws for one sample, and is slow for some, so that workers overtake each other.
class Troubled : public Dataset {
 public:
  Troubled(DatasetPtr inner, int64_t bad) : inner_(std::move(inner)), bad_(bad) {}
  int64_t size() const override { return inner_->size(); }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return inner_->sample_shape(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    if (index == bad_) throw Error("sample is broken");
    if (index % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    return inner_->get_into(index, key, out);
  }

 private:
  DatasetPtr inner_;
  int64_t bad_;
};

// A class for each pixel: the pixel's value.
class Pixels : public Dataset {
 public:
  explicit Pixels(DatasetPtr inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return inner_->sample_shape(); }
  Shape target_shape() const override { return {2, 3}; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    return inner_->get_into(index, key, out);
  }
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override {
    inner_->get_into(index, key, out);
    for (int64_t i = 0; i < 6; ++i) target[i] = static_cast<int64_t>(out[2 * i]);
  }

 private:
  DatasetPtr inner_;
};

// Counts the samples that are read.
class Counted : public Dataset {
 public:
  explicit Counted(DatasetPtr inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  int64_t classes() const override { return inner_->classes(); }
  Shape sample_shape() const override { return inner_->sample_shape(); }
  int64_t get_into(int64_t index, RngKey key, float* out) const override {
    ++read;
    return inner_->get_into(index, key, out);
  }
  mutable int64_t read = 0;

 private:
  DatasetPtr inner_;
};

LoaderOptions loading(int threads, int64_t batch_size = 4) {
  LoaderOptions result;
  result.batch_size = batch_size;
  result.threads = threads;
  result.seed = 11;
  return result;
}

}  // namespace

// GNU OpenMP reads its environment before main(), so the test starts itself again.
TEST_CASE("workers have all cores where OpenMP binds the first thread to one") {
  const cpu_set_t cores = usable_cores();
  if (std::getenv("OMP_PROC_BIND") == nullptr) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    CHECK(std::system(
              ("OMP_PROC_BIND=true '" + program + "' -tc='workers have all cores*' >/dev/null")
                  .c_str()) == 0);
    return;
  }
  MadeAhead<int> ahead(
      1, 1, [](int64_t) { return 0; },
      [](int64_t, int& count, const MadeAhead<int>::Part&) {
        cpu_set_t own;
        if (sched_getaffinity(0, sizeof(own), &own) == 0) count = CPU_COUNT(&own);
      });
  CHECK(ahead.take(0, 1) == CPU_COUNT(&cores));
}

TEST_CASE("an epoch holds every sample once, in another order each time") {
  Loader loader(numbers(10), loading(2));
  CHECK(loader.batches() == 3);
  CHECK(loader.samples() == 10);
  std::set<std::vector<double>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<double> order;
    while (const auto batch = loader.next()) {
      CHECK(batch->input.dim() == 4);
      CHECK(batch->input.dtype() == DType::f32);
      CHECK(batch->target.dtype() == DType::i64);
      CHECK(batch->input.storage()->category() == Category::input);
      CHECK(batch->target.storage()->category() == Category::input);
      CHECK(batch->samples.dtype() == DType::i64);
      CHECK(batch->samples.to_vector() == batch->target.to_vector());  // labels are indices here
      for (int64_t i = 0; i < batch->target.numel(); ++i) {
        order.push_back(batch->target.item(i));
        REQUIRE(batch->input.item(i * 12) == batch->target.item(i) * 12);
      }
    }
    CHECK(loader.state() == LoaderState{epoch + 1, 0});
    orders.insert(order);
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  CHECK(orders.size() == 3);
}

TEST_CASE("without shuffling the order is the dataset's; drop_last drops") {
  LoaderOptions wanted = loading(1);
  wanted.shuffle = false;
  wanted.drop_last = true;
  Loader loader(numbers(10), wanted);
  CHECK(loader.batches() == 2);
  CHECK(loader.samples() == 8);
  const Contents contents = take_epochs(loader, 1);
  REQUIRE(contents.size() == 2);
  CHECK(contents[0].second == std::vector<double>{0, 1, 2, 3});
  CHECK(contents[1].second == std::vector<double>{4, 5, 6, 7});
}

TEST_CASE("content does not depend on threads or prefetch") {
  Loader plain(augmented(30), loading(0));
  const Contents expected = take_epochs(plain, 3);
  CHECK(expected.size() == 24);
  CHECK(expected[0].first != expected[8].first);
  for (int threads : {1, 2, 5})
    for (int prefetch : {1, 3, 40}) {
      LoaderOptions wanted = loading(threads);
      wanted.prefetch = prefetch;
      Loader loader(std::make_shared<Troubled>(augmented(30), -1), wanted);
      CHECK(take_epochs(loader, 3) == expected);
    }
  LoaderOptions other = loading(0);
  other.seed = 12;
  Loader different(augmented(30), other);
  CHECK(take_epochs(different, 3) != expected);
}

TEST_CASE("a resumed loader continues exactly") {
  Loader whole(augmented(22), loading(2));
  const Contents expected = take_epochs(whole, 3);
  for (size_t stop : {size_t{0}, size_t{1}, size_t{5}, size_t{6}, size_t{9}, size_t{17}}) {
    CAPTURE(stop);
    Contents contents;
    LoaderState state;
    {
      Loader before(augmented(22), loading(2));
      while (contents.size() < stop)
        if (const auto batch = before.next()) append(contents, *batch);
      state = before.state();
    }
    Loader after(augmented(22), loading(1));
    after.next();  // seek must drop what is in flight
    after.seek(state);
    CHECK(after.state() == state);
    while (contents.size() < expected.size())
      if (const auto batch = after.next()) append(contents, *batch);
    CHECK(contents == expected);
  }
}

TEST_CASE("an error in a worker reaches the consumer at its batch, again and again") {
  LoaderOptions wanted = loading(2);
  wanted.shuffle = false;
  for (int threads : {0, 2}) {
    wanted.threads = threads;
    Loader loader(std::make_shared<Troubled>(numbers(20), 9), wanted);
    CHECK(loader.next());
    CHECK(loader.next());
    for (int repeat = 0; repeat < 2; ++repeat)
      CHECK_THROWS_WITH_AS(loader.next(), doctest::Contains("sample is broken"), Error);
    CHECK(loader.state() == LoaderState{0, 2});
    loader.seek({0, 3});
    CHECK(loader.next()->target.item(0) == 12);
  }
}

TEST_CASE("a loader ends cleanly anywhere in an epoch and frees its batches") {
  const int64_t before = allocator(kCpu).report().of(Category::input);
  {
    const DatasetPtr data = numbers(50);
    for (int taken = 0; taken < 6; ++taken) {
      Loader loader(std::make_shared<Troubled>(data, -1), loading(3));
      for (int i = 0; i < taken; ++i) loader.next();
    }
    Loader idle(data, loading(2));
  }
  CHECK(allocator(kCpu).report().of(Category::input) == before);
}

TEST_CASE("the queue is bounded") {
  LoaderOptions wanted = loading(2, 5);
  wanted.prefetch = 2;
  Loader loader(numbers(50), wanted);
  const int64_t before = allocator(kCpu).report().of(Category::input);
  const auto batch = loader.next();
  // 5 * 12 floats, 5 labels and 5 places in the data set, each rounded up to 64 bytes
  const int64_t each = 256 + 64 + 64;
  CHECK(allocator(kCpu).report().of(Category::input) - before == 3 * each);
}

TEST_CASE(
    "workers share a job: every part is made once, then it is finished, and errors have an order") {
  struct Job {
    std::vector<std::atomic<int>> made = std::vector<std::atomic<int>>(10);
    std::atomic<int> finished = 0;
  };
  using Ahead = MadeAhead<std::shared_ptr<Job>>;
  for (const int threads : {0, 1, 3, 16}) {
    CAPTURE(threads);
    Ahead ahead(
        threads, 1, [](int64_t) { return std::make_shared<Job>(); },
        [](int64_t, std::shared_ptr<Job>& job, const Ahead::Part& part) {
          CHECK(job->finished == 0);
          for (int64_t i = part.begin(10); i < part.end(10); ++i)
            ++job->made[static_cast<size_t>(i)];
        },
        [](int64_t, std::shared_ptr<Job>& job) {
          for (const auto& times : job->made) CHECK(times == 1);
          ++job->finished;
        });
    for (int64_t number = 0; number < 20; ++number) CHECK(ahead.take(number, 20)->finished == 1);
    // All samples fail, and the first one is named.
    Ahead failing(
        threads, 1, [](int64_t) { return std::make_shared<Job>(); },
        [](int64_t, std::shared_ptr<Job>&, const Ahead::Part& part) {
          throw Error(std::to_string(part.begin(10)));
        },
        [](int64_t, std::shared_ptr<Job>&) { FAIL("finished"); });
    for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH_AS(failing.take(0, 20), "0", Error);
  }
}

TEST_CASE("workers make one batch of the default loader in advance, and all work on it") {
  class Slow final : public Dataset {
   public:
    int64_t size() const override { return 12; }
    int64_t classes() const override { return 2; }
    Shape sample_shape() const override { return {1}; }
    int64_t get_into(int64_t, RngKey, float* out) const override {
      *out = 0;
      std::unique_lock lock(mutex_);
      ++inside_;
      all_.notify_all();
      // Each worker waits for the others in its first sample.
      met_ = all_.wait_for(lock, std::chrono::seconds(20), [&] { return inside_ >= 3; });
      return 0;
    }
    mutable std::mutex mutex_;
    mutable std::condition_variable all_;
    mutable int inside_ = 0;
    mutable bool met_ = false;
  };
  const auto slow = std::make_shared<Slow>();
  Loader loader(slow, {.batch_size = 12, .threads = 3});
  CHECK(loader.ahead() == 1);
  CHECK(loader.next()->input.size(0) == 12);
  CHECK(slow->met_);
}

TEST_CASE("shuffling is a fair permutation") {
  const auto order = shuffled(1000, {3, 4});
  CHECK(order == shuffled(1000, {3, 4}));
  CHECK(order != shuffled(1000, {3, 5}));
  CHECK(std::set<int64_t>(order.begin(), order.end()).size() == 1000);
  std::vector<int> first(4);
  for (uint64_t trial = 0; trial < 4000; ++trial)
    ++first[static_cast<size_t>(shuffled(4, {trial, 0})[0])];
  for (int count : first) CHECK(std::abs(count - 1000) < 165);  // 6 sigma
  CHECK(shuffled(0, {}).empty());
}

TEST_CASE("impossible loaders are refused") {
  const DatasetPtr data = numbers(3);
  CHECK_THROWS_WITH_AS(Loader(data, loading(1, 0)), doctest::Contains("batch_size"), Error);
  CHECK_THROWS_WITH_AS(Loader(data, loading(-1)), doctest::Contains("threads"), Error);
  LoaderOptions wanted = loading(1);
  wanted.drop_last = true;
  CHECK_THROWS_WITH_AS(Loader(data, wanted), doctest::Contains("at most 3 samples"), Error);
  wanted = loading(1);
  wanted.prefetch = 0;
  CHECK_THROWS_WITH_AS(Loader(data, wanted), doctest::Contains("prefetch"), Error);
  CHECK_THROWS_WITH_AS(Loader(nullptr, loading(1)), doctest::Contains("empty"), Error);
  Loader loader(data, loading(1));
  CHECK_THROWS_WITH_AS(loader.seek({0, 2}), doctest::Contains("a batch in [0, 1]"), Error);
  CHECK_THROWS_AS(loader.seek({-1, 0}), Error);
}

TEST_CASE("a second view: the same samples under other draws, whatever the threads are") {
  const auto batches = [](int threads) {
    const DatasetPtr dataset = augmented(20);
    Loader loader(dataset,
                  {.batch_size = 6, .seed = 3, .threads = threads, .second_view = dataset});
    Contents first, second;
    for (int epoch = 0; epoch < 2; ++epoch)
      while (const auto batch = loader.next()) {
        append(first, *batch);
        REQUIRE(batch->extras.size() == 1);
        CHECK(batch->extras[0].first == "second_view");
        const Tensor view = batch->extras[0].second;
        CHECK(view.shape() == batch->input.shape());
        second.emplace_back(view.to_vector(), batch->target.to_vector());
      }
    return std::pair{first, second};
  };
  const auto [first, second] = batches(0);
  CHECK(batches(1) == std::pair{first, second});
  CHECK(batches(3) == std::pair{first, second});
  int same = 0;
  for (size_t b = 0; b < first.size(); ++b) same += first[b].first == second[b].first ? 1 : 0;
  CHECK(same == 0);
  // The first views are those of a loader without second ones.
  Loader alone(augmented(20), {.batch_size = 6, .seed = 3, .threads = 0});
  CHECK(take_epochs(alone, 2) == first);
}

TEST_CASE("a second view may be changed in another way") {
  const DatasetPtr plain = numbers(5), flipped = std::make_shared<HorizontalFlip>(numbers(5), 1.0);
  Loader loader(plain, {.batch_size = 5, .shuffle = false, .threads = 0, .second_view = flipped});
  const Batch batch = *loader.next();
  CHECK(batch.input.to_vector() != batch.extras[0].second.to_vector());
  std::vector<float> wanted(12);
  flipped->get_into(0, {}, wanted.data());
  for (int64_t i = 0; i < 12; ++i)
    CHECK(batch.extras[0].second.item<float>(i) == wanted[static_cast<size_t>(i)]);
}

TEST_CASE("a second view refuses other samples and mixing") {
  CHECK_THROWS_WITH_AS(Loader(numbers(5), {.second_view = numbers(4)}),
                       doctest::Contains("[loader] expected second views of 5 samples"), Error);
  CHECK_THROWS_WITH_AS(Loader(numbers(5), {.mix = {.mixup = 1}, .second_view = numbers(5)}),
                       doctest::Contains("[loader] expected no second view beside mixed"), Error);
}

TEST_CASE("shares of images: labels, pixels, rows of targets and second views") {
  const DatasetPtr images = augmented(22);
  std::vector<float> values(22 * 3);
  std::iota(values.begin(), values.end(), 0.5f);
  std::vector<float> answers(22 * 2);
  for (size_t i = 0; i < answers.size(); ++i) answers[i] = static_cast<float>(uniform({3, 0}, i));
  SampleTargets targets{{}, 1, {std::move(answers), 2, FloatTargets::values}};
  for (int64_t i = 0; i < 22; ++i) targets.labels.push_back(i % 6 == 5 ? kIgnored : 21 - i);
  const DatasetPtr rows =
      std::make_shared<TensorDataset>("test", Tensor::from(values, {22, 3}), targets);
  for (const int threads : {0, 1, 3})
    for (const bool drop_last : {false, true}) {
      CAPTURE(threads);
      CAPTURE(drop_last);
      LoaderOptions wanted = loading(threads, 5);
      wanted.drop_last = drop_last;
      const auto check = [&](const DatasetPtr& dataset) {
        const auto make = [&] { return std::make_unique<Loader>(dataset, wanted); };
        check_shares(make);
        check_smallest_batch(*make(), drop_last ? 5 : 2);
      };
      check(std::make_shared<Troubled>(images, -1));
      check(std::make_shared<Pixels>(images));
      check(rows);
      wanted.second_view = images;
      check(images);
    }
}

TEST_CASE("shares of mixed images: partners may lie in another share") {
  // The labels of some do not count, and neither does what is mixed with them.
  std::vector<float> values(22 * 24);
  std::iota(values.begin(), values.end(), 0.0f);
  SampleTargets targets{{}, 22, {}};
  for (int64_t i = 0; i < 22; ++i) targets.labels.push_back(i % 5 == 4 ? kIgnored : i);
  const DatasetPtr images = std::make_shared<PadCrop>(
      std::make_shared<TensorDataset>("test", Tensor::from(values, {22, 4, 3, 2}), targets), 1);
  for (const int threads : {0, 2})
    for (const MixOptions& mix :
         {MixOptions{.mixup = 1}, MixOptions{.cutmix = 1}, MixOptions{.mixup = 0.4, .cutmix = 1}}) {
      LoaderOptions wanted = loading(threads, 5);
      wanted.mix = mix;
      check_shares([&] { return std::make_unique<Loader>(images, wanted); });
    }
}

TEST_CASE("a process reads its own samples, and one partner where they are mixed") {
  for (const bool mixed : {false, true}) {
    const auto counted = std::make_shared<Counted>(numbers(16));
    LoaderOptions wanted = loading(0, 8);
    if (mixed) wanted.mix.mixup = 1;
    Loader loader(counted, wanted);
    loader.set_share({1, 4});
    loader.next();
    CHECK(counted->read == (mixed ? 3 : 2));
    loader.set_share({0, 1});
    loader.next();
    CHECK(counted->read == (mixed ? 3 : 2) + 8);
  }
}

TEST_CASE("another share drops the batches that were made in advance") {
  LoaderOptions wanted = loading(2, 8);
  Loader loader(numbers(64), wanted);
  const int64_t before = allocator(kCpu).report().of(Category::input);
  loader.next();
  CHECK(allocator(kCpu).report().of(Category::input) > before);
  loader.set_share({0, 2});
  CHECK(allocator(kCpu).report().of(Category::input) == before);
}
