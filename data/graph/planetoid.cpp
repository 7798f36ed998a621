#include "data/graph/planetoid.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "data/dataset.h"
#include "data/formats/file_bytes.h"
#include "data/formats/npy.h"
#include "data/formats/pickle.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

constexpr int64_t kValidation = 500;

std::string find_stem(const std::string& folder, const std::string& name) {
  const std::string file = "/ind." + name + ".";
  for (const std::string& place :
       {folder, folder + "/planetoid", folder + "/" + name + "/raw", folder + "/" + name})
    if (is_file(place + file + "graph")) return place + file;
  throw MissingFiles(fmt::format(
      "[planetoid] expected ind.{}.graph and its companions in {}, got none", name, folder));
}

std::vector<int64_t> read_test_index(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("planetoid", path);
  std::vector<int64_t> index;
  const char* at = reinterpret_cast<const char*>(bytes.data());
  const char* const end = at + bytes.size();
  for (int64_t line = 1; at < end; ++line) {
    const char* stop = std::find(at, end, '\n');
    const char* last = stop;
    while (last > at && (last[-1] == '\r' || last[-1] == ' ')) --last;
    int64_t node = -1;
    if (last > at) {
      const auto [read, error] = std::from_chars(at, last, node);
      // no file names a node above 2^40; so sums of indices cannot overflow
      FRUGAL_CHECK(error == std::errc() && read == last && node >= 0 && node < int64_t{1} << 40,
                   "[planetoid] expected a node in {}, line {}", path, line);
      index.push_back(node);
    }
    at = stop == end ? end : stop + 1;
  }
  return index;
}

// The classes of one-hot rows [N, classes]; kIgnored for rows of zeros.
std::vector<int64_t> read_one_hot(const std::string& path, int64_t rows, int64_t& classes) {
  const Tensor table = to_i64(path, read_pickle_array(path));
  FRUGAL_CHECK(table.dim() == 2 && (rows < 0 || table.size(0) == rows) && table.size(1) >= 1 &&
                   (classes == 0 || table.size(1) == classes),
               "[planetoid] expected labels [{}, {}] in {}, got {}",
               rows < 0 ? "N" : std::to_string(rows), classes == 0 ? "C" : std::to_string(classes),
               path, table.shape());
  classes = table.size(1);
  std::vector<int64_t> labels(static_cast<size_t>(table.size(0)), kIgnored);
  const int64_t* in = table.data<int64_t>();
  for (size_t i = 0; i < labels.size(); ++i)
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t bit = in[static_cast<int64_t>(i) * classes + c];
      FRUGAL_CHECK(bit == 0 || (bit == 1 && labels[i] == kIgnored),
                   "[planetoid] expected one-hot labels in {}, got another row {}", path, i);
      if (bit == 1) labels[i] = c;
    }
  return labels;
}

// The rows of `all`, followed by the rows of `test`, which go to the nodes of `index`.
CsrMatrix join(const CsrMatrix& all, const CsrMatrix& test, const std::vector<int64_t>& index,
               int64_t nodes) {
  std::vector<int64_t> source(static_cast<size_t>(nodes), -1);
  std::iota(source.begin(), source.begin() + all.rows, int64_t{0});
  for (size_t i = 0; i < index.size(); ++i)
    source[static_cast<size_t>(index[i])] = all.rows + static_cast<int64_t>(i);
  CsrMatrix out{nodes, all.cols, {0}, {}, {}};
  for (const int64_t from : source) {
    if (from >= 0) {
      const CsrMatrix& part = from < all.rows ? all : test;
      const auto row = static_cast<size_t>(from < all.rows ? from : from - all.rows);
      const int64_t begin = part.row_ptr[row], end = part.row_ptr[row + 1];
      out.col.insert(out.col.end(), part.col.begin() + begin, part.col.begin() + end);
      out.value.insert(out.value.end(), part.value.begin() + begin, part.value.begin() + end);
    }
    out.row_ptr.push_back(static_cast<int64_t>(out.col.size()));
  }
  return out;
}

