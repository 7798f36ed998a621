#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/export_inputs.h"
#include "apps/cli/given_path.h"
#include "apps/cli/report.h"
#include "apps/config/adapter_files.h"
#include "apps/config/data/make_tokenizer.h"
#include "apps/config/hub_folder.h"
#include "apps/config/keys/value_named.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"
#include "data/formats/safetensors.h"
#include "export/onnx_file.h"
#include "export/recording.h"
#include "models/adapters/adapters.h"
#include "models/self_supervised/self_supervised.h"
#include "models/state.h"
#include "ops/dense/copy.h"
#include "train/planning/bytes.h"
#include "train/run/run_folder.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// ---- the network and its weights

struct ExportSource {
  Config config;
  BatchSpec spec;
  std::shared_ptr<Module> model;
  std::string weights;              // the file; empty: random
  std::string folder;               // the run's; empty: there is none
  std::vector<std::string> labels;  // names in the order of the outputs; empty: not known
  bool unties_head = false;         // did a merged adapter give the head a weight of its own?
};

// The network of a run as files hold it, with whole weights. Packed weights become the whole ones
// that they stand for, because adapters were trained beside these.
std::shared_ptr<Module> whole_network(StoredRun& run, const std::string& weights, Device device) {
  const auto network = stored_network(run, weights, device);
  if (run.config.model.packing.format == ops::MatrixFormat::f32) return network;
  run.config.model.packing = {};
  const auto whole = make_model(run.config, run.description.spec, device);
  const bool leaves_out = whole->leaves_out_frozen();
  network->leave_out_frozen(false);
  whole->leave_out_frozen(false);
  models::load_state_dict(*whole, models::state_views(*network));
  whole->leave_out_frozen(leaves_out);
  return whole;
}

ExportSource open_source(const ExportArguments& arguments) {
  must_be_there("RUN", arguments.source);
  const bool is_run = is_folder(arguments.source);
  StoredRun run;
  if (is_run) {
    std::vector<std::string> sets = arguments.sets;
    sets.emplace_back("device=cpu");  // the file holds numbers only
    run = read_run(arguments.source, sets);
  } else {
    run.config = load_config(arguments.source, arguments.sets);
    run.config.run.device = "cpu";
    run.config.run.precision = "f32";
    run.config.run.cuda_graphs = false;
    resolve(run.config);
    run.description.spec = batch_spec(run.config);
  }
  if (is_run && arguments.random)
    throw ConfigError("",
                      "--random: expected a configuration, whose weights are not there yet, got "
                      "the folder of a run");
  ExportSource source;
  if (!arguments.checkpoint.empty())
    source.weights = arguments.checkpoint;
  else if (is_run)
    source.weights = weights_file(run, arguments.weights);
  else if (!arguments.random)
    throw ConfigError("",
                      "expected the folder of a run, or a configuration with --checkpoint "
                      "FILE; --random exports random weights");
  source.folder = run.folder;
  source.labels = run.description.classes;
  const Device device = set_up_computing_device(run.config.run, "exported");
  source.spec = run.description.spec;
  if (source.weights.empty()) {
    run.config.model.packing = {};
    source.model = make_model(run.config, source.spec, device);
  } else {
    source.model = whole_network(run, source.weights, device);
  }
  source.config = std::move(run.config);
  return source;
}

// Errors: ConfigError for a network whose answers are not made by one pass of ops.
void check_passes(const ExportSource& source) {
  if (source.config.model.name != "fasterrcnn_resnet50_fpn") return;
  throw ConfigError("model.name",
                    "export: expected --format safetensors for fasterrcnn_resnet50_fpn: which "
                    "regions its head looks at is chosen between two passes, which ONNX files of "
                    "ours cannot hold");
}

// What --trunk exports in place of the network.
Module& trunk_of(const ExportSource& source) {
  models::SelfSupervised* const network = source.model->as_self_supervised();
  if (network == nullptr)
    throw ConfigError("", fmt::format("--trunk: expected a network simsiam, byol or moco_v2, got "
                                      "{}, which is exported whole",
                                      source.config.model.name));
  return network->trunk();
}

