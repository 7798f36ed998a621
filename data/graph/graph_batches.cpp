#include "data/graph/graph_batches.h"

#include <algorithm>

namespace frugal::data {

std::string_view name_of(GraphPart part) {
  switch (part) {
    case GraphPart::train:
      return "train";
    case GraphPart::val:
      return "val";
    case GraphPart::test:
      break;
  }
  return "test";
}

static Tensor kept_mask(const GraphData& graph, GraphPart part) {
  switch (part) {
    case GraphPart::train:
      return graph.train_mask;
    case GraphPart::val:
      return graph.val_mask;
    case GraphPart::test:
      break;
  }
  return graph.test_mask;
}

void check_graph(const char* op, const GraphData& graph) {
  const auto is = [](const Tensor& tensor, DType dtype, const Shape& shape) {
    return tensor.defined() && tensor.dtype() == dtype && tensor.shape() == shape &&
           tensor.is_contiguous() && tensor.device().type == DeviceType::cpu;
  };
  const auto show = [](const Tensor& tensor) {
    return tensor.defined() ? describe(tensor) : std::string("none");
  };
  const Shape one{graph.nodes}, several{graph.nodes, graph.classes};
  FRUGAL_CHECK(graph.nodes > 0, "[{}] expected a graph with nodes, got none", op);
  FRUGAL_CHECK(is(graph.y, DType::i64, one) || is(graph.y, DType::f32, several),
               "[{}] expected labels {} i64 or {} f32, got {}", op, one, several, show(graph.y));
  if (graph.sparse()) {
    const Shape entries = graph.x_col.defined() ? graph.x_col.shape() : Shape{0};
    FRUGAL_CHECK(
        is(graph.x_row_ptr, DType::i64, {graph.nodes + 1}) &&
            is(graph.x_col, DType::i64, entries) && is(graph.x_value, DType::f32, entries),
        "[{}] expected sparse features row_ptr [{}] i64, col i64 and value f32, got {}, {} "
        "and {}",
        op, graph.nodes + 1, show(graph.x_row_ptr), show(graph.x_col), show(graph.x_value));
  } else {
    const Shape dense{graph.nodes, graph.features};
    FRUGAL_CHECK(is(graph.x, DType::f32, dense), "[{}] expected features {} f32, got {}", op, dense,
                 show(graph.x));
  }
}

Tensor mask_of(const GraphData& graph, GraphPart part) {
  const Tensor mask = kept_mask(graph, part);
  FRUGAL_CHECK(mask.defined(),
               "[graph] expected a graph with a {} mask, got none: make one with random_split",
               name_of(part));
  return mask;
}

std::vector<int64_t> nodes_of(const GraphData& graph, GraphPart part) {
  const Tensor mask = mask_of(graph, part);
  std::vector<int64_t> nodes;
  for (int64_t i = 0; i < graph.nodes; ++i)
    if (mask.data<uint8_t>()[i] != 0) nodes.push_back(i);
  FRUGAL_CHECK(!nodes.empty(), "[graph] expected nodes in the {} mask, got none", name_of(part));
  return nodes;
}

Tensor edges_of(const GraphData& graph, GraphPart part) {
  return part == GraphPart::train && graph.train_edge_index.defined() ? graph.train_edge_index
                                                                      : graph.edge_index;
}

std::optional<Batch> GraphSource::next() {
  if (state_.next_batch == batches()) {
    state_ = {state_.epoch + 1, 0};
    return std::nullopt;
  }
  Batch batch = make(state_.epoch, state_.next_batch);
  ++state_.next_batch;
  return batch;
}

void GraphSource::seek(const LoaderState& state) {
  FRUGAL_CHECK(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= batches(),
               "[graph] expected an epoch of at least 0 and a batch in [0, {}], got {} and {}",
               batches(), state.epoch, state.next_batch);
  state_ = state;
}

void GraphSource::set_share(const Share& share) {
  check_share(share);
  share_ = share;
}

GraphBatches::GraphBatches(const GraphData& graph, GraphPart part) {
  check_graph("graph", graph);
  const std::vector<int64_t> nodes = nodes_of(graph, part);
  samples_ = static_cast<int64_t>(nodes.size());
  const CategoryScope category(Category::input);
  batch_.target = Tensor::full(graph.y.shape(), static_cast<double>(kIgnored), graph.y.dtype());
  const int64_t row = graph.y.numel() / graph.nodes;
  for (const int64_t node : nodes) {
    if (graph.y.dtype() == DType::i64) {
      batch_.target.mut<int64_t>()[node] = graph.y.data<int64_t>()[node];
    } else {
      std::copy_n(graph.y.data<float>() + node * row, row, batch_.target.mut<float>() + node * row);
    }
  }
  batch_.input = graph.sparse() ? Tensor::empty({graph.nodes, 0}) : graph.x;
  if (graph.sparse())
    batch_.extras = {
        {"x_row_ptr", graph.x_row_ptr}, {"x_col", graph.x_col}, {"x_value", graph.x_value}};
  batch_.extras.emplace_back("edge_index", edges_of(graph, part));
  batch_.held = true;
}

Batch GraphBatches::make(int64_t /*epoch*/, int64_t /*batch*/) {
  if (gets_whole()) return batch_;
  const CategoryScope category(Category::input);
  Batch none;
  none.input = Tensor::empty({0, batch_.input.size(1)});
  Shape target = batch_.target.shape();
  target[0] = 0;
  none.target = Tensor::empty(target, batch_.target.dtype());
  for (const auto& [name, tensor] : batch_.extras) {
    Shape shape = tensor.shape();
    shape[shape.dim() - 1] = name == "x_row_ptr" ? 1 : 0;  // row pointers begin with 0
    none.extras.emplace_back(name, Tensor::zeros(shape, tensor.dtype()));
  }
  return none;
}

}  // namespace frugal::data
