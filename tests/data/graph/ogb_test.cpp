#include "data/graph/ogb.h"

#include <doctest/doctest.h>

#include <map>

#include "data/dataset.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

struct OgbFiles {
  std::map<std::string, std::string> content = {
      {"raw/edge.csv", "0,1\n2,1\n1,2\n3,3\n"},
      {"raw/node-feat.csv", "0.5,-1\n1e-3,2\n0,0\n4,-4\n"},
      {"raw/node-label.csv", "2\n0.0\nnan\n1\n"},
      {"split/time/train.csv", "3\n0\n"},
      {"split/time/valid.csv", "1\n"},
      {"split/time/test.csv", ""},
  };

  GraphData open(bool zipped = false, bool undirected = true,
                 const GraphOptions& options = {false, false}) const {
    const TemporaryFolder folder;
    for (const auto& [name, text] : content) {
      std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
      folder.write(zipped ? name + ".gz" : name, zipped ? gzip(text) : text);
    }
    return open_ogb(folder.path(), undirected, options);
  }
};

void rejects_ogb(const std::string& name, const std::string& text, const char* message) {
  OgbFiles files;
  files.content[name] = text;
  CHECK_THROWS_WITH_AS(files.open(), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(files.open(true), doctest::Contains(name.c_str()), Error);
}

}  // namespace

TEST_CASE("a small OGB graph, plain and gzipped") {
  for (const bool zipped : {false, true}) {
    const GraphData graph = OgbFiles().open(zipped);
    CHECK(graph.nodes == 4);
    CHECK(graph.features == 2);
    CHECK(graph.classes == 3);
    CHECK(graph.x.to_vector() ==
          std::vector<double>{0.5, -1, static_cast<double>(1e-3f), 2, 0, 0, 4, -4});
    CHECK(graph.y.to_vector() == std::vector<double>{2, 0, kIgnored, 1});
    CHECK(graph.edge_index.to_vector() == std::vector<double>{0, 1, 1, 2, 3, 1, 0, 2, 1, 3});
    CHECK(graph.train_mask.to_vector() == std::vector<double>{1, 0, 0, 1});
    CHECK(graph.val_mask.to_vector() == std::vector<double>{0, 1, 0, 0});
    CHECK(graph.test_mask.to_vector() == std::vector<double>{0, 0, 0, 0});
  }
  CHECK(OgbFiles().open(false, false).edge_index.to_vector() ==
        std::vector<double>{0, 1, 2, 3, 1, 2, 1, 3});
  const GraphData sparse = OgbFiles().open(true, true, {false, true});
  CHECK(sparse.x_row_ptr.to_vector() == std::vector<double>{0, 2, 4, 4, 6});
  CHECK(sparse.x_value.item(5) == -4);
}

TEST_CASE("a self-loop stays an edge, once, in a directed and in an undirected graph") {
  OgbFiles files;
  files.content["raw/edge.csv"] = "0,1\n1,1\n1,1\n0,1\n";
  CHECK(files.open(false, false).edge_index.to_vector() == std::vector<double>{0, 1, 1, 1});
  CHECK(files.open().edge_index.to_vector() == std::vector<double>{0, 1, 1, 1, 0, 1});
}

TEST_CASE("several labels a node") {
  OgbFiles files;
  files.content["raw/node-label.csv"] = "0,1\n1,1\n,0\nnan,1\n";
  const GraphData graph = files.open();
  CHECK(graph.classes == 2);
  CHECK(graph.y.shape() == Shape{4, 2});
  CHECK(graph.y.to_vector() == std::vector<double>{0, 1, 1, 1, kIgnored, 0, kIgnored, 1});
}

TEST_CASE("OGB files that lie are refused, with file and line") {
  rejects_ogb("raw/edge.csv", "0,1\n0,4\n", "integer in [0, 4) in field 2, got \"4\"");
  rejects_ogb("raw/edge.csv", "0,1\n-1,2\n", "line 2");
  rejects_ogb("raw/edge.csv", "0,1,2\n", "2 fields, got 3");
  rejects_ogb("raw/node-feat.csv", "0.5,-1\n1\n", "2 fields, got 1");
  rejects_ogb("raw/node-feat.csv", "0.5,x\n", "a number in field 2");
  rejects_ogb("raw/node-feat.csv", "0.5,1\n1,nan\n", "got nan at line 2, node 1, column 1");
  rejects_ogb("raw/node-feat.csv", "0.5,1\n1,inf\n", "got inf");
  rejects_ogb("raw/node-feat.csv", "", "an empty file");
  rejects_ogb("raw/node-label.csv", "0\n1\n", "4 labels");
  rejects_ogb("raw/node-label.csv", "0\n-1\n", "got -1 at line 2");
  rejects_ogb("raw/node-label.csv", "0\n0.5\n", "got 0.5 at line 2");
  rejects_ogb("raw/node-label.csv", "0\n4096\n", "labels in [0, 4096)");
  rejects_ogb("raw/node-label.csv", "0,1\n1,2\n", "labels of 0 or 1");
  rejects_ogb("split/time/train.csv", "4\n", "got \"4\"");
  rejects_ogb("split/time/train.csv", "1\n1\n", "1 twice");
  rejects_ogb("split/time/valid.csv", "3\n", "in no other part of the split, got");
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(open_ogb(folder.path()), doctest::Contains("node-feat.csv.gz"), Error);
  OgbFiles files;
  files.content["split/train.csv"] = "";
  CHECK(files.open().nodes == 4);  // a file beside the split is none
  files.content["split/other/train.csv"] = "0\n";
  CHECK_THROWS_WITH_AS(files.open(), doctest::Contains("expected one split in"), Error);
}
