#include "data/class_names.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/split.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using frugal_test::TemporaryFolder;
using Names = std::vector<std::string>;

TEST_CASE("names of classes: lists, ImageNet's class index and its synsets") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return read_class_names(folder.write("names", text));
  };
  CHECK(read("cat\r\ngreat white shark\n\n").names == Names{"cat", "great white shark"});
  CHECK(read("[\"b\", \"a\"]").ids == Names{"b", "a"});
  CHECK(read("{\"1\": \"a\", \"0\": \"b\"}").ids == Names{"b", "a"});
  const ClassNames index =
      read("{\"0\": [\"n01440764\", \"tench\"], \"1\": [\"n01443537\", \"goldfish\"]}");
  CHECK(index.ids == Names{"n01440764", "n01443537"});
  CHECK(index.names == Names{"tench", "goldfish"});
  CHECK(read("n01440764 tench, Tinca tinca\n").ids == Names{"n01440764"});
  CHECK(read("n01440764 tench, Tinca tinca\n").names == Names{"tench, Tinca tinca"});
  CHECK(order_of_classes(index, {"n01443537"}, "f").names == index.names);
  CHECK(order_of_classes(index, {"goldfish", "tench"}, "f").ids == index.names);
  CHECK(order_of_classes(index, {"1"}, "f").ids == Names{"0", "1"});
  CHECK(order_of_classes(index, {"1"}, "f").names == index.names);
  CHECK_THROWS_WITH_AS(order_of_classes(index, {"2"}, "f"), doctest::Contains("got \"2\""), Error);
  CHECK_THROWS_WITH_AS(order_of_classes(index, {"dog"}, "f"), doctest::Contains("got \"dog\""),
                       Error);
}

TEST_CASE("wrong files of names are named") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const char* message) {
    const std::string path = folder.write("names", text);
    CHECK_THROWS_WITH_AS(read_class_names(path), doctest::Contains(message), Error);
  };
  refused("", "got none");
  refused("a\na\n", "got \"a\" twice");
  refused("{\"1\": \"a\"}", "got no \"0\"");
  refused("{\"0\": 5}", "expected the name of a class, got 5");
  refused("{\"0\": [\"n1\", \"a\", \"b\"]}", "expected an id and a name, got [");
  refused("[\"a\"", "[classes]");
}

TEST_CASE("samples are split each class alike, and no class loses its only sample") {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 100; ++i) labels.push_back(i % 2);
  labels.push_back(2);
  const SplitIndices split = split_samples(labels, 3, 0.5, 0.3, 7);
  CHECK(split.test.size() == 20);
  CHECK(split.validation.size() == 30);
  CHECK(split.train.size() == 51);
  CHECK(split.train.back() == 100);
  CHECK(split_samples(labels, 3, 0.5, 0.3, 7).test == split.test);
  CHECK(split_samples(labels, 3, 0.5, 0.3, 8).test != split.test);
  // What 0.7 and 0.3 leave of 1 is no part.
  for (const double train : {0.7, 0.95, 0.8}) {
    const SplitIndices two = split_samples(labels, 3, train, 1 - train, 7);
    CHECK(two.test.empty());
    CHECK(two.train.size() + two.validation.size() == labels.size());
  }
}