Tensor read_graph(const std::string& path, int64_t nodes) {
  const PickleLists lists = read_pickle_lists(path);
  std::vector<int64_t> from, to;
  for (size_t i = 0; i < lists.keys.size(); ++i)
    for (const int64_t other : lists.lists[i]) {
      const int64_t node = lists.keys[i];
      FRUGAL_CHECK(node >= 0 && node < nodes && other >= 0 && other < nodes,
                   "[planetoid] expected nodes in [0, {}) in {}, got an edge from {} to {}", nodes,
                   path, node, other);
      from.push_back(node);
      to.push_back(other);
    }
  return make_edge_index(nodes, from, to, true, SelfLoops::drop);
}

}  // namespace

GraphData open_planetoid(const std::string& folder, const std::string& name,
                         const GraphOptions& options) {
  const std::string stem = find_stem(folder, name);
  const CsrMatrix all = read_pickle_csr(stem + "allx"), test = read_pickle_csr(stem + "tx");
  const std::vector<int64_t> index = read_test_index(stem + "test.index");
  FRUGAL_CHECK(all.cols == test.cols && static_cast<int64_t>(index.size()) == test.rows,
               "[planetoid] expected as many columns in {0}tx as in {0}allx ({1}) and as many rows "
               "as in {0}test.index ({2}), got {3} and {4}",
               stem, all.cols, index.size(), test.cols, test.rows);
  // The test nodes are the last nodes, with gaps for isolated ones. A file with more gaps than test
  // nodes is not accepted.
  int64_t nodes = all.rows;
  for (const int64_t node : index) {
    FRUGAL_CHECK(node >= all.rows && node - all.rows < 2 * test.rows,
                 "[planetoid] expected test nodes in [{}, {}) in {}test.index, got {}", all.rows,
                 all.rows + 2 * test.rows, stem, node);
    nodes = std::max(nodes, node + 1);
  }
  GraphData graph;
  graph.nodes = nodes;
  graph.test_mask = make_mask(stem + "test.index", nodes, index);

  const CsrMatrix train = read_pickle_csr(stem + "x");
  const std::vector<int64_t> train_y = read_one_hot(stem + "y", train.rows, graph.classes);
  const std::vector<int64_t> all_y = read_one_hot(stem + "ally", all.rows, graph.classes);
  const std::vector<int64_t> test_y = read_one_hot(stem + "ty", test.rows, graph.classes);
  FRUGAL_CHECK(
      train.cols == all.cols && train.rows + kValidation <= all.rows &&
          std::equal(train_y.begin(), train_y.end(), all_y.begin()),
      "[planetoid] expected {0}x and {0}y to be the first rows of {0}allx and {0}ally, and "
      "{1} more behind them",
      stem, kValidation);
  std::vector<int64_t> members(static_cast<size_t>(train.rows));
  std::iota(members.begin(), members.end(), int64_t{0});
  graph.train_mask = make_mask(stem + "y", nodes, members);
  members.resize(static_cast<size_t>(kValidation));
  std::iota(members.begin(), members.end(), train.rows);
  graph.val_mask = make_mask(stem + "ally", nodes, members);

  const CategoryScope category(Category::input);
  graph.y = Tensor::full({nodes}, static_cast<double>(kIgnored), DType::i64);
  int64_t* y = graph.y.mut<int64_t>();
  std::copy(all_y.begin(), all_y.end(), y);
  for (size_t i = 0; i < index.size(); ++i) y[index[i]] = test_y[i];
  // Nodes without a label are in no mask.
  for (int64_t i = 0; i < nodes; ++i)
    if (y[i] == kIgnored)
      for (const Tensor& mask : {graph.train_mask, graph.val_mask, graph.test_mask})
        mask.mut<uint8_t>()[i] = 0;
  set_features(graph, join(all, test, index, nodes), options);
  graph.edge_index = read_graph(stem + "graph", nodes);
  return graph;
}

}  // namespace frugal::data
