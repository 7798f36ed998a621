#include "data/graph/planetoid.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "data/dataset.h"
#include "tests/data/files.h"
#include "tests/data/formats/pickles.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

int64_t count(const Tensor& mask) {
  int64_t members = 0;
  for (const double bit : mask.to_vector()) members += bit != 0;
  return members;
}

// 2 training nodes, 500 to validate, 4 test nodes of which 504 and 502 are given: 503 is isolated.
struct Small {
  static constexpr int64_t kAll = 502, kNodes = 505;
  std::map<std::string, std::string> files;

  Small() {
    files["allx"] = protocol2(rows(kAll, 1));
    files["x"] = protocol2(rows(2, 1));
    files["tx"] = protocol2(rows(2, 3));
    files["ally"] = protocol2(labels(kAll, 0));
    files["y"] = protocol2(labels(2, 0));
    files["ty"] = protocol2(labels(2, 1));
    files["test.index"] = "504\n502\n";
    std::vector<std::vector<int64_t>> lists(kNodes);
    lists[0] = {1, 1, 504};
    lists[1] = {0, 1};
    lists[502] = {3};
    files["graph"] = protocol2(pickled_lists(lists));
  }
  // Row i holds `value` at column i % 3 and 1 at column 3.
  static std::string rows(int64_t n, float value) {
    std::vector<int32_t> row_ptr{0}, col;
    std::vector<float> values;
    for (int32_t i = 0; i < n; ++i) {
      col.insert(col.end(), {i % 3, 3});
      values.insert(values.end(), {value, 1});
      row_ptr.push_back(2 * (i + 1));
    }
    return pickled_csr(n, 4, row_ptr, col, values);
  }
  static std::string labels(int64_t n, int64_t shift) {
    std::vector<int32_t> hot(static_cast<size_t>(2 * n));
    for (int64_t i = 0; i < n; ++i) hot[static_cast<size_t>(2 * i + (i + shift) % 2)] = 1;
    return pickled_array("i4", {n, 2}, raw_bytes(hot));
  }
  GraphData open(const GraphOptions& options = {}) const {
    const TemporaryFolder folder;
    for (const auto& [name, content] : files) folder.write("ind.small." + name, content);
    return open_planetoid(folder.path(), "small", options);
  }
  void rejects(const std::string& name, const std::string& content, const char* message) const {
    Small other = *this;
    other.files[name] = content;
    CHECK_THROWS_WITH_AS(other.open(), doctest::Contains(message), Error);
  }
};

}  // namespace

TEST_CASE("a small Planetoid set is put together") {
  const GraphData graph = Small().open();
  CHECK(graph.nodes == 505);
  CHECK(graph.features == 4);
  CHECK(graph.classes == 2);
  CHECK(count(graph.train_mask) == 2);
  CHECK(count(graph.val_mask) == 500);
  CHECK(graph.test_mask.to_vector()[502] == 1);
  CHECK(graph.test_mask.to_vector()[503] == 0);
  CHECK(graph.test_mask.to_vector()[504] == 1);
  CHECK(graph.y.item(504) == 1);  // the first row of ty, by test.index
  CHECK(graph.y.item(502) == 0);
  CHECK(graph.y.item(503) == kIgnored);
  // Both directions, once, without the self-loop at 1: 0-1, 0-504, 502-3.
  CHECK(graph.edge_index.to_vector() ==
        std::vector<double>{0, 0, 1, 3, 502, 504, 1, 504, 0, 502, 3, 0});
  CHECK(graph.x.select(0, 1).to_vector() == std::vector<double>{0, 0.5, 0, 0.5});
  CHECK(graph.x.select(0, 504).to_vector() == std::vector<double>{0.75, 0, 0, 0.25});
  CHECK(graph.x.select(0, 503).to_vector() == std::vector<double>{0, 0, 0, 0});

  const GraphData plain = Small().open({false, true});
  CHECK(plain.sparse());
  CHECK(!plain.x.defined());
  CHECK(plain.x_row_ptr.item(505) == 1008);
  CHECK(plain.x_row_ptr.item(504) == plain.x_row_ptr.item(503));
  CHECK(plain.x_value.item(1006) == 3);
  CHECK(plain.x_col.item(1006) == 0);
}

