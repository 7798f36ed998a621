#include "export/onnx_file.h"

#include "core/error.h"

#ifdef FRUGAL_ONNX
#include <onnx/onnx_pb.h>

#include <optional>

#include "data/formats/atomic_file.h"
#include "ops/dense/copy.h"
#endif

namespace frugal::exports {

#ifndef FRUGAL_ONNX

bool can_write_onnx() { return false; }

void write_onnx(const std::string& path, const OnnxGraph&, int64_t) {
  throw Error(fmt::format(
      "[onnx] expected a build with libonnx to write {}; install libonnx-dev and libprotobuf-dev "
      "and build again",
      path));
}

#else

namespace {

int32_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ::onnx::TensorProto::FLOAT;
    case DType::f64:
      return ::onnx::TensorProto::DOUBLE;
    case DType::i64:
      return ::onnx::TensorProto::INT64;
    case DType::i32:
      return ::onnx::TensorProto::INT32;
    case DType::bool_:
      return ::onnx::TensorProto::BOOL;
    default:
      throw Error(
          fmt::format("[onnx] expected f32, f64, i64, i32 or bool, got {}", name_of(dtype)));
  }
}

void describe_value(const OnnxValue& value, ::onnx::ValueInfoProto& out) {
  out.set_name(value.name);
  auto* type = out.mutable_type()->mutable_tensor_type();
  type->set_elem_type(type_of(value.dtype));
  auto* shape = type->mutable_shape();
  for (const OnnxExtent& extent : value.shape) {
    auto* dim = shape->add_dim();
    if (!extent.name.empty())
      dim->set_dim_param(extent.name);
    else if (extent.size >= 0)
      dim->set_dim_value(extent.size);
  }
}

void add_node(const OnnxNode& node, ::onnx::GraphProto& graph) {
  auto* out = graph.add_node();
  out->set_op_type(node.op);
  out->set_name(node.outputs[0]);
  for (const std::string& name : node.inputs) out->add_input(name);
  for (const std::string& name : node.outputs) out->add_output(name);
  for (const auto& [name, value] : node.attributes) {
    auto* attribute = out->add_attribute();
    attribute->set_name(name);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      attribute->set_type(::onnx::AttributeProto::INT);
      attribute->set_i(*number);
    } else if (const auto* real = std::get_if<double>(&value)) {
      attribute->set_type(::onnx::AttributeProto::FLOAT);
      attribute->set_f(static_cast<float>(*real));
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      attribute->set_type(::onnx::AttributeProto::STRING);
      attribute->set_s(*text);
    } else {
      attribute->set_type(::onnx::AttributeProto::INTS);
      for (const int64_t each : std::get<std::vector<int64_t> >(value)) attribute->add_ints(each);
    }
  }
}

std::string last_part(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

bool can_write_onnx() { return true; }

void write_onnx(const std::string& path, const OnnxGraph& graph, int64_t most_inside) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : graph.initializers) {
    FRUGAL_CHECK(tensor.device() == kCpu, "[onnx] expected weights on the cpu, got {} for {}",
                 describe(tensor), name);
    bytes += tensor.nbytes();
  }
  ::onnx::ModelProto model;
  model.set_ir_version(7);  // the version that belongs to opset 13
  model.set_producer_name("frugal");
  model.set_producer_version(FRUGAL_VERSION);
  auto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(kOpset);
  for (const auto& [key, value] : graph.metadata) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  ::onnx::GraphProto& out = *model.mutable_graph();
  out.set_name("frugal");
  for (const OnnxValue& value : graph.inputs) describe_value(value, *out.add_input());
  for (const OnnxValue& value : graph.outputs) describe_value(value, *out.add_output());
  for (const OnnxNode& node : graph.nodes) add_node(node, out);

  constexpr int64_t kLarge = 1024, kAlignment = 64;  // bytes; small tensors stay inside
  const std::string beside = path + ".data";
  std::optional<data::AtomicFile> data;
  if (bytes > most_inside) data.emplace(beside);
  int64_t at = 0;
  for (const auto& [name, tensor] : graph.initializers) {
    auto* weight = out.add_initializer();
    weight->set_name(name);
    weight->set_data_type(type_of(tensor.dtype()));
    for (const int64_t extent : tensor.shape()) weight->add_dims(extent);
    const Tensor dense = ops::contiguous(tensor);
    const auto size = static_cast<size_t>(dense.nbytes());
    if (!data || dense.nbytes() < kLarge) {
      weight->set_raw_data(dense.raw(), size);
      continue;
    }
    const std::string padding(static_cast<size_t>((kAlignment - at % kAlignment) % kAlignment),
                              '\0');
    data->write(padding.data(), padding.size());
    at += static_cast<int64_t>(padding.size());
    data->write(dense.raw(), size);
    weight->set_data_location(::onnx::TensorProto::EXTERNAL);
    const auto say = [&](const char* key, const std::string& value) {
      auto* entry = weight->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    say("location", last_part(beside));
    say("offset", std::to_string(at));
    say("length", std::to_string(dense.nbytes()));
    at += dense.nbytes();
  }
  std::string text;
  FRUGAL_CHECK(model.SerializeToString(&text), "[onnx] expected a network of less than 2 GiB");
  if (data) data->commit();
  data::atomic_write(path, text);
}

#endif

}  // namespace frugal::exports