// ---- what the file says of itself

using Notes = std::vector<std::pair<std::string, std::string>>;

Notes notes_of(const ExportSource& source) {
  Notes notes{{"model", source.config.model.name},
              {"data", source.config.data.name},
              {"config", config_text(source.config)}};
  if (!source.labels.empty()) notes.emplace_back("classes", Json(source.labels).dump());
  return notes;
}

// ---- formats

std::string format_of(const ExportArguments& arguments) {
  if (!arguments.format.empty()) return arguments.format;
  for (const char* format : {"onnx", "safetensors", "hf"})
    if (arguments.output.ends_with(std::string(".") + format)) return format;
  if (arguments.output.ends_with(".gguf")) return "gguf-lora";
  throw ConfigError("",
                    "export: expected --format onnx, safetensors, hf, merged, peft, gguf-lora or "
                    "mlx-lora");
}

// "f32 [batch, 10]"
std::string shown(const exports::OnnxValue& value) {
  std::vector<std::string> extents;
  for (const exports::OnnxExtent& extent : value.shape)
    extents.push_back(!extent.name.empty() ? extent.name
                      : extent.size >= 0   ? std::to_string(extent.size)
                                           : "?");
  return fmt::format("{} [{}]", name_of(value.dtype), fmt::join(extents, ", "));
}

Json values_json(const std::vector<exports::OnnxValue>& values) {
  Json all = Json::array();
  for (const exports::OnnxValue& value : values) {
    Json shape = Json::array();
    for (const exports::OnnxExtent& extent : value.shape)
      if (!extent.name.empty())
        shape.push_back(extent.name);
      else if (extent.size >= 0)
        shape.push_back(extent.size);
      else
        shape.push_back(nullptr);
    all.push_back(
        {{"name", value.name}, {"dtype", std::string(name_of(value.dtype))}, {"shape", shape}});
  }
  return all;
}

// Inputs and what the network makes of them, in sizes that the export did not see.
void write_example(const std::string& path, Module& model, const exports::OnnxInputs& inputs,
                   const exports::OnnxGraph& graph) {
  std::vector<int64_t> sizes;
  for (const exports::FreeSize& size : inputs.sizes)
    sizes.push_back(std::min(size.other + 2, size.most));
  const NamedTensors made = inputs.make(sizes);
  NamedTensors example;
  for (const auto& [name, tensor] : exports::as_in_onnx(made))
    for (const exports::OnnxValue& value : graph.inputs)
      if (value.name == name) example.emplace_back(name, tensor);
  example.emplace_back(graph.outputs[0].name, exports::evaluate(model, made));
  data::write_safetensors(path, example);
}

Json export_onnx(const ExportArguments& arguments, const std::string& output,
                 const ExportSource& source) {
  const exports::OnnxInputs inputs = export_inputs(source.spec);
  check_passes(source);
  exports::OnnxGraph graph = exports::to_onnx(*source.model, inputs);
  graph.metadata = notes_of(source);
  exports::write_onnx(output, graph);
  if (!arguments.example.empty()) write_example(arguments.example, *source.model, inputs, graph);
  int64_t elements = 0;
  for (const auto& [name, tensor] : graph.initializers) elements += tensor.numel();
  if (!arguments.json) {
    std::printf(
        "%s: ONNX, opset %lld, %s, %s\n", output.c_str(), static_cast<long long>(exports::kOpset),
        with_noun(graph.nodes.size(), "node").c_str(), with_noun(elements, "weight").c_str());
    for (const exports::OnnxValue& value : graph.inputs)
      std::printf("  input  %-16s %s\n", value.name.c_str(), shown(value).c_str());
    for (const exports::OnnxValue& value : graph.outputs)
      std::printf("  output %-16s %s\n", value.name.c_str(), shown(value).c_str());
  }
  return {{"format", "onnx"},
          {"opset", exports::kOpset},
          {"nodes", graph.nodes.size()},
          {"weights", elements},
          {"inputs", values_json(graph.inputs)},
          {"outputs", values_json(graph.outputs)}};
}

