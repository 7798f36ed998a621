#include <bit>

#include "ops/cuda/cudnn_graphs.h"
#include "ops/precision.h"

namespace frugal::ops::cudnn {
namespace {

enum Id : int64_t { kX = 1, kW, kY, kBias, kSum };

// The alignment that the engine may assume of an address: 16 bytes or less.
int64_t alignment_of(const void* data) {
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(data)) | 16u;
  return int64_t{1} << std::countr_zero(address);
}

// [N, H, W, C] (or [K, R, S, C]) in cuDNN's terms: extents in the order N, C, H, W, with our
// strides.
Operand operand(int64_t id, DType dtype, const Shape& shape, const void* data) {
  const int64_t h = shape[1], w = shape[2], c = shape[3];
  Operand out;
  out.id = id;
  out.type = type_of(dtype);
  out.dims = {shape[0], c, h, w};
  out.strides = {h * w * c, 1, w * c, c};
  out.alignment = alignment_of(data);
  return out;
}
Operand between(int64_t id, const Operand& like) {
  Operand out = like;
  out.id = id;
  out.type = CUDNN_DATA_FLOAT;
  out.alignment = 16;
  out.is_virtual = true;
  return out;
}

std::vector<int64_t> list(const Pair& pair) { return {pair[0], pair[1]}; }
Shape shape(const Pair& pair) { return {pair[0], pair[1]}; }

Descriptor& convolution(Graph& graph, const Conv2dOptions& o) {
  return graph.part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution")
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, list(o.dilation))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, list(o.stride))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, list(o.padding))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, list(o.padding))
      .finalize();
}

void add_forward(Graph& graph, const Convolution& p, const Operand& x, const Operand& w,
                 const Operand& y, const void* bias) {
  const Descriptor& out = graph.tensor(y);
  const Descriptor& summed = p.bias ? graph.tensor(between(kSum, y)) : out;
  graph.add(
      graph.part(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "forward")
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(graph, p.options))
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, graph.tensor(x))
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, graph.tensor(w))
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, summed)
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
          .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f));
  if (!p.bias) return;
  const int64_t k = p.w[0];
  Operand row;
  row.id = kBias;
  row.type = y.type;
  row.dims = {1, k, 1, 1};
  row.strides = {k, 1, k, k};
  row.alignment = alignment_of(bias);
  graph.pointwise(CUDNN_POINTWISE_ADD, summed, &graph.tensor(row), out);
}

}  // namespace

Graph convolution_graph(const Convolution& p, const ConvolutionData& data) {
  const Operand x = operand(kX, p.dtype, p.x, data.x), y = operand(kY, p.dtype, p.y, data.y);
  const Operand w = operand(kW, p.dtype, p.w, data.w);
  Graph graph;
  if (p.pass == Pass::forward) {
    add_forward(graph, p, x, w, y, data.bias);
  } else if (p.pass == Pass::backward_weight) {
    graph.add(graph.part(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "weight's")
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                       convolution(graph, p.options))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, graph.tensor(x))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, graph.tensor(y))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, graph.tensor(w))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0f)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0f));
  } else {
    graph.add(
        graph.part(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "input's")
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution(graph, p.options))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, graph.tensor(w))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, graph.tensor(y))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, graph.tensor(x))
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f)
            .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0f));
  }
  return graph;
}

bool convolve(const Convolution& p, const ConvolutionData& data) {
  const bool exact = p.dtype == DType::f32 && matmul_precision() == MatmulPrecision::f32;
  static constexpr const char* kPasses[] = {"forward", "input", "weight"};
  const std::string key = fmt::format(
      "conv {} {}{}{}{} x {} w {} y {} stride {} padding {} dilation {} aligned {} {} {} {}",
      kPasses[static_cast<int>(p.pass)], name_of(p.dtype), exact ? "" : " rounded",
      p.bias ? " +bias" : "", deterministic() ? "" : " any order", p.x, p.w, p.y,
      shape(p.options.stride), shape(p.options.padding), shape(p.options.dilation),
      alignment_of(data.x), alignment_of(data.w), alignment_of(data.y),
      p.bias ? alignment_of(data.bias) : 0);
  std::vector<Binding> bindings{{kX, data.x}, {kW, data.w}, {kY, data.y}};
  if (p.bias) bindings.push_back({kBias, data.bias});
  return run(
      key, {exact, convolution_workspace()}, [&] { return convolution_graph(p, data); }, bindings);
}

}  // namespace frugal::ops::cudnn
