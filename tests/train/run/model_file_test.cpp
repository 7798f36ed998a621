#include "train/run/model_file.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>

#include "models/activations.h"
#include "models/layers.h"
#include "models/state.h"

using namespace frugal;

namespace {

using models::Sequential;

// A file's path in a folder of its own, which goes with it.
struct File {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("frugal_model_file_" + std::to_string(getpid()));
  File() { std::filesystem::create_directories(folder); }
  ~File() { std::filesystem::remove_all(folder); }
  std::string path() const { return folder / "net.safetensors"; }
};

Sequential net_of(uint64_t seed) {
  models::Init init{Rng(seed)};
  return Sequential{models::Conv2d(init, 2, 3, 3), models::BatchNorm2d(init, 3), models::Relu(),
                    models::Flatten(), models::Linear(init, 12, 2)};
}

std::vector<double> values(Module& model) {
  std::vector<double> all;
  for (const auto& [name, tensor] : models::state_dict(model))
    for (const double value : tensor.to_vector()) all.push_back(value);
  return all;
}

}  // namespace

TEST_CASE("a model comes back from its file") {
  const File file;
  Sequential a = net_of(1), b = net_of(2);
  Context context;
  a.forward(Variable(Tensor::randn({4, 4, 4, 2}, {3, 0})), context);  // moves running statistics
  REQUIRE(values(a) != values(b));
  save(a, file.path());
  CHECK(load(b, file.path()).missing.empty());
  CHECK(values(a) == values(b));
}

TEST_CASE("a file of another model is refused, with all names, and changes nothing") {
  const File file;
  Sequential a = net_of(1), b{models::Linear(3, 2), models::Linear(2, 2), models::Linear(2, 2)};
  save(a, file.path());
  const std::vector<double> before = values(b);
  CHECK_THROWS_WITH_AS(load(b, file.path()), doctest::Contains("missing (3):"), Error);
  CHECK_THROWS_WITH_AS(load(b, file.path()), doctest::Contains("2.weight"), Error);
  CHECK_THROWS_WITH_AS(load(b, file.path()), doctest::Contains("unexpected (5):"), Error);
  CHECK_THROWS_WITH_AS(load(b, file.path()), doctest::Contains("4.bias"), Error);
  CHECK_THROWS_WITH_AS(load(b, file.path()), doctest::Contains("net.safetensors"), Error);
  CHECK(values(b) == before);
  CHECK_THROWS_AS(load(b, file.path() + "x"), Error);
}

TEST_CASE("a load that is not strict takes what fits and names the rest") {
  const File file;
  models::Init init{Rng(4)};
  Sequential a{models::Linear(init, 3, 2), models::Linear(init, 2, 2)};
  Sequential b{models::Linear(init, 3, 2), models::Relu(), models::Linear(init, 2, 5)};
  const auto weight = [](Module& m, size_t i) {
    return m.parameters()[i].parameter->value().to_vector();
  };
  save(a, file.path());
  const std::vector<double> last = weight(b, 2);
  const LoadedNames names = load(b, file.path(), {.strict = false});
  CHECK(names.missing == std::vector<std::string>{"2.weight", "2.bias"});
  CHECK(names.unexpected == std::vector<std::string>{"1.weight", "1.bias"});
  CHECK(weight(b, 0) == weight(a, 0));
  CHECK(weight(b, 2) == last);
  Sequential wide{models::Linear(4, 2)};
  CHECK_THROWS_WITH_AS(load(wide, file.path(), {.strict = false}), doctest::Contains("wrong shape"),
                       Error);
}

TEST_CASE("a file is read one tensor after the other") {
  const File file;
  const auto net = [](uint64_t seed) {
    models::Init init{Rng(seed)};
    return Sequential{models::Linear(init, 256, 256), models::Linear(init, 256, 256),
                      models::Linear(init, 256, 256), models::Linear(init, 256, 256)};
  };
  Sequential a = net(1), b = net(2);
  save(a, file.path());
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().live_total;
  load(b, file.path());
  CHECK(allocator(kCpu).report().peak_total - before < 3 * 256 * 256 * 4 / 2);
  CHECK(values(a) == values(b));
}
