#include "data/graph/ogb.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "data/dataset.h"
#include "data/formats/file_bytes.h"
#include "data/formats/table.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

std::string find_csv(const std::string& folder, const std::string& name) {
  const std::string plain = folder + "/" + name + ".csv";
  if (is_file(plain)) return plain;
  if (is_file(plain + ".gz")) return plain + ".gz";
  throw MissingFiles(
      fmt::format("[ogb] expected {0}.csv or {0}.csv.gz in {1}, got neither", name, folder));
}

// Features [V, F]; each line is a node.
Tensor read_features(const std::string& path) {
  TableReader csv("ogb", path);
  std::vector<float> values;
  size_t columns = 0;
  int64_t nodes = 0;
  while (csv.next()) {
    if (nodes++ == 0) columns = csv.fields().size();
    csv.expect_fields(columns);
    for (size_t c = 0; c < columns; ++c) {
      values.push_back(csv.real(c));
      FRUGAL_CHECK(std::isfinite(values.back()),
                   "[ogb] expected finite features in {}, got {} at line {}, node {}, column {}",
                   path, values.back(), csv.line(), nodes - 1, c);
    }
  }
  FRUGAL_CHECK(nodes > 0, "[ogb] expected features of nodes in {}, got an empty file", path);
  const CategoryScope category(Category::input);
  return Tensor::from(values, {nodes, static_cast<int64_t>(columns)});
}

void read_labels(const std::string& path, GraphData& graph) {
  TableReader csv("ogb", path);
  std::vector<int64_t> single;
  std::vector<float> several;
  size_t columns = 0;
  int64_t nodes = 0;
  const auto unknown = [&](size_t c) {
    return csv.fields()[c].empty() || csv.fields()[c] == "nan" || csv.fields()[c] == "NaN";
  };
  const int64_t most = most_classes(graph);
  // some files write 3 as 3.0
  const auto whole = [&](size_t c) {
    const float value = csv.real(c);
    FRUGAL_CHECK(value >= 0 && value < static_cast<float>(most) && value == std::floor(value),
                 "[ogb] expected labels in [0, {}) in {}, got {} at line {}", most, path, value,
                 csv.line());
    return static_cast<int64_t>(value);
  };
  while (csv.next()) {
    if (nodes++ == 0) columns = csv.fields().size();
    csv.expect_fields(columns);
    if (columns == 1) {
      single.push_back(unknown(0) ? kIgnored : whole(0));
      graph.classes = std::max(graph.classes, single.back() + 1);
      continue;
    }
    for (size_t c = 0; c < columns; ++c) {
      const int64_t label = unknown(c) ? kIgnored : whole(c);
      FRUGAL_CHECK(label <= 1, "[ogb] expected labels of 0 or 1 in {}, got {} at line {}", path,
                   label, csv.line());
      several.push_back(static_cast<float>(label));
    }
  }
  FRUGAL_CHECK(nodes == graph.nodes, "[ogb] expected {} labels in {}, one a node, got {}",
               graph.nodes, path, nodes);
  const CategoryScope category(Category::input);
  if (columns == 1) {
    graph.y = Tensor::from(single, {nodes});
    warn_of_empty_classes("ogb", path, graph);
  } else {
    graph.classes = static_cast<int64_t>(columns);
    graph.y = Tensor::from(several, {nodes, graph.classes});
  }
}

Tensor read_edges(const std::string& path, int64_t nodes, bool undirected) {
  TableReader csv("ogb", path);
  std::vector<int64_t> from, to;
  while (csv.next()) {
    csv.expect_fields(2);
    from.push_back(csv.integer(0, 0, nodes));
    to.push_back(csv.integer(1, 0, nodes));
  }
  return make_edge_index(nodes, from, to, undirected);
}

std::vector<int64_t> read_nodes(const std::string& path, int64_t nodes) {
  TableReader csv("ogb", path);
  std::vector<int64_t> members;
  while (csv.next()) {
    csv.expect_fields(1);
    members.push_back(csv.integer(0, 0, nodes));
  }
  return members;
}

std::string find_split(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder + "/split", ignored))
    if (entry.is_directory(ignored)) found.push_back(entry.path().string());
  FRUGAL_CHECK(found.size() == 1, "[ogb] expected one split in {}/split, got {}", folder,
               found.size());
  return found[0];
}

}  // namespace

GraphData open_ogb(const std::string& folder, bool undirected, const GraphOptions& options) {
  GraphData graph;
  const std::string raw = folder + "/raw", features_path = find_csv(raw, "node-feat");
  const std::string edges_path = find_csv(raw, "edge"), labels_path = find_csv(raw, "node-label");
  const std::string split = find_split(folder);
  const Tensor features = read_features(features_path);
  graph.nodes = features.size(0);
  set_features(features_path, graph, features, options);
  read_labels(labels_path, graph);
  graph.edge_index = read_edges(edges_path, graph.nodes, undirected);
  std::vector<bool> taken(static_cast<size_t>(graph.nodes));
  const auto mask = [&](const char* name) {
    const std::string path = find_csv(split, name);
    const std::vector<int64_t> members = read_nodes(path, graph.nodes);
    const Tensor tensor = make_mask(path, graph.nodes, members);
    for (const int64_t node : members) {
      FRUGAL_CHECK(!taken[static_cast<size_t>(node)],
                   "[ogb] expected nodes of {} in no other part of the split, got {}", path, node);
      taken[static_cast<size_t>(node)] = true;
    }
    return tensor;
  };
  graph.train_mask = mask("train");
  graph.val_mask = mask("valid");
  graph.test_mask = mask("test");
  return graph;
}

}  // namespace frugal::data
