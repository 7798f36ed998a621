#include "data/graph/graphsaint.h"

#include <algorithm>
#include <cmath>

#include "core/dtype_switch.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/npy.h"
#include "data/graph/graph_data_json.h"
#include "data/graph/npz_graph.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

Tensor read_adjacency(const std::string& path, int64_t& nodes) {
  const CsrMatrix matrix = read_npz_adjacency(NpzFile::open(path), "");
  FRUGAL_CHECK(matrix.rows == matrix.cols && (nodes == 0 || matrix.rows == nodes),
               "[graphsaint] expected a matrix [{0}, {0}] in {1}, got [{2}, {3}]",
               nodes == 0 ? "V" : std::to_string(nodes), path, matrix.rows, matrix.cols);
  nodes = matrix.rows;
  std::vector<int64_t> to;
  to.reserve(matrix.col.size());
  for (size_t r = 0; r < static_cast<size_t>(nodes); ++r)
    to.insert(to.end(), static_cast<size_t>(matrix.row_ptr[r + 1] - matrix.row_ptr[r]),
              static_cast<int64_t>(r));
  return make_edge_index(nodes, matrix.col, to, false);
}

void read_classes(const std::string& path, GraphData& graph) {
  std::vector<int64_t> single(static_cast<size_t>(graph.nodes), -1);
  std::vector<uint8_t> several;  // in the file's order, so memory grows with the file
  const int64_t most = most_classes(graph);
  int64_t labelled = 0;
  bool lists = false;
  read_json_numbers(
      "graphsaint", path,
      [&](const std::string& name, const std::vector<int64_t>& labels, bool list) {
        const auto node = static_cast<size_t>(node_of("graphsaint", path, name, graph.nodes));
        const auto width = static_cast<int64_t>(labels.size());
        if (labelled++ == 0) {
          lists = list;
          FRUGAL_CHECK(width >= 1 && width < most,
                       "[graphsaint] expected 1 to {} labels in {}, got {} at node {}", most - 1,
                       path, width, printable(name));
          if (lists) graph.classes = width;
        }
        FRUGAL_CHECK(list == lists && (!list || width == graph.classes),
                     "[graphsaint] expected a class for each node or a list of one length in {}, "
                     "got another at node {}",
                     path, printable(name));
        FRUGAL_CHECK(single[node] < 0, "[graphsaint] expected each node once in {}, got {} twice",
                     path, printable(name));
        single[node] = list ? labelled - 1 : labels[0];
        for (size_t c = 0; c < labels.size(); ++c)
          FRUGAL_CHECK(labels[c] >= 0 && labels[c] < (list ? 2 : most),
                       "[graphsaint] expected labels in [0, {}) in {}, got {} at node {}",
                       list ? 2 : most, path, labels[c], printable(name));
        if (list) {
          several.insert(several.end(), labels.begin(), labels.end());
        } else {
          graph.classes = std::max(graph.classes, labels[0] + 1);
        }
      });
  FRUGAL_CHECK(labelled == graph.nodes, "[graphsaint] expected labels of {} nodes in {}, got {}",
               graph.nodes, path, labelled);
  const CategoryScope category(Category::input);
  if (!lists) {
    graph.y = Tensor::from(single, {graph.nodes});
    warn_of_empty_classes("graphsaint", path, graph);
    return;
  }
  graph.y = Tensor::empty({graph.nodes, graph.classes});
  float* y = graph.y.mut<float>();
  for (size_t i = 0; i < single.size(); ++i, y += graph.classes)
    std::copy_n(several.begin() + single[i] * graph.classes, graph.classes, y);
}

void read_roles(const std::string& path, GraphData& graph) {
  std::vector<bool> taken(static_cast<size_t>(graph.nodes));
  read_json_numbers("graphsaint", path,
                    [&](const std::string& name, const std::vector<int64_t>& members, bool list) {
                      Tensor* mask = name == "tr"   ? &graph.train_mask
                                     : name == "va" ? &graph.val_mask
                                     : name == "te" ? &graph.test_mask
                                                    : nullptr;
                      FRUGAL_CHECK(mask != nullptr && list && !mask->defined(),
                                   "[graphsaint] expected the lists tr, va and te in {}, got {}",
                                   path, in_quotes(name));
                      *mask = make_mask(path, graph.nodes, members);
                      for (const int64_t node : members) {
                        FRUGAL_CHECK(
                            !taken[static_cast<size_t>(node)],
                            "[graphsaint] expected each node in one role in {}, got {} in two",
                            path, node);
                        taken[static_cast<size_t>(node)] = true;
                      }
                    });
  FRUGAL_CHECK(graph.train_mask.defined() && graph.val_mask.defined() && graph.test_mask.defined(),
               "[graphsaint] expected the lists tr, va and te in {}, got less", path);
}

