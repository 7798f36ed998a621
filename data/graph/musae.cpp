#include "data/graph/musae.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/log.h"
#include "core/words/quoted.h"
#include "data/dataset.h"
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

bool is_blank(std::string_view cell) { return cell.find_first_not_of(" \t") == cell.npos; }

bool holds_number(std::string_view cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error != std::errc::invalid_argument && end == cell.data() + cell.size();
}

// Tells of a table whose last column is hardly the label. `counts`: nodes by label. Errors: each
// node has a label of its own, such as its name.
void check_label_column(const std::string& path, const std::vector<std::string>& header,
                        const std::map<std::string, int64_t>& counts, int64_t labelled) {
  const std::string &label = header.back(), names = fmt::format("{}", fmt::join(header, ", "));
  const auto classes = static_cast<int64_t>(counts.size());
  FRUGAL_CHECK(classes < labelled || labelled <= 2,
               "[musae] expected labels that nodes share in the last column of {}, {}, got another "
               "one for each of {} nodes; the columns are {}, and the label has to be the last",
               in_quotes(path), in_quotes(label), labelled, printable(names, 300));
  const auto alone = std::count_if(counts.begin(), counts.end(),
                                   [](const auto& each) { return each.second == 1; });
  if (2 * alone > labelled && labelled > 2)
    log().warn(
        "[musae] {}: the last column, {}, is the label, and {} of {} nodes have one that no "
        "other node has; the columns are {}",
        in_quotes(path), in_quotes(label), alone, labelled, printable(names, 300));
  for (const char* usual : {"page_type", "label", "target"})
    if (std::find(header.begin(), header.end() - 1, usual) != header.end() - 1)
      log().warn("[musae] {}: the label is the last column, {}, and not {}", in_quotes(path),
                 in_quotes(label), in_quotes(usual));
}

// Labels by node, kIgnored where the cell is empty; classes are numbered in the order of their
// names.
std::vector<int64_t> read_targets(const std::string& path, int64_t& classes) {
  TableReader csv("musae", path);
  FRUGAL_CHECK(csv.next() && csv.fields().size() >= 2 && csv.fields()[0] == "id",
               "[musae] expected a table of id, ..., label in {}", path);
  const std::vector<std::string> header(csv.fields().begin(), csv.fields().end());
  std::vector<int64_t> nodes;
  std::vector<std::string> names;  // empty: unknown
  std::map<std::string, int64_t> counts, numbers;
  int64_t unknown = 0, first_unknown = 0;
  while (csv.next()) {
    csv.expect_fields(header.size());
    nodes.push_back(csv.integer(0, 0, INT64_MAX));
    const std::string_view label = csv.fields().back();
    names.emplace_back(is_blank(label) ? std::string_view() : label);
    if (!names.back().empty())
      ++counts[names.back()];
    else if (unknown++ == 0)
      first_unknown = csv.line();
  }
  const auto labelled = static_cast<int64_t>(nodes.size()) - unknown;
  FRUGAL_CHECK(labelled > 0 || nodes.empty(),
               "[musae] expected labels in the last column of {}, {}, got empty cells alone",
               in_quotes(path), in_quotes(header.back()));
  classes = 0;
  for (const auto& [label, count] : counts) numbers[label] = classes++;
  std::vector<int64_t> labels(nodes.size(), -1);
  std::vector<bool> seen(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto node = static_cast<size_t>(nodes[i]);
    FRUGAL_CHECK(node < labels.size() && !seen[node],
                 "[musae] expected each node of 0 to {} once in {}, got {} in record {}",
                 labels.size() - 1, path, node, i + 1);
    seen[node] = true;
    labels[node] = names[i].empty() ? kIgnored : numbers[names[i]];
  }
  check_label_column(path, header, counts, labelled);
  if (unknown > 0)
    log().warn(
        "[musae] {}: {} no label, the first in line {}; nodes without a label are neighbours of "
        "others, and neither trained nor tested on",
        in_quotes(path), unknown == 1 ? "1 node has" : fmt::format("{} nodes have", unknown),
        first_unknown);
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
  // A first line that is passed over although it holds an edge would be lost without a word.
  FRUGAL_CHECK(
      !holds_number(csv.fields()[0]) || !holds_number(csv.fields()[1]),
      "[musae] {}, line {}: expected names of columns such as id_1,id_2, got the numbers "
      "{},{}; write such a line before the first edge, or in the place of numbers of columns",
      in_quotes(path), csv.line(), printable(csv.fields()[0]), printable(csv.fields()[1]));
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
