#include "export/onnx_export.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "bench/op_table/op_table.h"
#include "data/formats/safetensors.h"
#include "export/onnx_file.h"
#include "export/recording.h"
#include "models/layers.h"
#include "models/sequential_parts.h"
#include "models/state.h"
#include "models/zoo/bert.h"
#include "models/zoo/decoder.h"
#include "models/zoo/densenet.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/sage.h"
#include "models/zoo/swin.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

namespace frugal::exports {
namespace {

// Ops of the table without a form in ONNX, and why.
const std::map<std::string, std::string>& without_form() {
  static const std::string loss = "a loss, which evaluations of networks do not have",
                           training = "training alone has it",
                           adapter = "exports merge adapters into the weights first";
  static const std::map<std::string, std::string> all = {
      {"cross_entropy", loss},
      {"linear_cross_entropy", loss},
      {"negative_cosine", loss},
      {"info_nce", loss},
      {"soft_cross_entropy", loss},
      {"binary_cross_entropy", loss},
      {"mse_loss", loss},
      {"weighted_cross_entropy", loss},
      {"resized_cross_entropy", loss},
      {"dice_loss", loss},
      {"focal_cross_entropy", loss},
      {"sigmoid_focal_loss", loss},
      {"smooth_l1_loss", loss},
      {"giou_loss", loss},
      {"coded_giou_loss", loss},
      {"roi_align",
       "a part of detection networks, whose boxes ONNX gets from operators of its own"},
      {"dropout", training},
      {"dropout2d", training},
      {"relu_dropout", training},
      {"checkpoint", training},
      {"add_low_rank", adapter},
      {"scale_to_magnitude", adapter},
      {"sparse_linear", "features are dense in ONNX files"},
      {"packed_linear", "networks are exported with whole weights"},
  };
  return all;
}

// A row of the op table as a network: its first inputs are the network's, parameters its own.
class OfTable : public Module {
 public:
  OfTable(const op_table::Case& c, const Variables& values) : case_(c) {
    const bool any = std::any_of(c.inputs.begin(), c.inputs.end(),
                                 [](const op_table::Input& x) { return !x.parameter; });
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string name = "v" + std::to_string(i);
      if (any && c.inputs[i].parameter)
        places_.emplace_back(&register_parameter(name, values[i].value()), "");
      else
        places_.emplace_back(nullptr, name);
    }
  }
  NamedTensors inputs(const Variables& values) const {
    NamedTensors all;
    for (size_t i = 0; i < values.size(); ++i)
      if (places_[i].first == nullptr) all.emplace_back(places_[i].second, values[i].value());
    return all;
  }
  Variable forward(Variable x, Context& context) override {
    Variables values;
    bool first = true;
    for (const auto& [parameter, name] : places_) {
      values.push_back(parameter != nullptr ? *parameter
                       : first              ? x
                                            : Variable(context.extra(name)));
      if (parameter == nullptr) first = false;
    }
    return case_.run(values);
  }

 private:
  op_table::Case case_;
  std::vector<std::pair<Variable*, std::string>> places_;
};

// A network of one function.
class Of : public Module {
 public:
  explicit Of(std::function<Variable(const Variable&)> f) : f_(std::move(f)) {}
  Variable forward(Variable x, Context&) override { return f_(x); }

 private:
  std::function<Variable(const Variable&)> f_;
};

OnnxInputs of_shape(const Shape& rest) {
  OnnxInputs inputs;
  inputs.sizes = {{"batch", 2, 3}};
  inputs.make = [rest, rng = std::make_shared<Rng>(7)](const std::vector<int64_t>& sizes) {
    Shape shape{sizes[0]};
    for (const int64_t extent : rest) shape.push_back(extent);
    return NamedTensors{{"input", Tensor::randn(shape, rng->next())}};
  };
  return inputs;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

int64_t count(const OnnxGraph& graph, const std::string& op) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const OnnxNode& node) { return node.op == op; });
}

// Where the Python test wants files; empty: nowhere.
std::string folder_for_files() {
  const char* folder = std::getenv("FRUGAL_EXPORT_DIR");
  return folder != nullptr ? folder : "";
}

