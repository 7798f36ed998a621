#include "apps/cli/grad_batch.h"

#include <algorithm>
#include <cstdlib>

#include "apps/config/make_run.h"
#include "core/words/quoted.h"
#include "ops/dense/copy.h"
#include "ops/dense/shape.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

using data::SafetensorsFile, data::SafetensorsShards;

struct Slot {
  const char* name;
  bool required;
};

void check_names(const SafetensorsFile& file, const std::vector<Slot>& slots) {
  std::vector<std::string> known;
  for (const Slot& slot : slots) {
    known.emplace_back(slot.name);
    FRUGAL_CHECK(!slot.required || file.contains(slot.name), "[grad] expected a tensor '{}' in {}",
                 slot.name, file.path());
  }
  for (const std::string& name : file.names())
    FRUGAL_CHECK(std::find(known.begin(), known.end(), name) != known.end(),
                 "[grad] expected only {} in {}, got '{}'", fmt::join(known, ", "), file.path(),
                 printable(name));
}

// The tensor of that name, or undefined. Errors: another shape or dtype.
Tensor read(const SafetensorsFile& file, const char* name, DType dtype, const Shape& shape) {
  if (!file.contains(name)) return {};
  Tensor tensor = file.read(name);
  FRUGAL_CHECK(tensor.dtype() == dtype && tensor.shape() == shape,
               "[grad] expected '{}' to be {} {}, got {}", name, shape.str(), name_of(dtype),
               describe(tensor));
  check_finite(file.path(), name, tensor);
  return tensor;
}

// [N, C, H, W] in files, [N, H, W, C] here.
Batch read_images(const SafetensorsFile& file) {
  check_names(file, {{"input", true}, {"target", false}});
  Batch batch;
  const Tensor input = file.read("input");
  FRUGAL_CHECK(input.dtype() == DType::f32 && (input.dim() == 4 || input.dim() == 2),
               "[grad] expected 'input' to be [N, C, H, W] or [N, F] f32, got {}", describe(input));
  check_finite(file.path(), "input", input);
  batch.input = ops::clone(input.dim() == 4 ? input.permute({0, 2, 3, 1}) : input);
  batch.target = read(file, "target", DType::i64, {batch.input.size(0)});
  return batch;
}

// Values of `target` that do not count become kIgnored.
constexpr int64_t kVoid = 255;

Batch read_pixels(const SafetensorsFile& file) {
  check_names(file, {{"input", true}, {"target", false}});
  Batch batch;
  const Tensor input = file.read("input");
  FRUGAL_CHECK(input.dtype() == DType::f32 && input.dim() == 4,
               "[grad] expected 'input' to be [N, C, H, W] f32, got {}", describe(input));
  check_finite(file.path(), "input", input);
  batch.input = ops::clone(input.permute({0, 2, 3, 1}));
  batch.target = read(file, "target", DType::i64, {input.size(0), input.size(2), input.size(3)});
  if (!batch.target.defined()) return batch;
  auto* target = batch.target.mut<int64_t>();
  for (int64_t i = 0; i < batch.target.numel(); ++i)
    if (target[i] == kVoid) target[i] = kIgnored;
  return batch;
}

// Reads pictures and the objects of each.
Batch read_detection(const SafetensorsFile& file) {
  FRUGAL_CHECK(file.contains("input"), "[grad] expected a tensor 'input' in {}", file.path());
  const Shape pictures = file.info("input").shape;
  FRUGAL_CHECK(pictures.dim() == 4, "[grad] expected 'input' to be [N, C, H, W] f32, got {}",
               pictures);
  std::vector<std::string> names = {"input"};
  for (int64_t i = 0; i < pictures[0]; ++i) {
    names.push_back(fmt::format("boxes.{}", i));
    names.push_back(fmt::format("labels.{}", i));
  }
  std::vector<Slot> slots;
  for (const std::string& name : names) slots.push_back({name.c_str(), true});
  check_names(file, slots);
  Batch batch;
  const Tensor input = read(file, "input", DType::f32, pictures);
  batch.input = ops::clone(input.permute({0, 2, 3, 1}));
  batch.target = Tensor::arange(0, static_cast<double>(pictures[0]), 1, DType::i64);
  std::vector<float> boxes;
  std::vector<int64_t> labels, counts, sizes;
  for (size_t i = 1; i < names.size(); i += 2) {
    const Shape objects = file.info(names[i + 1]).shape;
    FRUGAL_CHECK(objects.dim() == 1, "[grad] expected '{}' to be [n] i64, got {}", names[i + 1],
                 objects);
    const Tensor own = read(file, names[i].c_str(), DType::f32, {objects[0], 4});
    const Tensor classes = read(file, names[i + 1].c_str(), DType::i64, objects);
    for (int64_t k = 0; k < objects[0]; ++k) {
      const float* box = own.data<float>() + 4 * k;
      FRUGAL_CHECK(box[0] >= 0 && box[1] >= 0 && box[0] < box[2] && box[1] < box[3] &&
                       box[2] <= static_cast<float>(pictures[3]) &&
                       box[3] <= static_cast<float>(pictures[2]),
                   "[grad] expected boxes within {} x {} pixels in '{}', got {}, {}, {}, {}",
                   pictures[3], pictures[2], names[i], box[0], box[1], box[2], box[3]);
      boxes.insert(boxes.end(), box, box + 4);
      labels.push_back(classes.data<int64_t>()[k]);
    }
    counts.push_back(objects[0]);
    sizes.insert(sizes.end(), {pictures[2], pictures[3]});
  }
  const auto total = static_cast<int64_t>(labels.size());
  batch.extras = {{"boxes", Tensor::from(boxes, {total, 4})},
                  {"labels", Tensor::from(labels, {total})},
                  {"counts", Tensor::from(counts, {pictures[0]})},
                  {"sizes", Tensor::from(sizes, {pictures[0], 2})}};
  return batch;
}

