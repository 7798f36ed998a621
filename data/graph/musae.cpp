#include "data/graph/musae.h"

#include <algorithm>
#include <map>

#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/npy.h"
#include "data/formats/table.h"
#include "data/graph/graph_data_json.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

// A network has weights for each column, so one large number in a file must not mean millions of
// weights.
constexpr int64_t kMaxColumns = int64_t{1} << 24, kFewColumns = 65536;

std::string find_csv_stem(const std::string& folder, const std::string& name) {
  for (const std::string& place :
       {folder, folder + "/musae-" + name, folder + "/graphs/musae-" + name})
    for (const std::string& stem : {place + "/" + name, place + "/musae_" + name})
      if (is_file(stem + "_edges.csv")) return stem;
  throw MissingFiles(fmt::format("[musae] expected {}_edges.csv and its companions in {}, got none",
                                 name, folder));
}

// Labels by node; classes are numbered in the order of their names.
std::vector<int64_t> read_targets(const std::string& path, int64_t& classes) {
  TableReader csv("musae", path);
  FRUGAL_CHECK(csv.next() && csv.fields().size() >= 2 && csv.fields()[0] == "id",
               "[musae] expected a table of id, ..., label in {}", path);
  const size_t columns = csv.fields().size();
  std::vector<int64_t> nodes;
  std::vector<std::string> names;
  std::map<std::string, int64_t> numbers;
  while (csv.next()) {
    csv.expect_fields(columns);
    nodes.push_back(csv.integer(0, 0, INT64_MAX));
    names.emplace_back(csv.fields().back());
    numbers[names.back()] = 0;
  }
  classes = 0;
  for (auto& [label, number] : numbers) number = classes++;
  std::vector<int64_t> labels(nodes.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto node = static_cast<size_t>(nodes[i]);
    FRUGAL_CHECK(node < labels.size() && labels[node] < 0,
                 "[musae] expected each node of 0 to {} once in {}, got {} in record {}",
                 labels.size() - 1, path, node, i + 1);
    labels[node] = numbers[names[i]];
  }
  return labels;
}

CsrMatrix read_feature_lists(const std::string& path, int64_t nodes) {
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(nodes));
  std::vector<bool> seen(static_cast<size_t>(nodes));
  int64_t columns = 0;
  read_json_numbers(
      "musae", path, [&](const std::string& name, const std::vector<int64_t>& row, bool list) {
        const auto node = static_cast<size_t>(node_of("musae", path, name, nodes));
        FRUGAL_CHECK(list && !seen[node], "[musae] expected one list of columns for node {} in {}",
                     printable(name), path);
        seen[node] = true;
        for (const int64_t column : row) {
          FRUGAL_CHECK(column >= 0 && column < kMaxColumns,
                       "[musae] expected columns in [0, {}) in {}, got {} at node {}", kMaxColumns,
                       path, column, printable(name));
          columns = std::max(columns, column + 1);
          rows[node].push_back(static_cast<int32_t>(column));
        }
      });
  CsrMatrix csr{nodes, columns, {0}, {}, {}};
  for (std::vector<int32_t>& row : rows) {  // a feature that is named twice counts once
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    csr.col.insert(csr.col.end(), row.begin(), row.end());
    csr.row_ptr.push_back(static_cast<int64_t>(csr.col.size()));
  }
  csr.value.assign(csr.col.size(), 1.0f);
  const int64_t most = std::max<int64_t>(kFewColumns, static_cast<int64_t>(csr.col.size()));
  FRUGAL_CHECK(columns <= most,
               "[musae] expected columns in [0, {}) in {}, which names {} of them, got {}", most,
               path, csr.col.size(), columns - 1);
  return csr;
}

Tensor read_csv_edges(const std::string& path, int64_t nodes) {
  TableReader csv("musae", path);
  FRUGAL_CHECK(csv.next() && csv.fields().size() == 2,
               "[musae] expected a table of id_1,id_2 in {}", path);
  std::vector<int64_t> from, to;
  while (csv.next()) {
    csv.expect_fields(2);
    from.push_back(csv.integer(0, 0, nodes));
    to.push_back(csv.integer(1, 0, nodes));
  }
  return make_edge_index(nodes, from, to, true);
}

}  // namespace

GraphData open_musae(const std::string& folder, const std::string& name,
                     const GraphOptions& options) {
  const std::string stem = find_csv_stem(folder, name);
  GraphData graph;
  const std::vector<int64_t> labels = read_targets(stem + "_target.csv", graph.classes);
  graph.nodes = static_cast<int64_t>(labels.size());
  {
    const CategoryScope category(Category::input);
    graph.y = Tensor::from(labels, {graph.nodes});
  }
  set_features(graph, read_feature_lists(stem + "_features.json", graph.nodes), options);
  graph.edge_index = read_csv_edges(stem + "_edges.csv", graph.nodes);
  return graph;
}

}  // namespace frugal::data