DType dtype_named(const std::string& name) {
  return value_named<DType>(name,
                            {{"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}});
}

// The weights of the network, or of its trunk, in the dtype that was asked for.
models::NamedTensors exported_tensors(const ExportArguments& arguments,
                                      const ExportSource& source) {
  const DType dtype = dtype_named(arguments.dtype);
  models::NamedTensors tensors =
      models::state_dict(arguments.trunk ? trunk_of(source) : *source.model);
  for (auto& [name, tensor] : tensors) {
    if (!is_floating(tensor.dtype())) continue;
    tensor = ops::cast(tensor, dtype);
    if (dtype != DType::f16) continue;
    for (const float value : tensor.to_vector<float>())
      if (!std::isfinite(value))
        throw ConfigError("", fmt::format("--dtype: expected bf16 or f32, because {} has values "
                                          "beyond the range of f16",
                                          in_quotes(name)));
  }
  return tensors;
}

int64_t elements_of(const models::NamedTensors& tensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  return elements;
}

std::string sizes_text(size_t tensors, int64_t elements) {
  return with_noun(tensors, "tensor") + ", " + with_noun(elements, "element");
}

Json export_safetensors(const ExportArguments& arguments, const std::string& output,
                        const ExportSource& source) {
  const models::NamedTensors tensors = exported_tensors(arguments, source);
  const int64_t elements = elements_of(tensors);
  data::Metadata metadata{{"format", "pt"}};  // PyTorch's names and layouts
  for (const auto& [key, value] : notes_of(source)) metadata[key] = value;
  data::write_safetensors(output, tensors, metadata);
  if (!arguments.json)
    std::printf("%s: safetensors, %s, %s\n", output.c_str(), arguments.dtype.c_str(),
                sizes_text(tensors.size(), elements).c_str());
  return {{"format", "safetensors"},
          {"dtype", arguments.dtype},
          {"tensors", tensors.size()},
          {"elements", elements}};
}

// Files of a tokenizer, which a folder takes over from the run, or from the one whose weights the
// run started from.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "tokenizer.model",
                                           "vocab.json",
                                           "vocab.txt",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "generation_config.json"};

// Where the tokenizer's files are. A folder of the hub has the tokenizer in its first file.
std::vector<std::pair<std::string, fs::path>> tokenizer_files_of(const ExportSource& source) {
  constexpr const char* kFirst[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt",
                                    "characters.txt"};
  std::error_code ignored;
  const auto first_of = [&](const std::string& folder) -> std::string {
    for (const char* name : kFirst)
      if (!folder.empty() && fs::is_regular_file(fs::path(folder) / name, ignored)) return name;
    return "";
  };
  const std::string origin = source.config.model.weights.value_or(""),
                    own = first_of(source.folder);
  const auto bytes = [&](const std::string& folder) {
    return data::read_file("export", (fs::path(folder) / own).string());
  };
  const bool is_origins =
      own.empty() || (first_of(origin) == own && bytes(origin) == bytes(source.folder));
  std::vector<std::pair<std::string, fs::path>> files;
  for (const char* name : kTokenizerFiles) {
    const fs::path ours = fs::path(source.folder) / name, theirs = fs::path(origin) / name;
    if (!own.empty() && fs::is_regular_file(ours, ignored))
      files.emplace_back(name, ours);
    else if (is_origins && !origin.empty() && fs::is_regular_file(theirs, ignored))
      files.emplace_back(name, theirs);
  }
  return files;
}

// Errors: a file in the folder `output` that is none of `written`, but that readers of a model's
// folder take for a part of it.
void check_no_other_parts(const std::string& output, const Json& written) {
  std::error_code none;
  if (!fs::is_directory(output, none)) return;
  for (const auto& entry : fs::directory_iterator(output)) {
    const std::string name = entry.path().filename().string();
    const bool part = name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
                      std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) !=
                          std::end(kTokenizerFiles);
    if (part && std::find(written.begin(), written.end(), name) == written.end())
      throw ConfigError(
          "", fmt::format("--output: expected a folder without {}, with which other programs would "
                          "read the new weights, got {}; remove the file, or name another folder",
                          in_quotes(name), in_quotes(output)));
  }
}

// A folder with config.json and model.safetensors.
Json export_folder(const ExportArguments& arguments, const std::string& format,
                   const std::string& output, const ExportSource& source) {
  const std::string dtype = arguments.dtype == "f32"   ? "float32"
                            : arguments.dtype == "f16" ? "float16"
                                                       : "bfloat16";
  const std::string origin = source.config.model.weights.value_or("");
  std::vector<std::string> labels = source.labels;
  for (auto i = static_cast<int64_t>(labels.size());
       i < source.spec.classes && !source.spec.target_of_each_token(); ++i)
    labels.push_back(fmt::format("LABEL_{}", i));
  const Json config = hub_config(source.config.model, dtype, origin, labels);
  Json files = {"config.json", "model.safetensors"};
  const auto copied = tokenizer_files_of(source);
  for (const auto& [name, from] : copied) files.push_back(name);
  // Without a run, the tokenizer is that of the data.
  const auto lacks = [&](const std::string& name) {
    return std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) !=
               std::end(kTokenizerFiles) &&
           std::find(files.begin(), files.end(), name) == files.end();
  };
  decltype(tokenizer_files(source.config, lacks)) made;
  if (source.folder.empty()) made = tokenizer_files(source.config, lacks);
  for (const auto& [name, text] : made) files.push_back(name);
  check_no_other_parts(output, files);
  const models::NamedTensors tensors = exported_tensors(arguments, source);
  data::NewFolder folder(output);
  data::write_safetensors((fs::path(output) / "model.safetensors").string(), tensors,
                          {{"format", "pt"}});
  for (const auto& [name, from] : copied)
    fs::copy_file(from, fs::path(output) / name, fs::copy_options::overwrite_existing);
  for (const auto& [name, text] : made)
    data::atomic_write((fs::path(output) / name).string(), text);
  data::atomic_write((fs::path(output) / "config.json").string(), config.dump(2) + "\n");
  folder.keep();
  if (!arguments.json)
    std::printf("%s: %s, %s, %s\n", output.c_str(), config["model_type"].get<std::string>().c_str(),
                arguments.dtype.c_str(), sizes_text(tensors.size(), elements_of(tensors)).c_str());
  return {{"format", format},
          {"dtype", arguments.dtype},
          {"tensors", tensors.size()},
          {"elements", elements_of(tensors)},
          {"files", files}};
}