Batch read_sequences(const SafetensorsFile& file) {
  check_names(file, {{"input_ids", true},
                     {"attention_mask", false},
                     {"token_type_ids", false},
                     {"position_ids", false},
                     {"target", false}});
  Batch batch;
  batch.input = file.read("input_ids");
  FRUGAL_CHECK(batch.input.dtype() == DType::i64 && batch.input.dim() == 2,
               "[grad] expected 'input_ids' to be [N, T] i64, got {}", describe(batch.input));
  for (const char* extra : {"attention_mask", "token_type_ids", "position_ids"})
    if (const Tensor t = read(file, extra, DType::i64, batch.input.shape()); t.defined())
      batch.extras.emplace_back(extra, t);
  if (!file.contains("target")) return batch;
  batch.target = file.info("target").shape.dim() == 2
                     ? read(file, "target", DType::i64, batch.input.shape())
                     : read(file, "target", DType::i64, {batch.input.size(0)});
  return batch;
}

Batch read_graph(const SafetensorsFile& file) {
  check_names(file, {{"x", true},
                     {"edge_index", true},
                     {"edge_weight", false},
                     {"mask", false},
                     {"target", false}});
  Batch batch;
  batch.held = true;
  batch.input = file.read("x");
  FRUGAL_CHECK(batch.input.dtype() == DType::f32 && batch.input.dim() == 2,
               "[grad] expected 'x' to be [V, F] f32, got {}", describe(batch.input));
  check_finite(file.path(), "x", batch.input);
  const Tensor edges = file.read("edge_index");
  FRUGAL_CHECK(edges.dtype() == DType::i64 && edges.dim() == 2 && edges.size(0) == 2,
               "[grad] expected 'edge_index' to be [2, E] i64, got {}", describe(edges));
  batch.extras.emplace_back("edge_index", edges);
  if (const Tensor w = read(file, "edge_weight", DType::f32, {edges.size(1)}); w.defined())
    batch.extras.emplace_back("edge_weight", w);
  const Shape nodes{batch.input.size(0)};
  batch.target = read(file, "target", DType::i64, nodes);
  if (!file.contains("mask")) return batch;
  FRUGAL_CHECK(batch.target.defined(), "[grad] expected a tensor 'target' beside 'mask' in {}",
               file.path());
  const bool boolean = file.info("mask").dtype == DType::bool_;
  const Tensor mask = read(file, "mask", boolean ? DType::bool_ : DType::u8, nodes);
  const auto* counts = static_cast<const uint8_t*>(mask.raw());
  auto* target = batch.target.mut<int64_t>();
  for (int64_t v = 0; v < nodes[0]; ++v)
    if (counts[v] == 0) target[v] = kIgnored;
  return batch;
}

// The first extent of the last 2-D weight whose name ends so; 0: there is none.
int64_t rows_of(const SafetensorsShards& weights, std::string_view ending) {
  int64_t rows = 0;
  for (const std::string& name : weights.names()) {
    const Shape& shape = weights.info(name).shape;
    if (shape.dim() == 2 && std::string_view(name).ends_with(ending)) rows = shape[0];
  }
  return rows;
}