// The graph, and inputs with what the network makes of them.
void leave_files(const std::string& name, Module& network, const OnnxGraph& graph,
                 const NamedTensors& inputs) {
  if (folder_for_files().empty() || !can_write_onnx()) return;
  const std::string path = folder_for_files() + "/" + name;
  write_onnx(path + ".onnx", graph);
  NamedTensors example;
  for (const auto& [input, tensor] : as_in_onnx(inputs))
    for (const OnnxValue& value : graph.inputs)
      if (value.name == input) example.emplace_back(input, tensor);
  example.emplace_back("logits", ops::contiguous(evaluate(network, inputs)));
  data::write_safetensors(path + ".safetensors", example);
}

TEST_CASE("every op of the table has a form in ONNX, or a reason to have none") {
  std::set<std::string> written;
  for (const op_table::Op& op : op_table::rows()) {
    if (without_form().contains(op.name)) continue;
    int number = 0;
    for (const op_table::Case& c : op.cases) {
      CAPTURE(op.name);
      CAPTURE(c.name);
      const Variables values = op_table::make_inputs(c, DType::f32);
      OfTable network(c, values);
      OnnxInputs inputs;
      inputs.make = [&](const std::vector<int64_t>&) { return network.inputs(values); };
      OnnxGraph graph;
      const std::string message = message_of([&] { graph = to_onnx(network, inputs); });
      if (message.find("expected evaluation") != std::string::npos) continue;
      // The op hides its inputs: they are bound in `run`, as graphs are.
      if (message.find("made of edge_index in the forward pass") != std::string::npos) {
        written.insert(op.name);
        continue;
      }
      CHECK(message == "");
      if (message != "") continue;
      written.insert(op.name);
      // Programs disagree on tensors without elements.
      const bool empty = std::any_of(values.begin(), values.end(),
                                     [](const Variable& x) { return x.value().numel() == 0; });
      if (!empty)
        leave_files(fmt::format("op_{}_{}", op.name, number++), network, graph,
                    network.inputs(values));
    }
  }
  for (const op_table::Op& op : op_table::rows()) {
    CAPTURE(op.name);
    const bool training_only = op.name.starts_with("batch_norm");  // evaluated in networks below
    CHECK((written.contains(op.name) || without_form().contains(op.name) || training_only));
  }
}

TEST_CASE("a convolutional network looks as PyTorch writes it") {
  models::Init init;
  models::CifarResNet network(init, models::cifar_resnet_options("resnet20"));
  const OnnxGraph graph = to_onnx(network, of_shape({32, 32, 3}));
  CHECK(count(graph, "Conv") == 19);
  CHECK(count(graph, "BatchNormalization") == 19);
  CHECK(count(graph, "Transpose") == 0);
  CHECK(count(graph, "Gemm") == 1);
  REQUIRE(graph.inputs.size() == 1);
  CHECK(graph.inputs[0].name == "input");
  CHECK(graph.inputs[0].shape[0].name == "batch");
  CHECK(graph.inputs[0].shape[1].size == 3);
  CHECK(graph.outputs[0].name == "logits");
  CHECK(graph.outputs[0].shape[0].name == "batch");
  CHECK(graph.outputs[0].shape[1].size == 10);
  // All weights and statistics are there under PyTorch's names, in PyTorch's layouts.
  std::map<std::string, Tensor> initializers(graph.initializers.begin(), graph.initializers.end());
  for (const auto& [name, tensor] : models::state_dict(network)) {
    if (name.ends_with("num_batches_tracked")) continue;
    const auto& this_name = name;
    CAPTURE(this_name);
    REQUIRE(initializers.contains(name));
    CHECK(initializers[name].shape() == tensor.shape());
    CHECK(initializers[name].to_vector() == tensor.to_vector());
  }
}

// Up to operator set 13 the reference of the onnx package moves the statistics of a norm by 1 -
// momentum before it takes them (findings/onnx_reference_norms.sh).
TEST_CASE("statistics of a norm are those of the network, also for onnx's reference") {
  models::Init init;
  models::CifarResNet network(init, models::cifar_resnet_options("resnet20"));
  for (const OnnxNode& node : to_onnx(network, of_shape({32, 32, 3})).nodes) {
    if (node.op != "BatchNormalization") continue;
    double momentum = 0.9;  // what a node without the attribute has
    for (const auto& [name, value] : node.attributes)
      if (name == "momentum") momentum = std::get<double>(value);
    CHECK(momentum == 1);
  }
}