// The adapter alone.
Json export_adapter(const ExportArguments& arguments, const std::string& format,
                    const std::string& output, const ExportSource& source) {
  const AdapterFormat kind = format == "peft"       ? AdapterFormat::peft
                             : format == "mlx-lora" ? AdapterFormat::mlx
                                                    : AdapterFormat::gguf;
  const WrittenAdapter written =
      write_adapter(*source.model, source.config, kind, output, dtype_named(arguments.dtype));
  if (!arguments.json)
    std::printf("%s: %s, %s, %s\n", output.c_str(), format.c_str(), arguments.dtype.c_str(),
                sizes_text(written.tensors, written.elements).c_str());
  return {{"format", format},
          {"dtype", arguments.dtype},
          {"tensors", written.tensors},
          {"elements", written.elements},
          {"files", written.files}};
}

// Errors: an output in the place of what the run consists of, or of what it began with.
void check_not_read(const std::string& output, const ExportSource& source) {
  std::error_code none;
  const auto same = [&](const fs::path& a, const fs::path& b) {
    return !a.empty() && !b.empty() && fs::equivalent(a, b, none);
  };
  const fs::path place = output, parent = fs::absolute(place).parent_path();
  const std::string name = place.filename().string();
  if (!fs::exists(place, none)) return;
  const fs::path run = source.folder;
  bool read = same(place, source.weights) || same(place, run) || train::is_needed_by_run(output);
  for (const auto& begun : {source.config.model.weights, source.config.model.adapter})
    if (begun)
      read = read || same(place, *begun) ||
             (same(parent, *begun) && (name.ends_with(".safetensors") || name.ends_with(".json")));
  if (read)
    throw ConfigError("", fmt::format("--output: expected another place than {}, which the run "
                                      "needs itself",
                                      in_quotes(output)));
}

}  // namespace