// The rows of the last of a sequential network's parameters "3.weight", "4.0.weight", ... of two
// axes; with `first` of "0.weight" alone. 0: there is none.
int64_t rows_by_position(const SafetensorsShards& weights, bool first) {
  int64_t rows = 0, last = -1;
  for (const std::string& name : weights.names()) {
    const Shape& shape = weights.info(name).shape;
    if (shape.dim() != 2 || (first && name != "0.weight")) continue;
    const int64_t at = std::strtoll(name.c_str(), nullptr, 10);
    if (at < last) continue;
    last = at;
    rows = shape[0];
  }
  return rows;
}

// The outputs of the last layer, whose name the network tells: the first extent of its weight.
int64_t classes_of_pixels(const SafetensorsShards& weights, const BatchSpec& spec, Config config) {
  config.model.num_classes = 1;
  config.train.freeze.clear();
  const std::string name = run_recipe(config, spec).make_model(kMeta)->head_prefix() + "weight";
  FRUGAL_CHECK(weights.contains(name), "[grad] expected the last layer's weight '{}' in {}", name,
               weights.path());
  return weights.info(name).shape[0];
}

int64_t classes_of_detector(const SafetensorsShards& weights) {
  constexpr int64_t kAnchors = 9;  // each pixel has so many
  const std::string dense = "head.classification_head.cls_logits.bias",
                    regions = "roi_heads.box_predictor.cls_score.bias";
  for (const auto& [name, each] : {std::pair(dense, kAnchors), std::pair(regions, int64_t{1})})
    if (weights.contains(name) && weights.info(name).shape.dim() == 1)
      return weights.info(name).shape[0] / each;
  throw Error(fmt::format("[grad] expected {} or {} in {}", dense, regions, weights.path()));
}

}  // namespace

Batch read_grad_batch(const std::string& path, Family family) {
  const auto file = SafetensorsFile::open(path);
  const CategoryScope scope(Category::input);
  switch (family) {
    case Family::images:
      return read_images(file);
    case Family::segmentation:
      return read_pixels(file);
    case Family::detection:
      return read_detection(file);
    case Family::encoder:
    case Family::decoder:
      return read_sequences(file);
    case Family::graph:
      return read_graph(file);
  }
  return {};
}

BatchSpec spec_of_batch(const Batch& batch, const SafetensorsShards& weights, Config& config) {
  ModelConfig& model = config.model;
  using Target = BatchSpec::Target;
  BatchSpec spec;
  const Family family = family_of(model);
  if (family == Family::encoder || family == Family::decoder) {
    spec.kind = BatchSpec::Kind::sequences;
    spec.sample = {batch.input.size(1)};
    if (batch.target.defined() && batch.target.dim() == 2) spec.target = Target::class_of_token;
    spec.vocabulary =
        model.name == kSequential
            ? rows_by_position(weights, true)
            : std::max({rows_of(weights, "word_embeddings.weight"), rows_of(weights, "wte.weight"),
                        rows_of(weights, "embed_tokens.weight")});
    FRUGAL_CHECK(spec.vocabulary > 0, "[grad] expected a token embedding [vocabulary, width] in {}",
                 weights.path());
    if (!model.vocab_size) model.vocab_size = spec.vocabulary;
    if (family == Family::decoder) model.num_classes = spec.vocabulary;
  } else if (family == Family::graph) {
    spec.kind = BatchSpec::Kind::graph;
    spec.sample = {batch.input.size(0), batch.input.size(1)};
    spec.extras = batch.extras;
  } else {
    for (int axis = 1; axis < batch.input.dim(); ++axis)
      spec.sample.push_back(batch.input.size(axis));
    if (!model.in_channels) model.in_channels = batch.input.shape().back();
    if (is_self_supervised(model)) spec.target = Target::views;
    if (family == Family::segmentation) spec.target = Target::class_of_pixel;
    if (family == Family::detection) spec.target = Target::boxes;
  }
  if (!model.num_classes && spec.target_of_each_pixel())
    model.num_classes = classes_of_pixels(weights, spec, config);
  if (!model.num_classes && family == Family::detection)
    model.num_classes = classes_of_detector(weights);
  if (!model.num_classes) {
    const int64_t classifier = rows_of(weights, "classifier.weight");
    model.num_classes = model.name == kSequential ? rows_by_position(weights, false)
                        : classifier > 0          ? classifier
                                                  : rows_of(weights, "weight");
    FRUGAL_CHECK(*model.num_classes > 0,
                 "[grad] expected a classifier's weight [classes, features] in {}", weights.path());
  }
  spec.classes = *model.num_classes;
  return spec;
}

}  // namespace frugal::apps
