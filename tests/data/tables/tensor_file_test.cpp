#include "data/tables/tensor_file.h"

#include <doctest/doctest.h>

#include "data/formats/safetensors.h"
#include "tests/data/files.h"
#include "tests/data/formats/arrays.h"

using namespace frugal;
using namespace frugal::data;
using frugal_test::TemporaryFolder;

namespace {

TensorFile file_of(const TemporaryFolder& folder, const Tensor& target) {
  write_safetensors(folder / "a.safetensors", {{"target", target}});
  return TensorFile(folder / "a.safetensors");
}

SampleTargets targets(const Tensor& target, TargetTask task = TargetTask::automatic,
                      const SampleTargets* like = nullptr) {
  const TemporaryFolder folder;
  return read_targets(file_of(folder, target), "target", task, like);
}

}  // namespace

TEST_CASE("targets are classes, labels or values by their type") {
  const SampleTargets classes = targets(Tensor::from<int64_t>({2, 0, 1}, {3}));
  CHECK(classes.classes == 3);
  CHECK(classes.labels == std::vector<int64_t>{2, 0, 1});
  CHECK(!classes.rows.defined());
  const SampleTargets one_hot = targets(Tensor::from<float>({0, 1, 1, 0}, {2, 2}));
  CHECK(one_hot.labels == std::vector<int64_t>{1, 0});
  const SampleTargets labels = targets(Tensor::from<float>({1, 1, 0, 0}, {2, 2}));
  CHECK(labels.rows.kind == FloatTargets::answers);
  CHECK(labels.classes == 2);
  const SampleTargets values = targets(Tensor::from<float>({1.5f, -2}, {2}));
  CHECK(values.rows.kind == FloatTargets::values);
  CHECK(values.classes == 1);
  CHECK(targets(Tensor::from<float>({0, 1, 1, 0}, {2, 2}), TargetTask::labels).rows.kind ==
        FloatTargets::answers);
}

TEST_CASE("wrong targets are named") {
  const auto refused = [](const Tensor& target, TargetTask task, const SampleTargets* like,
                          const char* message) {
    CHECK_THROWS_WITH_AS(targets(target, task, like), doctest::Contains(message), Error);
  };
  using Task = TargetTask;
  const SampleTargets three = targets(Tensor::from<int64_t>({2, 0, 1}, {3}));
  refused(Tensor::from<int64_t>({0, 3}, {2}), Task::automatic, &three,
          "expected one of the 3 classes of the training part, got 3 of sample 1");
  refused(Tensor::from<int64_t>({0, -1}, {2}), Task::automatic, nullptr,
          "expected a class, a whole number from 0 on, got -1 of sample 1");
  refused(Tensor::from<float>({0, NAN}, {2}), Task::automatic, nullptr, "got nan of sample 1");
  refused(Tensor::from<float>({0, 2}, {1, 2}), Task::labels, nullptr, "labels of 0 and 1");
  refused(Tensor::from<float>({0.5f}, {1}), Task::classes, nullptr, "expected a class");
  refused(Tensor::zeros({2, 2, 2}), Task::automatic, nullptr, "expected targets [N] or [N, C]");
  const SampleTargets two = targets(Tensor::from<float>({1.5f, 2}, {1, 2}));
  refused(Tensor::from<float>({1.5f}, {1, 1}), Task::automatic, &two,
          "expected 2 columns, as in the training part, got 1");
}

TEST_CASE("npz and safetensors hold arrays by name") {
  const TemporaryFolder folder;
  folder.write("a.npz",
               frugal_test::zip({{"input.npy", frugal_test::npy_of<float>("<f4", {1, 2})}}));
  const TensorFile npz(folder / "a.npz");
  CHECK(npz.contains("input"));
  CHECK(npz.shape("input") == Shape{2});
  CHECK(npz.read("input").to_vector() == std::vector<double>{1, 2});
  CHECK_THROWS_WITH_AS(npz.read("inptu"), doctest::Contains("expected an array \"inptu\""), Error);
  CHECK_THROWS_WITH_AS(TensorFile(folder / "a.pt"), doctest::Contains(".npz or .safetensors"),
                       Error);
}

TEST_CASE("a dataset of arrays scales bytes and turns channels to the end") {
  SampleTargets targets;
  targets.labels = {0, 1};
  targets.classes = 2;
  const Tensor floats = Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 1, 2});
  const TensorDataset turned("a", floats, targets, true);
  CHECK(turned.sample_shape() == Shape{1, 2, 3});
  CHECK(turned.get(1).input.to_vector() == std::vector<double>{6, 8, 10, 7, 9, 11});
  const TensorDataset bytes("a", Tensor::full({2, 1}, 255, DType::u8), targets);
  CHECK(bytes.get(0).input.to_vector() == std::vector<double>{1});
  CHECK_THROWS_WITH_AS(TensorDataset("a", Tensor::from<float>({1, NAN}, {2, 1}), targets),
                       doctest::Contains("expected finite numbers, got nan in sample 1"), Error);
  CHECK_THROWS_WITH_AS(TensorDataset("a", Tensor::zeros({3, 1}), targets),
                       doctest::Contains("expected 3 targets"), Error);
}