Tensor edges_within(const Tensor& edge_index, const Tensor& mask) {
  const int64_t count = edge_index.size(1);
  const int64_t *a = edge_index.data<int64_t>(), *b = a + count;
  const uint8_t* in = mask.data<uint8_t>();
  std::vector<int64_t> from, to;
  for (int64_t i = 0; i < count; ++i)
    if (in[a[i]] != 0 && in[b[i]] != 0) {
      from.push_back(a[i]);
      to.push_back(b[i]);
    }
  return make_edge_index(mask.size(0), from, to, false);
}

// What standardizes columns over the training nodes. A column that is constant over them is
// centred, but not scaled. `x` are the features as their file has them: f32 would round what lies
// far from 0 before the mean is taken away.
template <class T>
void find_scales(const T* x, GraphData& graph) {
  const int64_t nodes = graph.x.size(0), columns = graph.x.size(1);
  const uint8_t* in = graph.train_mask.data<uint8_t>();
  std::vector<double>&mean = graph.x_mean, &scale = graph.x_scale;
  mean.assign(static_cast<size_t>(columns), 0.0);
  scale.assign(static_cast<size_t>(columns), 1.0);
  std::vector<double> square(mean.size());
  double count = 0;
  for (int64_t i = 0; i < nodes; ++i) {
    if (in[i] == 0) continue;
    ++count;
    for (int64_t c = 0; c < columns; ++c)
      mean[static_cast<size_t>(c)] += static_cast<double>(x[i * columns + c]);
  }
  for (double& m : mean) m /= std::max(count, 1.0);
  for (int64_t i = 0; i < nodes; ++i)
    for (int64_t c = 0; c < columns && in[i] != 0; ++c) {
      const double d = static_cast<double>(x[i * columns + c]) - mean[static_cast<size_t>(c)];
      square[static_cast<size_t>(c)] += d * d;
    }
  for (size_t c = 0; c < mean.size(); ++c)
    if (square[c] > 0) scale[c] = 1.0 / std::sqrt(square[c] / count);
}

// Writes the standardized `x` over features that nobody else holds.
template <class T>
void standardize(const T* x, GraphData& graph) {
  const int64_t nodes = graph.x.size(0), columns = graph.x.size(1);
  const std::vector<double>&mean = graph.x_mean, &scale = graph.x_scale;
  FRUGAL_CHECK(static_cast<int64_t>(mean.size()) == columns && mean.size() == scale.size(),
               "[graphsaint] expected features of {} columns, as many as there are means, got {}",
               mean.size(), columns);
  float* to = graph.x.mut<float>();
  for (int64_t i = 0; i < nodes; ++i)
    for (int64_t c = 0; c < columns; ++c)
      to[i * columns + c] = static_cast<float>(
          (static_cast<double>(x[i * columns + c]) - mean[static_cast<size_t>(c)]) *
          scale[static_cast<size_t>(c)]);
}

}  // namespace

GraphData open_graphsaint(const std::string& folder, const GraphSaintOptions& options) {
  if (!is_file(folder + "/adj_full.npz"))
    throw MissingFiles(fmt::format("[graphsaint] expected adj_full.npz in {}, got none", folder));
  FRUGAL_CHECK(!options.standardize || !options.features.sparse,
               "[graphsaint] expected dense features to standardize, got sparse ones");
  GraphData graph;
  graph.edge_index = read_adjacency(folder + "/adj_full.npz", graph.nodes);
  read_classes(folder + "/class_map.json", graph);
  read_roles(folder + "/role.json", graph);
  if (is_file(folder + "/adj_train.npz")) {
    graph.train_edge_index = read_adjacency(folder + "/adj_train.npz", graph.nodes);
  } else {
    graph.train_edge_index = edges_within(graph.edge_index, graph.train_mask);
  }
  const std::string path = folder + "/feats.npy";
  const Tensor features = read_npy(path);
  set_features(path, graph, to_f32(features), options.features);
  if (!options.standardize) return graph;
  graph.x_mean = options.mean;
  graph.x_scale = options.scale;
  const bool wide = features.dtype() == DType::f64 && !options.features.normalize;
  const Tensor& held = wide ? features : graph.x;
  with_real(held.dtype(), [&](auto zero) {
    const auto* x = held.data<decltype(zero)>();
    if (options.mean.empty()) find_scales(x, graph);
    standardize(x, graph);
  });
  return graph;
}

}  // namespace frugal::data
