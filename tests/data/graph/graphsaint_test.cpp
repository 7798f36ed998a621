#include "data/graph/graphsaint.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/data/files.h"
#include "tests/data/formats/arrays.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

std::string adjacency(int64_t nodes, const std::vector<int32_t>& row_ptr,
                      const std::vector<int32_t>& col, const std::string& format = "csr") {
  std::vector<std::pair<std::string, std::string>> entries;
  entries.emplace_back("format.npy", npy(fmt::format("|S{}", format.size()), "()", format));
  add_csr(entries, "", nodes, nodes, row_ptr, col, std::vector<float>(col.size(), 1.0f));
  return zip(entries, true);
}

struct GraphSaintFiles {
  // 0 - 1, 1 - 2, 2 - 3, 0 - 3; nodes 0, 1 and 3 train.
  std::map<std::string, std::string> content = {
      {"adj_full.npz", adjacency(4, {0, 2, 4, 6, 8}, {1, 3, 0, 2, 1, 3, 2, 0})},
      {"feats.npy", npy("<f8", "(4, 2)", raw_bytes<double>({1, 5, 3, 5, 9, 7, 5, 5}))},
      {"class_map.json", R"({"0": 1, "1": 0, "3": 2, "2": 1})"},
      {"role.json", R"({"tr": [0, 1, 3], "va": [2], "te": []})"},
  };

  GraphData open(const GraphSaintOptions& options = {}) const {
    const TemporaryFolder folder;
    for (const auto& [name, text] : content) folder.write(name, text);
    return open_graphsaint(folder.path(), options);
  }
};

void rejects_graphsaint(const std::string& name, const std::string& text, const char* message) {
  GraphSaintFiles files;
  files.content[name] = text;
  CHECK_THROWS_WITH_AS(files.open(), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(files.open(), doctest::Contains(name.c_str()), Error);
}

}  // namespace

TEST_CASE("a small GraphSAINT set") {
  GraphSaintFiles files;
  const GraphData graph = files.open();
  CHECK(graph.nodes == 4);
  CHECK(graph.classes == 3);
  CHECK(graph.y.to_vector() == std::vector<double>{1, 0, 1, 2});
  CHECK(graph.edges() == 8);
  CHECK(graph.train_edge_index.to_vector() == std::vector<double>{0, 0, 1, 3, 1, 3, 0, 0});
  CHECK(graph.train_mask.to_vector() == std::vector<double>{1, 1, 0, 1});
  CHECK(graph.val_mask.to_vector() == std::vector<double>{0, 0, 1, 0});
  // Mean and variance of the training nodes 0, 1 and 3; the second column is constant there.
  const double unit = std::sqrt(8.0 / 3);
  const std::vector<double> expected{-2 / unit, 0, 0, 0, 6 / unit, 2, 2 / unit, 0};
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(graph.x.item(static_cast<int64_t>(i)) == doctest::Approx(expected[i]));
  CHECK(files.open({false, {false, false}}).x.item(4) == 9);
  CHECK(files.open({false, {true, true}}).x_value.item(0) == doctest::Approx(1.0 / 6));

  // Directed: row 0 lists who sends to node 0. And what training may see, from its own file.
  files.content["adj_full.npz"] = adjacency(4, {0, 1, 1, 1, 1}, {2});
  files.content["adj_train.npz"] = adjacency(4, {0, 0, 1, 1, 1}, {0});
  const GraphData directed = files.open();
  CHECK(directed.edge_index.to_vector() == std::vector<double>{2, 0});
  CHECK(directed.train_edge_index.to_vector() == std::vector<double>{0, 1});
}

TEST_CASE("GraphSAINT features far from 0 are standardized as their file has them") {
  GraphSaintFiles files;
  const GraphData near = files.open();
  std::vector<double> far{1, 5, 3, 5, 9, 7, 5, 5};
  for (double& each : far) each += 1.7e9;
  files.content["feats.npy"] = npy("<f8", "(4, 2)", raw_bytes<double>(far));
  CHECK(files.open().x.to_vector() == near.x.to_vector());
}