// Random weights, and statistics that are neither 0 nor 1.
void shake(Module& network) {
  Rng rng(9);
  for (const Module::NamedParameter& p : network.parameters()) {
    const Shape& shape = p.parameter->shape();
    const double spread =
        shape.dim() > 1 ? 1 / std::sqrt(static_cast<double>(shape.numel() / shape[0])) : 0.1;
    const bool factor = shape.dim() == 1 && p.name.ends_with("weight");  // the weight of a norm
    p.parameter->set_value(ops::affine(Tensor::randn(shape, rng.next()), spread, factor ? 1 : 0));
  }
  for (const Module::NamedBuffer& b : network.buffers())
    if (is_floating(b.buffer->dtype()))
      ops::copy_into(*b.buffer,
                     b.name.ends_with("running_var")
                         ? ops::affine(Tensor::rand(b.buffer->shape(), rng.next()), 1, 0.5)
                         : ops::affine(Tensor::randn(b.buffer->shape(), rng.next()), 0.1, 0));
}

Tensor whole_numbers(const Shape& shape, uint64_t below, RngKey key) {
  const Tensor x = Tensor::empty(shape, DType::i64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<int64_t>()[i] = static_cast<int64_t>(uniform_int(key, static_cast<uint64_t>(i), below));
  return x;
}

// What no configuration of the quick runs has. The Python test computes the outputs again.
TEST_CASE("heads, masks and weights of edges are written") {
  models::Init init;
  Rng rng(5);
  OnnxInputs tokens;
  tokens.sizes = {{"batch", 2, 3}, {"sequence", 7, 6}};
  tokens.make = [&](const std::vector<int64_t>& sizes) {
    const Shape shape{sizes[0], sizes[1]};
    return NamedTensors{{"input_ids", whole_numbers(shape, 20, rng.next())},
                        {"attention_mask", whole_numbers(shape, 2, rng.next())},
                        {"token_type_ids", whole_numbers(shape, 2, rng.next())}};
  };
  models::BertOptions bert = models::bert_options("bert_tiny");
  bert.vocab_size = 20;
  bert.hidden = 16;
  bert.head = models::BertHead::masked_lm;
  models::Bert guesses(init, bert);
  models::Gpt2Options gpt2{2, 16, 2};
  gpt2.vocab_size = 20;
  models::Gpt2 writes(init, gpt2);
  shake(guesses);
  shake(writes);
  for (const auto& [name, model] :
       {std::pair<const char*, Module*>{"masked_lm", &guesses}, {"gpt2_mask", &writes}}) {
    const OnnxGraph graph = to_onnx(*model, tokens);
    CHECK(graph.inputs.size() == (model == &guesses ? 3 : 2));  // what is not read is left out
    REQUIRE(graph.outputs[0].shape.size() == 3);
    CHECK(graph.outputs[0].shape[0].name == "batch");
    CHECK(graph.outputs[0].shape[1].name == "sequence");
    leave_files(name, *model, graph, tokens.make({4, 9}));
  }
  // A tied head reads the table of the embedding: the file has it once.
  const OnnxGraph tied = to_onnx(writes, tokens);
  CHECK(std::count_if(tied.initializers.begin(), tied.initializers.end(),
                      [](const auto& each) { return each.second.numel() == 20 * 16; }) == 1);

  for (const char* weights : {"edge_weight", "edge_norm"}) {
    OnnxInputs graphs;
    graphs.sizes = {{"nodes", 7, 8}, {"edges", 20, 23}};
    graphs.make = [&](const std::vector<int64_t>& sizes) {
      const auto nodes = static_cast<uint64_t>(sizes[0]);
      // Edge 0 is a loop, of a node that has no other.
      const Tensor edges = whole_numbers({2, sizes[1]}, nodes - 1, rng.next());
      edges.mut<int64_t>()[0] = edges.mut<int64_t>()[sizes[1]] = sizes[0] - 1;
      for (int64_t e = 1; e < sizes[1]; ++e)
        if (edges.mut<int64_t>()[e] == edges.mut<int64_t>()[sizes[1] + e])
          edges.mut<int64_t>()[e] = sizes[0] - 1;
      return NamedTensors{{"x", Tensor::randn({sizes[0], 5}, rng.next())},
                          {"edge_index", edges},
                          {weights, Tensor::rand({sizes[1]}, rng.next())}};
    };
    models::GnnOptions options;
    options.in_features = 5;
    models::Gcn gcn(init, options);
    leave_files(std::string("gcn_") + weights, gcn, to_onnx(gcn, graphs), graphs.make({9, 30}));
    models::SageOptions mean;
    mean.in_features = 5;
    models::Sage sage(init, mean);
    leave_files(std::string("sage_") + weights, sage, to_onnx(sage, graphs), graphs.make({9, 30}));
  }
}

// A list of layers for texts: rows of positions are cut to the tokens that there are, and hidden
// tokens do not count in the mean.
TEST_CASE("positions and means of texts whose length is free are written") {
  models::Init init;
  Rng rng(9);
  constexpr int64_t kLongest = 6, kIds = 20, kWidth = 8;
  OnnxInputs tokens;
  tokens.sizes = {{"batch", 2, 3}, {"sequence", 4, kLongest}};
  tokens.make = [&](const std::vector<int64_t>& sizes) {
    const Shape shape{sizes[0], sizes[1]};
    return NamedTensors{{"input_ids", whole_numbers(shape, kIds, rng.next())},
                        {"attention_mask", whole_numbers(shape, 2, rng.next())}};
  };
  const auto layers = [&] {
    auto list = std::make_shared<models::Sequential>();
    list->append(std::make_shared<models::TokenEmbedding>(init, kIds, kWidth));
    list->append(std::make_shared<models::PositionEmbedding>(init, kLongest, kWidth));
    return list;
  };
  const auto each_token = layers(), mean = layers();
  each_token->append(std::make_shared<models::Linear>(init, kWidth, kIds));
  mean->append(std::make_shared<models::MeanPool>());
  for (const auto& [name, network] : {std::pair("each_token", each_token), {"mean", mean}}) {
    const auto& this_name = name;
    CAPTURE(this_name);
    shake(*network);
    const OnnxGraph graph = to_onnx(*network, tokens);
    CHECK(count(graph, "Slice") == 1);
    CHECK(graph.inputs.size() == (network == mean ? 2 : 1));
    CHECK(graph.outputs[0].shape[0].name == "batch");
    leave_files(name, *network, graph, tokens.make({3, 5}));
  }
}

// Numbers that follow from the length of a text belong to the text that the file gets, not to those
// that the export saw.
TEST_CASE("a length that the export did not see counts") {
  models::Init init;
  Rng rng(11);
  OnnxInputs tokens;
  tokens.sizes = {{"batch", 2, 3}, {"sequence", 7, 6}};
  tokens.make = [&](const std::vector<int64_t>& sizes) {
    return NamedTensors{{"input_ids", whole_numbers({sizes[0], sizes[1]}, 20, rng.next())}};
  };
  models::DecoderOptions options;
  options.layers = 1;
  options.hidden = 32;
  options.heads = 2;
  options.vocab_size = 20;
  options.rotary = {
      .base = 50, .scaling = RotaryOptions::Scaling::dynamic, .factor = 4, .first_length = 7};
  models::Decoder decoder(init, options);
  models::BertOptions roberta = models::bert_options("roberta_base");
  roberta.layers = 1;
  roberta.hidden = 16;
  roberta.heads = 2;
  roberta.vocab_size = 20;
  models::Bert counts_from_2(init, roberta);
  for (const auto& [name, network] :
       {std::pair<const char*, Module*>{"dynamic", &decoder}, {"counts_from_2", &counts_from_2}}) {
    const auto& this_name = name;
    CAPTURE(this_name);
    shake(*network);
    const OnnxGraph graph = to_onnx(*network, tokens);
    CHECK(graph.inputs[0].shape[1].name == "sequence");
    CHECK(count(graph, "Log") == (network == &decoder ? 2 : 0));  // q and k
    leave_files(name, *network, graph, tokens.make({3, 24}));
  }
}

// Small networks of each family of pictures. The Python test gives "cnn_" to OpenCV, too.
TEST_CASE("networks for pictures are written") {
  models::Init init;
  const std::array<int64_t, 4> ones{1, 1, 1, 1};
  models::DenseNetOptions densenet{{2, 2, 1, 1}, 4, 8};
  models::SwinOptions swin{8, {2, 1, 1, 1}, {1, 2, 2, 2}};
  models::VggOptions vgg{{1, 1, 1, 1, 1}, 4, true, 16};
  models::ResNetOptions basic{ones}, wide{ones, true, 2};
  models::VitOptions vit{8, 2, 2, 16};
  vit.image = 32;
  const std::vector<std::tuple<std::string, std::shared_ptr<Module>, Shape>> networks = {
      {"cnn_densenet", std::make_shared<models::DenseNet>(init, densenet), {32, 64, 3}},
      {"cnn_vgg_repeats", std::make_shared<models::Vgg>(init, vgg), {32, 32, 3}},
      {"cnn_vgg_averages", std::make_shared<models::Vgg>(init, vgg), {64, 96, 3}},
      {"cnn_vgg_whole", std::make_shared<models::Vgg>(init, vgg), {224, 224, 3}},
      {"cnn_resnet", std::make_shared<models::ResNet>(init, basic), {48, 32, 3}},
      {"cnn_resnet_wide", std::make_shared<models::ResNet>(init, wide), {32, 32, 3}},
      {"swin", std::make_shared<models::Swin>(init, swin), {56, 56, 3}},
      {"swin_padded", std::make_shared<models::Swin>(init, swin), {72, 32, 3}},
      {"vit", std::make_shared<models::Vit>(init, vit), {32, 32, 3}},
  };
  for (const auto& [name, network, picture] : networks) {
    const auto& this_name = name;
    CAPTURE(this_name);
    shake(*network);
    const OnnxInputs inputs = of_shape(picture);
    const OnnxGraph graph = to_onnx(*network, inputs);
    if (name.starts_with("cnn_"))
      CHECK(count(graph, "Transpose") == (name == "cnn_vgg_averages" ? 2 : 0));
    leave_files(name, *network, graph, inputs.make({4}));
  }
}

TEST_CASE("sizes that follow from free ones are free") {
  Of flatten([](const Variable& x) { return reshape(x, {x.size(0) * 4, 5}); });
  const OnnxGraph graph = to_onnx(flatten, of_shape({4, 5}));
  CHECK(graph.outputs[0].shape[0].size == -1);
  CHECK(graph.outputs[0].shape[0].name == "");
  CHECK(graph.outputs[0].shape[1].size == 5);
  // A network that gives its input back has a node, too.
  Of nothing([](const Variable& x) { return reshape(x, x.shape()); });
  CHECK(to_onnx(nothing, of_shape({4})).nodes.size() == 1);
}

// OpenCV's dnn divides by the pixels that are there, whatever count_include_pad says
// (findings/opencv_dnn_nodes.sh).
TEST_CASE("an average that counts its padding pads first") {
  for (const bool counts : {true, false}) {
    CAPTURE(counts);
    Of pool([counts](const Variable& x) {
      return avg_pool2d(x, {{3, 3}, {2, 2}, {1, 1}, counts});
    });
    const OnnxGraph graph = to_onnx(pool, of_shape({9, 9, 4}));
    CHECK(count(graph, "Pad") == (counts ? 1 : 0));
    REQUIRE(count(graph, "AveragePool") == 1);
    for (const OnnxNode& node : graph.nodes)
      for (const auto& [name, value] : node.attributes)
        if (node.op == "AveragePool" && name == "pads")
          CHECK(std::get<std::vector<int64_t>>(value) == std::vector<int64_t>(4, counts ? 0 : 1));
  }
}

TEST_CASE("what ONNX cannot say is an error that names the op") {
  Of snake([](const Variable& x) {
    return record("snake", {x}, ops::clone(x.value()), {}, [](const Backward&) { return Grads{}; });
  });
  const std::string unknown = message_of([&] { to_onnx(snake, of_shape({4})); });
  CHECK(unknown.find("[export] snake: expected an op that has a form in ONNX") == 0);
  CHECK(unknown.find("conv2d") != std::string::npos);

  // Computed beside the graph: the values would be those of one random batch.
  Of beside([](const Variable& x) { return add(x, Variable(ops::affine(x.value(), 2, 0))); });
  const std::string hidden = message_of([&] { to_onnx(beside, of_shape({4})); });
  CHECK(hidden.find("[export] add: its input [2, 4] f32 differs with the inputs") == 0);
  Of replaced([](const Variable& x) { return Variable(ops::affine(x.value(), 2, 0)); });
  CHECK(message_of([&] {
          to_onnx(replaced, of_shape({4}));
        }).find("expected an output that ops of autograd/functions.h make") != std::string::npos);

  Of by_size([](const Variable& x) { return x.size(0) == 2 ? relu(x) : x; });
  CHECK(message_of([&] { to_onnx(by_size, of_shape({4})); }).find("runs the same ops") !=
        std::string::npos);
  Of cut([](const Variable& x) { return slice(x, 0, 0, x.size(0) - 1); });
  CHECK(message_of([&] {
          to_onnx(cut, of_shape({4}));
        }).find("[export] slice: expected end not to depend on the sizes") == 0);
  Of scaled([](const Variable& x) { return scale(x, static_cast<double>(x.size(0))); });
  CHECK(message_of([&] {
          to_onnx(scaled, of_shape({4}));
        }).find("[export] scale: expected factor not to depend on the sizes") == 0);

  class Training : public Module {
   public:
    Variable forward(Variable x, Context&) override { return dropout(x, 0.5, {1, 2}); }
  } training;
  CHECK(message_of([&] { to_onnx(training, of_shape({4})); }).find("[export] dropout") == 0);
}

TEST_CASE("tracing changes nothing and ends with its scope") {
  struct Count : Trace {
    void add(TracedOp op) override { names.push_back(op.name); }
    std::vector<std::string> names;
  } outer, inner;
  const Variable x(Tensor::ones({2, 3}), true);
  CHECK(active_trace() == nullptr);
  {
    const TraceScope first(outer);
    const Variable y = relu(x);
    {
      const TraceScope second(inner);
      CHECK(softmax(y).shape() == Shape{2, 3});
    }
    CHECK(y.requires_grad());
    tanh(y);
  }
  relu(x);
  CHECK(active_trace() == nullptr);
  CHECK(outer.names == std::vector<std::string>{"relu", "tanh"});
  CHECK(inner.names == std::vector<std::string>{"softmax"});
}

TEST_CASE("large weights lie in a second file" * doctest::skip(!can_write_onnx())) {
  models::Init init;
  models::Linear network(init, 64, 32);
  const OnnxInputs inputs = of_shape({64});
  const OnnxGraph graph = to_onnx(network, inputs);
  namespace fs = std::filesystem;
  std::string folder = folder_for_files();
  const std::string made = (fs::temp_directory_path() / "frugal_export_XXXXXX").string();
  std::string pattern = made;
  if (folder.empty()) folder = mkdtemp(pattern.data());
  write_onnx(folder + "/one_file.onnx", graph);
  CHECK(!fs::exists(folder + "/one_file.onnx.data"));
  write_onnx(folder + "/two_files.onnx", graph, 0);
  CHECK(fs::file_size(folder + "/two_files.onnx.data") == 64 * 32 * 4);
  CHECK(fs::file_size(folder + "/two_files.onnx") < 2048);
  const NamedTensors input = inputs.make({5});
  NamedTensors example = input;
  example.emplace_back("logits", evaluate(network, input));
  for (const char* name : {"one_file", "two_files"})
    data::write_safetensors(fmt::format("{}/{}.safetensors", folder, name), example);
  CHECK_THROWS_WITH_AS(write_onnx(folder + "/none/a.onnx", graph), doctest::Contains("none"),
                       Error);
  OnnxGraph on_meta = graph;
  on_meta.initializers[0].second = Tensor::empty({32, 64}, DType::f32, kMeta);
  CHECK_THROWS_WITH_AS(write_onnx(folder + "/meta.onnx", on_meta),
                       doctest::Contains("expected weights on the cpu"), Error);
  if (folder == pattern) fs::remove_all(folder);
}

}  // namespace
}  // namespace frugal::exports