TEST_CASE("Planetoid files that disagree are refused") {
  const Small good;
  good.rejects("test.index", "504\n", "as many rows");
  good.rejects("test.index", "504\n504\n", "504 twice");
  good.rejects("test.index", "504\n501\n", "got 501");
  good.rejects("test.index", "504\n900000000\n", "got 900000000");
  good.rejects("test.index", "504\nx\n", "line 2");
  good.rejects("test.index", "504\n-3\n", "line 2");
  good.rejects("ty", protocol2(Small::labels(3, 0)), "labels [2, 2]");
  good.rejects("ty", protocol2(pickled_array("i4", {2, 2}, raw_bytes<int32_t>({1, 0, 1, 1}))),
               "another row 1");
  good.rejects("ty", protocol2(pickled_array("i4", {2, 2}, raw_bytes<int32_t>({1, 0, 2, 0}))),
               "one-hot");
  good.rejects("y", protocol2(Small::labels(2, 1)), "first rows");
  good.rejects("x", protocol2(Small::rows(3, 1)), "labels [3, C]");
  good.rejects("graph", protocol2(pickled_lists({{505}})), "an edge from 0 to 505");
  good.rejects("graph", protocol2(pickled_lists({{-1}})), "an edge from 0 to -1");
  good.rejects("allx", "", "allx");
  CHECK_THROWS_WITH_AS(open_planetoid("/nonexistent", "cora"), doctest::Contains("ind.cora.graph"),
                       Error);
}

TEST_CASE("Cora, Citeseer and Pubmed in FRUGAL_DATA") {
  struct Row {
    const char* name;
    int64_t nodes, edges, features, classes, train, unlabelled;
  };
  const char* root = std::getenv("FRUGAL_DATA");
  for (const Row& row :
       {Row{"cora", 2708, 5278, 1433, 7, 140, 0}, Row{"citeseer", 3327, 4552, 3703, 6, 120, 15},
        Row{"pubmed", 19717, 44324, 500, 3, 60, 0}}) {
    const std::string folder = root == nullptr ? "" : root;
    if (folder.empty() ||
        !std::filesystem::exists(folder + "/planetoid/ind." + row.name + ".graph")) {
      MESSAGE("skipped: no planetoid/ind." << std::string(row.name) << ".graph in $FRUGAL_DATA");
      continue;
    }
    CAPTURE(row.name);
    const GraphData graph = open_planetoid(folder, row.name, {true, true});
    CHECK(graph.nodes == row.nodes);
    CHECK(graph.edges() == 2 * row.edges);
    CHECK(graph.features == row.features);
    CHECK(graph.classes == row.classes);
    CHECK(count(graph.train_mask) == row.train);
    CHECK(count(graph.val_mask) == 500);
    CHECK(count(graph.test_mask) == 1000);
    int64_t unlabelled = 0;
    std::vector<int64_t> trained(static_cast<size_t>(row.classes));
    for (int64_t i = 0; i < graph.nodes; ++i) {
      const int64_t y = graph.y.data<int64_t>()[i];
      unlabelled += y == kIgnored;
      if (graph.train_mask.data<uint8_t>()[i] != 0) ++trained[static_cast<size_t>(y)];
    }
    CHECK(unlabelled == row.unlabelled);
    CHECK(trained == std::vector<int64_t>(trained.size(), 20));  // 20 of each class train
    double sum = 0;
    for (const double value : graph.x_value.to_vector()) sum += value;
    int64_t filled = 0;
    for (int64_t i = 0; i < graph.nodes; ++i)
      filled += graph.x_row_ptr.data<int64_t>()[i] < graph.x_row_ptr.data<int64_t>()[i + 1];
    CHECK(sum == doctest::Approx(static_cast<double>(filled)).epsilon(1e-5));
  }
}