void export_command(const ExportArguments& arguments) {
  const std::string format = format_of(arguments);
  if (format == "onnx" && arguments.trunk)
    throw ConfigError("",
                      "--trunk: expected --format safetensors, got onnx, which holds what the "
                      "trunk computes and nothing else");
  if (format == "onnx" && arguments.dtype != "f32")
    throw ConfigError(
        "", fmt::format("--dtype: expected f32 with --format onnx, got {}", arguments.dtype));
  if (format != "onnx" && !arguments.example.empty())
    throw ConfigError("", fmt::format("--example: expected --format onnx, got {}", format));
  if (format == "onnx" && !exports::can_write_onnx())
    throw ConfigError("",
                      "expected a build with libonnx for --format onnx; install libonnx-dev "
                      "and libprotobuf-dev and build again (docs/guide/install.md)");
  const auto check_free = [&](const std::string& path) {
    std::error_code ignored;
    if (!arguments.overwrite && fs::exists(path, ignored))
      throw ConfigError("", fmt::format("expected a new file, and {} exists; --overwrite replaces "
                                        "it",
                                        in_quotes(path)));
  };
  if (!arguments.output.empty()) check_free(arguments.output);
  if (!arguments.example.empty()) check_free(arguments.example);
  const bool is_file = format == "onnx" || format == "safetensors" || format == "gguf-lora";
  if (const std::string wrong =
          is_file ? check_place(arguments.output) : check_folder(arguments.output);
      !arguments.output.empty() && !wrong.empty())
    throw ConfigError("", "--output: " + wrong);
  ExportSource source = open_source(arguments);
  std::string output = arguments.output;
  if (!output.empty()) check_not_read(output, source);
  const bool adapter_alone = format == "peft" || format == "mlx-lora" || format == "gguf-lora";
  const bool adapts = !models::adapted_layers(*source.model).empty();
  if (format == "merged" && !adapts)
    throw ConfigError("adapter.type",
                      "export: expected a run with an adapter for --format merged, "
                      "got none; --format hf writes a network without one");
  if (!adapter_alone && models::merge_adapters(*source.model)) {
    source.unties_head = true;
    source.config.model.options["tied"] = false;
  }
  if (output.empty()) {
    output = (arguments.trunk ? source.config.model.trunk() : source.config.model.name) + "." +
             (format == "gguf-lora" ? "gguf" : format);
    check_free(output);
  }
  Json said = adapter_alone             ? export_adapter(arguments, format, output, source)
              : format == "onnx"        ? export_onnx(arguments, output, source)
              : format == "safetensors" ? export_safetensors(arguments, output, source)
                                        : export_folder(arguments, format, output, source);
  said["file"] = output;
  said["checkpoint"] = source.weights;
  if (source.unties_head) said["keys"] = {{"model.tied", false}};
  if (arguments.json) {
    print_json(said);
    return;
  }
  std::printf("  weights: %s\n", source.weights.empty() ? "random" : source.weights.c_str());
  if (source.unties_head)
    std::printf(
        "  model.tied=false: the adapter of the embedding is in its weight, and\n"
        "  the output head keeps the weight from before\n");
}

}  // namespace frugal::apps