TEST_CASE("several labels a node, in any order") {
  GraphSaintFiles files;
  files.content["class_map.json"] = R"({"3": [1, 1], "0": [0, 1], "2": [0, 0], "1": [1, 0]})";
  const GraphData graph = files.open();
  CHECK(graph.classes == 2);
  CHECK(graph.y.to_vector() == std::vector<double>{0, 1, 1, 0, 0, 0, 1, 1});
}

TEST_CASE("GraphSAINT files that disagree are refused") {
  rejects_graphsaint("adj_full.npz", "PK", "a zip archive");
  rejects_graphsaint("adj_full.npz", adjacency(4, {0, 1, 1, 1, 1}, {4}), "columns in [0, 4)");
  // What SciPy writes of a matrix's transpose: by columns, in arrays of equal names.
  rejects_graphsaint("adj_full.npz", adjacency(4, {0, 1, 1, 1, 1}, {2}, "csc"), "got \"csc\"");
  std::vector<std::pair<std::string, std::string>> number = {
      {"format.npy", npy_of<int32_t>("<i4", {1})}};
  add_csr(number, "", 4, 4, {0, 1, 1, 1, 1}, {2}, {1.0f});
  rejects_graphsaint("adj_full.npz", zip(number, true), "expected a text");
  rejects_graphsaint("adj_train.npz", adjacency(3, {0, 0, 0, 0}, {}), "a matrix [4, 4]");
  rejects_graphsaint("feats.npy", npy("<f8", "(3, 2)", raw_bytes<double>({1, 2, 3, 4, 5, 6})),
                     "features [4, F]");
  rejects_graphsaint("feats.npy", npy("<f8", "(4, 1)", raw_bytes<double>({1, NAN, 3, 4})),
                     "got nan at node 1, column 0");
  rejects_graphsaint("feats.npy", npy("<f8", "(4, 1)", raw_bytes<double>({1, 1e300, 3, 4})),
                     "got inf");
  rejects_graphsaint("class_map.json", R"({"0": 1})", "labels of 4 nodes");
  rejects_graphsaint("class_map.json", R"({"0": 1, "0": 1})", "0 twice");
  rejects_graphsaint("class_map.json", R"({"0": -1})", "got -1 at node 0");
  rejects_graphsaint("class_map.json", R"({"4": 1})", "nodes in [0, 4)");
  rejects_graphsaint("class_map.json", R"({"0": 1, "1": [1]})", "got another at node 1");
  rejects_graphsaint("class_map.json", R"({"0": [1], "1": [1, 0]})", "got another at node 1");
  rejects_graphsaint("class_map.json", R"({"0": []})", "expected 1 to 4095 labels");
  rejects_graphsaint("class_map.json", R"({"0": 4096})", "labels in [0, 4096)");
  rejects_graphsaint("class_map.json", R"({"0": [2]})", "labels in [0, 2)");
  rejects_graphsaint("role.json", R"({"tr": [0], "va": [1]})", "got less");
  rejects_graphsaint("role.json", R"({"tr": [0], "va": [1], "te": [0]})", "got 0 in two");
  rejects_graphsaint("role.json", R"({"tr": [0, 0], "va": [1], "te": []})", "0 twice");
  rejects_graphsaint("role.json", R"({"tr": [4], "va": [1], "te": []})", "nodes in [0, 4)");
  rejects_graphsaint("role.json", R"({"tr": [0], "xx": [1], "te": []})", "got \"xx\"");
  rejects_graphsaint("role.json", R"({"tr": 0, "va": [1], "te": []})", "the lists tr, va and te");
  CHECK_THROWS_WITH_AS(GraphSaintFiles().open({true, {false, true}}),
                       doctest::Contains("dense features"), Error);
}
