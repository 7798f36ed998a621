#include "apps/config/config_table.h"

#include <algorithm>

#include "apps/config/config_readers.h"
#include "apps/config/level_keys.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/value_schema.h"
#include "compress/bounded/error_bounded.h"
#include "models/registry.h"
#include "models/sequential/sequential.h"
#include "models/zoo/keys.h"
#include "optim/registry.h"
#include "train/metric_names.h"

namespace frugal::apps {
namespace {

// ---- values to and from JSON
template <class T>
struct Convert {
  static Json out(const T& value) { return value; }
  static void in(T& value, const Json& json) { value = json.get<T>(); }
};
template <class T>
struct Convert<std::optional<T>> {
  static Json out(const std::optional<T>& value) { return value ? Json(*value) : Json(nullptr); }
  static void in(std::optional<T>& value, const Json& json) {
    value = json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
  }
};

template <>
struct Convert<PolicyKind> {
  static Json out(PolicyKind kind) { return name_of(kind); }
  static void in(PolicyKind& kind, const Json& json) {
    kind = compress::policy_kind(json.get<std::string>()).value();
  }
};

template <class S, class T>
Field field(S Config::*section, const char* key, T S::*member, Json schema, const char* doc,
            Reader reader) {
  Field f;
  f.reader = std::move(reader);
  f.key = key;
  f.schema = std::move(schema);
  f.doc = doc;
  f.get = [=](const Config& c) { return Convert<T>::out(c.*section.*member); };
  f.set = [=](Config& c, const Json& json) { Convert<T>::in(c.*section.*member, json); };
  return f;
}

Field without_effect(Field f) {
  f.affects_results = false;
  return f;
}

// ---- what values may be
using schema::boolean;
using schema::integer;
using schema::number;
using schema::positive;
using schema::text;
Json choice(const std::vector<std::string>& names) { return {{"type", "string"}, {"enum", names}}; }
Json device() {
  return {{"type", "string"},
          {"pattern", "^(cpu|meta|cuda(:[0-9]{1,4})?)$"},
          {"examples", {"cpu", "cuda", "cuda:1", "meta"}}};
}
Json group_size() {
  Json schema = integer(8, 1 << 16);
  schema["multipleOf"] = 8;
  return schema;
}
Json below(double lo, double hi) {
  return {{"type", "number"}, {"minimum", lo}, {"exclusiveMaximum", hi}};
}
Json list(Json items, int64_t lo, int64_t hi) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", lo}, {"maxItems", hi}};
}
Json or_null(Json schema) {
  schema["type"] = Json::array({schema["type"], "null"});
  return schema;
}

// Bytes, as a number or as "2 GiB".
template <class S>
Field bytes_field(S Config::*section, const char* key, int64_t S::*member, const char* doc,
                  const std::string& path, Reader reader) {
  Field f = field(section, key, member,
                  {{"type", {"integer", "string"}}, {"minimum", 0}, {"pattern", kBytesPattern}},
                  doc, std::move(reader));
  f.set = [=](Config& c, const Json& json) {
    c.*section.*member =
        json.is_string() ? parse_bytes(json.get<std::string>(), path) : json.get<int64_t>();
  };
  return f;
}

Reader picture_files() {
  return {"image_folder and image_list", {"data.name"}, [](const Config& c) {
            return traits(c).of_picture_files;
          }};
}
// What data::Loader makes batches of.
Reader loaded() {
  return {"images and rows", {"data.name"}, [](const Config& c) {
            const BatchSpec::Kind kind = traits(c).kind;
            return kind == BatchSpec::Kind::images || kind == BatchSpec::Kind::rows;
          }};
}
// Samples that an epoch cuts into batches.
Reader cut_samples() {
  return {
      "images, rows, GLUE, jsonl and tokens with encoders, and graphs with data.sampler "
      "neighbours",
      {"data.name", "model.name", "data.sampler"},
      [](const Config& c) {
        if (traits(c).kind == BatchSpec::Kind::graph) return c.data.sampler == "neighbours";
        return has_samples(c) && !makes_windows(c);
      }};
}
Reader samples_of_files() {
  return {
      "image_folder, image_list, image_masks and image_boxes", {"data.name"}, [](const Config& c) {
        return traits(c).of_picture_files || c.data.name == kImageMasks ||
               c.data.name == kImageBoxes;
      }};
}
// Images whose values may be scaled.
Reader normalized_images() {
  return {"images but random_masks", {"data.name"}, [](const Config& c) {
            return traits(c).kind == BatchSpec::Kind::images && c.data.name != kRandomMasks;
          }};
}
// Like normalized_images(), but without views, which have changes of their own.
Reader mirrored_images() {
  return {"images but random_masks, and no views of self-supervised networks",
          {"data.name", "model.name"},
          [](const Config& c) { return normalized_images().reads(c) && !learns_from_views(c); }};
}
// Images whose targets stay as they are when values change.
Reader changed_images() {
  return {"images but random_masks and those with boxes, and no views of self-supervised networks",
          {"data.name", "model.name"},
          [](const Config& c) {
            return mirrored_images().reads(c) && traits(c).target != BatchSpec::Target::boxes;
          }};
}
Reader views() {
  return {"the networks simsiam, byol and moco_v2", {"model.name"}, learns_from_views};
}
// Images whose targets stay as they are when pixels move.
Reader labelled_images() {
  return {"images with labels", {"data.name", "model.name"}, [](const Config& c) {
            return changed_images().reads(c) && c.data.name != kImageMasks;
          }};
}
Reader one_class_images() {
  return {"images of one class each",
          {"data.name", "data.several_labels", "model.name"},
          [](const Config& c) { return labelled_images().reads(c) && !c.data.several_labels; }};
}

// ---- options whose owners list them (core/option.h)
// "@name" is the path of the option.
std::string with_paths(std::string text, const std::string& section) {
  for (size_t at = 0; (at = text.find('@', at)) != std::string::npos;)
    text.replace(at, 1, section + ".");
  return text;
}

// `of` gives the struct S of a configuration.
template <class S, class Of>
Field field_of(const std::string& section, const options::Option<S>& option, const Of& of) {
  Field f;
  f.key = option.key.name;
  f.schema = schema_of(option.key.range);
  f.doc = option.key.help;
  f.affects_results = option.key.affects_results;
  f.get = [=](const Config& c) { return json_of(option.get(of(c))); };
  f.set = [=, path = section + "." + f.key](Config& c, const Json& json) {
    option.set(of(c), value_of(option.key.range, json, path));
  };
  f.reader = every_run();
  if (!option.read.when) return f;
  f.reader.who = with_paths(option.read.who, section);
  for (const std::string& name : option.read.by) f.reader.by.push_back(section + "." + name);
  f.reader.reads = [=](const Config& c) { return option.read.when(of(c)); };
  return f;
}

template <class S, class Of>
void add(Section& section, const std::vector<options::Option<S>>& list, const Of& of) {
  for (const options::Option<S>& each : list)
    section.fields.push_back(field_of(section.name, each, of));
}

template <class S, class Of>
Section section_of(const char* name, const char* doc, const Of& of,
                   const std::vector<options::Option<S>>& list) {
  Section section{name, doc, {}};
  add(section, list, of);
  return section;
}

Field& field_named(Section& section, std::string_view key) {
  const auto found = std::find_if(section.fields.begin(), section.fields.end(),
                                  [&](const Field& field) { return field.key == key; });
  FRUGAL_ASSERT(found != section.fields.end());
  return *found;
}

// The order of keys in run folders and in configs/schema.json. Hashes of configurations depend on
// it. A key that is not in `order` comes behind those that are.
Section in_order(Section section, const std::vector<std::string_view>& order) {
  const auto place = [&](const Field& field) {
    return std::find(order.begin(), order.end(), field.key) - order.begin();
  };
  std::stable_sort(section.fields.begin(), section.fields.end(),
                   [&](const Field& a, const Field& b) { return place(a) < place(b); });
  return section;
}

constexpr int64_t kMany = int64_t{1} << 40;
constexpr int64_t kBatch = 1 << 20;

// ---- the networks' own keys
Field network_field(const options::Key& key) {
  const std::string name = key.name;
  const bool own = key.by == options::Key::own;
  Field f;
  f.key = name;
  const bool layers = key.range.may_be_layers;
  f.schema = layers                              ? layers_schema()
             : name == models::keys::kTrunk.name ? choice(models::trunk_names())
                                                 : schema_of(key.range);
  if (own) f.schema = or_null(f.schema);
  f.doc = key.help;
  f.reader = networks(key.name, models::readers_of(name));
  const Json usual = own ? Json(nullptr) : json_of(models::default_of(name));
  f.get = [=](const Config& c) {
    const auto given = c.model.options.find(name);
    return given == c.model.options.end() ? usual : json_of(given->second);
  };
  f.set = [name, layers, range = key.range](Config& c, const Json& json) {
    const options::Value value = value_of(range, json, "model." + name);
    if (layers) models::check_layers(value.list(), "model." + name);
    if (value.is_nothing())
      c.model.options.erase(name);
    else
      c.model.options[name] = value;
  };
  return f;
}

Field vocab_size() {
  return field(&Config::model, "vocab_size", &ModelConfig::vocab_size,
               or_null(schema_of(models::keys::kVocabSize.range)),
               "Transformers: token ids are below; null: as many as the data has.",
               networks("vocab_size", "BERT, GPT-2 and a sequential network of tokens"));
}

// ---- the table
Section model() {
  constexpr auto s = &Config::model;
  using C = ModelConfig;
  Section section{
      "model",
      "The network.",
      {field(s, "name", &C::name, choice(model_names()), "Which network.", every_run()),
       field(s, "weights", &C::weights, or_null(text()),
             "Start from these weights: a safetensors file, a folder with such files and their "
             "index, or the folder of a run (its best checkpoint). Names of torchvision, timm "
             "and Hugging Face are understood. A resumed run does not read them again.",
             every_run()),
       field(s, "head", &C::head, choice({"keep", "reset"}),
             "reset: take all weights but those of the last layer, which starts anew: for "
             "other classes than the weights were trained on.",
             {"model.weights",
              {"model.weights"},
              [](const Config& c) { return c.model.weights.has_value(); }}),
       field(s, "num_classes", &C::num_classes, or_null(integer(1, 1 << 20)),
             "Outputs; null: as many as the data has classes.", every_run()),
       field(s, "in_channels", &C::in_channels, or_null(integer(1, 4096)),
             "Input channels; null: as many as the images have.",
             with_data(BatchSpec::Kind::images))}};
  for (const options::Key& key : models::all_keys()) section.fields.push_back(network_field(key));
  section.fields.push_back(vocab_size());
  section.fields.push_back(
      field(s, "neighbours", &C::neighbours, integer(1, 1 << 20),
            "simsiam, byol, moco_v2: training samples that vote for the class of a test sample in "
            "the metric knn.",
            networks("neighbours", "simsiam, byol and moco_v2")));
  return in_order(std::move(section), {"name",
                                       "weights",
                                       "head",
                                       "num_classes",
                                       "in_channels",
                                       "modules",
                                       "shortcut",
                                       "stem",
                                       "hidden",
                                       "dropout",
                                       "attention_dropout",
                                       "stochastic_depth",
                                       "input_dropout",
                                       "layers",
                                       "width",
                                       "window",
                                       "heads",
                                       "feed_forward",
                                       "max_positions",
                                       "vocab_size",
                                       "batch_norm",
                                       "residual",
                                       "jump",
                                       "alpha",
                                       "theta",
                                       "aggregation",
                                       "out_heads",
                                       "slope",
                                       "aux_loss",
                                       "trunk",
                                       "anchor_side",
                                       "box_loss",
                                       "deterministic_sampling",
                                       "projector",
                                       "predictor",
                                       "momentum",
                                       "queue",
                                       "temperature"});
}

Section views_of_data() {
  constexpr auto s = &Config::data;
  using C = DataConfig;
  const Json shares = list(number(0, 1), 2, 2);
  return {
      "data.views",
      "How the two views of a picture are made that simsiam, byol and moco_v2 learn from.",
      {field(s, "area", &C::view_area, number(0, 1),
             "A random part of at least this share of the area is resized to the sample; 0: the "
             "whole picture.",
             views()),
       field(s, "flip", &C::view_flip, boolean(), "Mirror half of the views.", views()),
       field(s, "color_jitter", &C::view_jitter, list(number(0, 16), 0, 4),
             "Strengths of random brightness, contrast, saturation and hue; []: off.", views()),
       field(s, "jitter_share", &C::view_jitter_share, number(0, 1), "Probability of the jitter.",
             views()),
       field(s, "grayscale", &C::view_grayscale, number(0, 1),
             "Probability that a view loses its colours.", views()),
       field(s, "blur", &C::view_blur, shares,
             "Probabilities of a Gaussian blur of 0.1 to 2 pixels of the first and the second "
             "view.",
             views()),
       field(s, "solarize", &C::view_solarize, shares,
             "Probabilities that values from 0.5 on are turned over, of the first and the second "
             "view.",
             views())}};
}

Section data() {
  constexpr auto s = &Config::data;
  using C = DataConfig;
  return {
      "data",
      "The data.",
      {field(s, "name", &C::name, choice(dataset_names()),
             "Which dataset; random: noise, made in memory.", every_run()),
       without_effect(field(s, "dir", &C::dir, or_null(text()),
                            "Folder of the files; null: the first of $FRUGAL_DATA, "
                            "~/.cache/frugal/datasets and /usr/share/datasets that has them.",
                            {"data in files",
                             {"data.name"},
                             [](const Config& c) { return traits(c).reads_files; }})),
       field(s, "batch_size", &C::batch_size, integer(1, kBatch),
             "Samples in a training batch; of a whole graph, all.",
             {"all data but whole graphs",
              {"data.name", "data.sampler"},
              [](const Config& c) {
                return traits(c).kind != BatchSpec::Kind::graph || c.data.sampler != "full";
              }}),
       field(s, "test_batch_size", &C::test_batch_size, or_null(integer(1, kBatch)),
             "Samples in a test batch; null: as data.batch_size, so that an evaluation needs less "
             "memory than a step.",
             {"images and text",
              {"data.name"},
              [](const Config& c) { return traits(c).kind != BatchSpec::Kind::graph; }}),
       field(s, "drop_last", &C::drop_last, boolean(),
             "Leave out the last batch of a training epoch when it is not full.", cut_samples()),
       field(s, "crop_padding", &C::crop_padding, integer(0, 1024),
             "Augmentation: random crop of the image padded by so many pixels; 0: off.",
             labelled_images()),
       field(s, "flip", &C::flip, boolean(), "Augmentation: mirror half of the images.",
             mirrored_images()),
       field(s, "cutout", &C::cutout, integer(0, 4096),
             "Augmentation: blank a square of this side; 0: off.", labelled_images()),
       field(s, "normalize", &C::normalize,
             choice({"auto", "none", "imagenet", "cifar10", "cifar100", "mnist", "fashion_mnist",
                     "half"}),
             "Subtract each channel's mean and divide by its standard deviation. auto: those of "
             "the data set (of picture files: imagenet; of tensors: none); half: both are 0.5. "
             "Graphs: auto scales rows of features. csv: auto takes those of the training part.",
             {"images, csv and graphs in files, but for ogbn_arxiv",
              {"data.name"},
              [](const Config& c) { return traits(c).normalizes; }}),
       field(s, "mean", &C::mean, or_null(list(number(-1e6, 1e6), 1, 4096)),
             "Images: subtract these from the channels instead. Values are in [0, 1].",
             normalized_images()),
       field(s, "std", &C::std, or_null(list(positive(1e6), 1, 4096)),
             "Images: then divide the channels by these.", normalized_images()),
       field(s, "image_size", &C::image_size, integer(1, 1 << 14),
             "Picture files: height and width of a sample.", samples_of_files()),
       field(s, "channels", &C::channels, integer(1, 3),
             "Picture files: 3 for colours, 1 for grey.", samples_of_files()),
       field(s, "resize", &C::resize, or_null(integer(1, 1 << 15)),
             "Picture files: for evaluation the shorter side becomes so long, then the centre is "
             "cut out; null: image_size * 256 / 224.",
             picture_files()),
       field(s, "crop_area", &C::crop_area, number(0, 1),
             "Picture files: for training a random part of at least this share of the area is "
             "resized to the sample; 0: the centre, as for evaluation.",
             {"image_folder and image_list, where networks learn from labels",
              {"data.name", "model.name"},
              [](const Config& c) { return traits(c).of_picture_files && !learns_from_views(c); }}),
       field(
           s, "scale", &C::scale, or_null(list(positive(1e3), 2, 2)),
           "image_masks: for training, pictures and masks are enlarged by a random factor between "
           "these two before a part is cut out; null: [1, 1].",
           data_named({kImageMasks})),
       field(s, "mask_values", &C::mask_values, or_null(list(integer(0, 255), 1, 256)),
             "image_masks: the value of each class in the masks, in order; other values do not "
             "count. null: values are classes and 255 does not count, but masks of 0 and 255 alone "
             "have two classes.",
             data_named({kImageMasks})),
       field(s, "sides", &C::sides, or_null(list(integer(1, 1 << 14), 1, 64)),
             "image_boxes: the shorter side of a picture becomes one of these, in training a "
             "random one, else the last; a batch is as large as its largest picture. null: each "
             "picture fits into image_size x image_size.",
             data_named({kImageBoxes})),
       field(s, "longest_side", &C::longest_side, integer(1, 1 << 14),
             "image_boxes with sides: the longer side of a picture, at most.",
             {"image_boxes with data.sides",
              {"data.name", "data.sides"},
              [](const Config& c) { return c.data.name == kImageBoxes && c.data.sides; }}),
       field(s, "auto_augment", &C::auto_augment, choice({"none", "rand", "trivial"}),
             "Augmentation: two random operations (RandAugment, magnitude 9 of 30), or one of any "
             "strength (TrivialAugment).",
             labelled_images()),
       field(s, "color_jitter", &C::color_jitter, list(number(0, 16), 0, 4),
             "Augmentation: strengths of random brightness, contrast, saturation and hue, such as "
             "[0.4, 0.4, 0.4, 0.1]; []: off.",
             changed_images()),
       field(s, "grayscale", &C::grayscale, number(0, 1),
             "Augmentation: probability that a sample loses its colours.", changed_images()),
       field(s, "blur", &C::blur, number(0, 1),
             "Augmentation: probability of a Gaussian blur of 0.1 to 2 pixels.", changed_images()),
       field(s, "erasing", &C::erasing, number(0, 1),
             "Augmentation: probability that a random rectangle is blanked.", labelled_images()),
       field(s, "mixup", &C::mixup, number(0, 1e3),
             "Augmentation: each batch is faded into itself, shifted by one sample, with a share "
             "from Beta(mixup, mixup); 0: off. With cutmix too, each batch draws one of the two.",
             one_class_images()),
       field(s, "cutmix", &C::cutmix, number(0, 1e3),
             "Augmentation: each sample gets a rectangle of the sample before it, with a share "
             "from Beta(cutmix, cutmix); 0: off.",
             one_class_images()),
       field(s, "skip_bad", &C::skip_bad, boolean(),
             "Instead of an error: of image_folder and image_list, a damaged or missing file "
             "becomes a sample that does not count. image_boxes: a picture that is damaged, or has "
             "a wrong annotation, is left out. Warnings count them.",
             {"image_folder, image_list and image_boxes",
              {"data.name"},
              [](const Config& c) {
                return traits(c).of_picture_files || c.data.name == kImageBoxes;
              }}),
       field(s, "exif", &C::exif, choice({"auto", "turn", "ignore"}),
             "Picture files: whether pictures are turned as their EXIF orientation says. auto: "
             "turn for image_folder and image_list, ignore for image_boxes and image_masks. Boxes "
             "and masks of the other kind are turned so that they fit, where their size tells.",
             samples_of_files()),
       field(s, "several_labels", &C::several_labels, boolean(),
             "image_list: a picture may have several labels, each a question of its own.",
             data_named({"image_list"})),
       field(s, "class_names", &C::class_names, or_null(text()),
             "File with the names of the classes in the order of the outputs: a line each, a JSON "
             "list, or ImageNet's class index; null: sorted names of folders or labels.",
             {"image_folder, image_list and tensors with classes",
              {"data.name"},
              [](const Config& c) {
                return traits(c).of_picture_files || c.data.name == "tensors";
              }}),
       field(s, "layout", &C::layout, choice({"nhwc", "nchw", "rows", "tokens"}),
             "tensors: the axes of the inputs: pictures, rows of numbers, or token ids.",
             data_named({"tensors"})),
       field(s, "target", &C::target, or_null(text()),
             "csv, jsonl: the column or field to predict; null: target or label. image_list: the "
             "column with the labels; null: all columns but that of the paths.",
             {"csv, image_list, and jsonl with encoders",
              {"data.name", "model.name"},
              [](const Config& c) {
                return c.data.name == "csv" || c.data.name == "image_list" ||
                       (c.data.name == "jsonl" && !traits(c).is_text);
              }}),
       field(s, "path_column", &C::path_column, or_null(text()),
             "image_list: the column with the paths of the pictures; null: the first.",
             data_named({"image_list"})),
       field(s, "task", &C::task, choice({"auto", "classes", "values", "labels"}),
             "csv, tensors: whether targets are classes, numbers to predict (mean squared error), "
             "or in tensors several labels (0 and 1); auto: by their type.",
             {"csv and tensors but tokens",
              {"data.name", "data.layout"},
              [](const Config& c) {
                return c.data.name == "csv" ||
                       (c.data.name == "tensors" && c.data.layout != "tokens");
              }}),
       field(s, "drop", &C::drop, list(text(), 0, 4096), "csv: columns to leave out.",
             data_named({"csv"})),
       field(s, "encoding", &C::encoding, choice({"utf-8", "latin-1", "windows-1252", "utf-16"}),
             "csv: how the text of the files is written.", data_named({"csv"})),
       field(s, "categories", &C::categories, choice({"one_hot", "index"}),
             "csv: a column of categories becomes an input for each, or one with their number.",
             data_named({"csv"})),
       field(s, "missing", &C::missing, choice({"error", "fill"}),
             "csv: an empty cell stops the run, or counts as the column's mean, or as no category.",
             data_named({"csv"})),
       field(s, "text", &C::text, text(), "jsonl: the field with the text.", data_named({"jsonl"})),
       field(s, "second_text", &C::second_text, or_null(text()),
             "jsonl with encoders: the field with the second of two texts; null: there is one.",
             {"jsonl with encoders",
              {"data.name", "model.name"},
              [](const Config& c) { return c.data.name == "jsonl" && !traits(c).is_text; }}),
       without_effect(field(s, "workers", &C::workers, integer(0, 256),
                            "Threads that prepare batches ahead; 0: none.", loaded())),
       field(s, "train_samples", &C::train_samples, integer(0, kMany),
             "Use only the first so many training samples; 0: all.",
             {"images, rows, GLUE, jsonl with encoders and random_tokens",
              {"data.name"},
              has_samples}),
       field(s, "test_samples", &C::test_samples, integer(0, kMany),
             "Use only the first so many test samples; 0: all.",
             {"images, rows, GLUE, and jsonl and random_tokens with encoders",
              {"data.name", "model.name"},
              [](const Config& c) { return has_samples(c) && !makes_windows(c); }}),
       field(
           s, "shape", &C::shape, or_null(list(integer(1, 1 << 16), 3, 3)),
           "random, random_masks, random_boxes: [height, width, channels]; null: [32, 32, 3], and "
           "[64, 64, 3] of the others.",
           data_named({"random", kRandomMasks, kRandomBoxes})),
       field(s, "classes", &C::classes, or_null(integer(1, 1 << 20)),
             "random, random_masks, random_tokens, random_graph: number of classes; null: 10, 19, "
             "2, 40. random_boxes: with the background; null: 4. image_masks: null counts them in "
             "the masks.",
             {"image_masks, random, random_masks, random_boxes, random_graph and random_tokens of "
              "encoders",
              {"data.name", "model.name"},
              [](const Config& c) {
                return c.data.name == "random" || c.data.name == kRandomMasks ||
                       c.data.name == kRandomBoxes || c.data.name == kImageMasks ||
                       c.data.name == "random_graph" ||
                       (c.data.name == "random_tokens" && !makes_windows(c));
              }}),
       without_effect(field(s, "vocabulary", &C::vocabulary, or_null(text()),
                            "Text: the tokenizer's vocabulary (vocab.txt; byte_bpe: the folder of "
                            "vocab.json and merges.txt); null: "
                            "text/bert-base-uncased-vocab.txt or text/gpt2 in the folders of the "
                            "data.",
                            {"GLUE, jsonl, and text whose tokenizer is not characters",
                             {"data.name", "data.tokenizer"},
                             [](const Config& c) {
                               return traits(c).is_text ? c.data.tokenizer != "characters"
                                                        : is_glue(c);
                             }})),
       field(s, "tokenizer", &C::tokenizer, choice({"characters", "wordpiece", "byte_bpe"}),
             "text: what tokens are; GLUE and jsonl with encoders take wordpiece.",
             {"tiny_shakespeare, text, and jsonl with decoders",
              {"data.name"},
              [](const Config& c) {
                return traits(c).is_text || (is_glue(c) && c.data.tokenizer == "wordpiece");
              }}),
       field(s, "max_length", &C::max_length, integer(2, 1 << 20),
             "Text: tokens of a sequence, at most.", with_data(BatchSpec::Kind::sequences)),
       field(s, "validation", &C::validation, positive(0.9),
             "text: share at the end that is tested on.",
             {"text that is cut into windows", {"data.name", "model.name"}, makes_windows}),
       field(s, "split", &C::split, or_null(list(positive(1), 2, 2)),
             "Graphs and own files: shares to train and to validate on, drawn with the seed; the "
             "rest is tested on. null: the distribution's own, or [0.6, 0.2] of a graph and "
             "[0.8, 0.1] of own files.",
             {"graphs, image_folder, image_list, tensors, csv, and jsonl with encoders",
              {"data.name"},
              [](const Config& c) {
                return traits(c).kind == BatchSpec::Kind::graph || traits(c).splits;
              }}),
       field(s, "sparse_features", &C::sparse_features, boolean(),
             "Graphs: keep features of which most are 0 as a sparse matrix.",
             {"cora, citeseer, pubmed, facebook and graph_npz",
              {"data.name"},
              [](const Config& c) { return traits(c).sparse_features; }}),
       field(s, "sampler", &C::sampler,
             choice({"full", "random_walk", "node", "edge", "neighbours", "clusters"}),
             "Graphs: the whole graph at once, or subgraphs: GraphSAINT's three, sampled "
             "neighbours of batch_size nodes, batch_size of the clusters.",
             with_data(BatchSpec::Kind::graph)),
       field(s, "sampler_batches", &C::sampler_batches, integer(1, kMany),
             "GraphSAINT: subgraphs in an epoch, of about batch_size roots, nodes or edges.",
             sampled({"random_walk", "node", "edge"})),
       field(s, "walk_length", &C::walk_length, integer(1, 1024), "random_walk: its steps.",
             sampled({"random_walk"})),
       field(s, "fan_outs", &C::fan_outs, list(integer(1, 1 << 20), 1, 16),
             "neighbours: how many of each node, layer by layer.", sampled({"neighbours"})),
       field(s, "clusters", &C::clusters, integer(1, 1 << 20), "clusters: how many there are.",
             sampled({"clusters"})),
       field(s, "nodes", &C::nodes, integer(1, 1 << 26), "random_graph: its nodes.",
             data_named({"random_graph"})),
       field(s, "edges", &C::edges, integer(0, 1 << 26), "random_graph: its undirected edges.",
             data_named({"random_graph"})),
       field(s, "features", &C::features, integer(1, 1 << 20), "random_graph: of each node.",
             data_named({"random_graph"}))}};
}

// A momentum that a schedule may set is read where none does.
Reader optimizers_with(const std::string& key) {
  std::vector<std::string> names;
  bool cycled = false;
  for (const optim::Kind& kind : optim::kinds()) {
    if (!kind.has(key)) continue;
    names.push_back(kind.name);
    cycled = kind.momentum() == key;
  }
  const Reader all = optimizers(names);
  if (!cycled) return all;
  return {all.who + " without schedule.cycle_momentum",
          {"optim.name", "schedule.name", "schedule.cycle_momentum"},
          [all](const Config& c) { return all.reads(c) && !c.schedule.cycles(); }};
}

Field optimizer_field(const options::Key& key) {
  Field f;
  const std::string name = key.name;
  f.key = name;
  f.schema = schema_of(key.range);
  f.doc = key.help;
  f.reader = optimizers_with(name);
  f.get = [name](const Config& c) { return json_of(c.optim.value(name)); };
  f.set = [name, range = key.range](Config& c, const Json& json) {
    c.optim.own[name] = value_of(range, json, "optim." + name);
  };
  return f;
}

Section optim() {
  constexpr auto s = &Config::optim;
  using C = OptimConfig;
  std::vector<std::string> names;
  for (const optim::Kind& kind : optim::kinds()) names.push_back(kind.name);
  Section section{
      "optim",
      "The optimizer.",
      {field(s, "name", &C::name, choice(names), "Which optimizer.", every_run()),
       field(s, "lr", &C::lr, positive(1e4), "Learning rate: the highest of the schedule.",
             every_run()),
       field(s, "ema", &C::ema, below(0, 1),
             "Evaluate the mean of the weights over time, with this decay; 0: off. "
             "checkpoint/last_average.safetensors holds it, last.safetensors the weights "
             "themselves.",
             every_run()),
       field(s, "weight_decay", &C::weight_decay, number(0, 1e3), "L2 penalty.", every_run()),
       field(s, "weight_decay_of", &C::weight_decay_of, list(text(), 0, 64),
             "Another weight decay for parameters by a pattern or the beginning of their names, "
             "such as \"convs.=0.01\" or \"*.bias=0\"; the first that fits counts.",
             every_run()),
       field(s, "lr_of", &C::lr_of, list(text(), 0, 64),
             "Another learning rate for some parameters: a pattern or the beginning of their "
             "names and a factor, such as \"*.bias=2\" or \"fc.=10\"; the first that fits "
             "counts.",
             every_run()),
       field(s, "layer_decay", &C::layer_decay, positive(1),
             "Each block has the learning rate of the next one times this, counted from the "
             "last layer, whose factor is 1; 1: off.",
             networks("layer_decay", "networks of blocks: transformers, Swin and ResNets")),
       field(s, "no_decay_norms", &C::no_decay_norms, boolean(),
             "Leave biases and the norms' parameters without weight decay.", every_run()),
       field(s, "clip_norm", &C::clip_norm, number(0, 1e12),
             "Scale gradients down to this global norm; 0: off.", every_run()),
       field(s, "in_backward", &C::in_backward, boolean(),
             "Update each parameter as soon as its gradient is complete, so that gradients are "
             "never all in memory. Without clip_norm, gradient accumulation, checkpointing.",
             every_run())}};
  for (const options::Key& key : optim::all_keys()) section.fields.push_back(optimizer_field(key));
  return in_order(std::move(section),
                  {"name", "lr", "momentum", "trust", "nesterov", "beta1", "beta2", "eps", "ema"});
}

Section schedule() {
  Section section = section_of(
      "schedule", "The learning rate over time.", [](auto& c) -> auto& { return c.schedule; },
      optim::ScheduleOptions::list());
  Reader& cycles = field_named(section, "cycle_momentum").reader;
  cycles.who = "schedule.name one_cycle with every optimizer but";
  for (const optim::Kind& kind : optim::kinds())
    if (kind.momentum().empty()) cycles.who += " " + kind.name;
  cycles.by.emplace_back("optim.name");
  cycles.reads = [one_cycle = cycles.reads](const Config& c) {
    return one_cycle(c) && !optim::kind(c.optim.name).momentum().empty();
  };
  return section;
}

Section compression() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  // The configuration holds what a level sets (expand_level()), not its name.
  Field level;
  level.key = "level";
  level.schema = or_null(choice(level_names()));
  level.doc =
      "A paper's name for other keys, which are set in its place; null: none. GACT's: L0: bits 0; "
      "L1, L1.1, L1.2: bits 4, 8, 2; L2, L2.1, L2.2: bits 4, 3, 2 with gact.adaptive; L3: L2 with "
      "offload; CB1: L1 with train.checkpointing; CB2 equals CB1 here. With policy actnn: L0: bits "
      "0; L1: bits 4 with actnn.products_only; L2: bits 4; L2.5: bits 2 with actnn.adaptive, "
      "without "
      "actnn.by_sample; L3: bits 2 with actnn.adaptive; L4: L3 with offload; L5 equals L4 here. "
      "bits beside it replaces its width.";
  level.get = [](const Config&) { return Json(nullptr); };
  level.set = [](Config&, const Json&) {};
  level.reader = every_run();
  // The preset is a key like the level.
  std::vector<std::string> names;
  Field preset = level;
  preset.key = "preset";
  preset.doc =
      "A set of the other keys, chosen by measured accuracy and memory, or a paper's method; null: "
      "none.";
  for (const compress::Named& each : compress::presets()) {
    names.emplace_back(each.name);
    preset.doc += fmt::format(" {}: {}.", each.name, each.summary);
  }
  preset.doc += " Keys beside it stay as they are given.";
  preset.schema = or_null(choice(names));
  Field policy = field(
      s, "policy", &C::policy,
      choice(names_of({PolicyKind::gact, PolicyKind::actnn, PolicyKind::acgc})),
      "Who decides how each tensor is kept. gact: one width, or widths by measured sensitivity. "
      "actnn: widths of tensors and samples by formulas. acgc: an error bound for each tensor, "
      "from "
      "acgc.growth. With memory_budget a plan decides instead.",
      every_run());
  policy.get = [](const Config& c) {
    const PolicyKind kind = c.compression.policy;
    return Json(name_of(kind == PolicyKind::budget ? PolicyKind::gact : kind));
  };
  return {
      "compression",
      "How activations are kept until the backward pass.",
      {field(
           s, "bits", &C::bits, number(0, 16),
           "Bits of a value: 0: as it is; 1 to 16: this width everywhere; a fraction such as 2.5: "
           "this average, each tensor with a width of its own (see also gact.adaptive and "
           "actnn.adaptive). Codes that carry a sign have at least 2.",
           policies({PolicyKind::gact, PolicyKind::actnn})),
       field(
           s, "memory_budget", &C::memory_budget, text(),
           "What a step may take at most: \"2 GiB\", or a share of what it takes with everything "
           "raw, \"1/6\" or \"6x\"; with \" activations\" only what is kept for backward counts. A "
           "plan chooses for each tensor among raw, rebuilt, 1 to 16 bits and the folder offload. "
           "It takes the place of bits; empty: none.",
           {"compression.policy gact",
            {"compression.policy"},
            [](const Config& c) {
              return c.compression.policy == PolicyKind::gact ||
                     c.compression.policy == PolicyKind::budget;
            }}),
       std::move(policy), std::move(preset), std::move(level),
       field(
           s, "recipes", &C::recipes, boolean(),
           "Rebuild cheap tensors from what is kept anyway, instead of keeping them.",
           {"policies gact and acgc, and actnn without products_only",
            {"compression.policy", "compression.memory_budget"},
            [](const Config& c) { return may_rebuild(c) && policy_of(c) != PolicyKind::budget; }}),
       field(s, "entropy", &C::entropy, boolean(),
             "Code packed values by their entropy where that saves 5 % of their bytes: no loss, "
             "but time.",
             packing()),
       field(s, "offload", &C::offload, text(),
             "Folder of a disk to which activations go, packed or as they are; empty: they stay in "
             "memory. The file has no name and vanishes with the run. On CUDA they go to pinned "
             "host memory instead.",
             every_run()),
       field(s, "guard", &C::guard, number(0, 1e3),
             "The share of the minibatch's variance that compression may add to the gradient's, "
             "such as 0.1: bits (of actnn their average, of acgc the growth, of memory_budget what "
             "it uses of what it may) rise while it adds more and fall where it adds far less; 0: "
             "off.",
             every_run())}};
}

Section gact() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  const Reader measuring = {
      "what measures sensitivities: policy gact with adaptive widths, and "
      "memory_budget",
      {"compression.policy", "compression.bits", "compression.gact.adaptive",
       "compression.memory_budget"},
      measures};
  return {"compression.gact",
          "Widths by measured sensitivity: policy gact, and memory_budget.",
          {field(s, "adaptive", &C::gact_adaptive, boolean(),
                 "Each tensor gets a width of its own also where bits, their average, is a whole "
                 "number.",
                 {"policy gact with bits above 0",
                  {"compression.policy", "compression.bits", "compression.memory_budget"},
                  [](const Config& c) { return policy_of(c) == PolicyKind::gact && packs(c); }}),
           field(s, "interval", &C::adapt_interval, integer(1, kMany),
                 "Steps from one measurement of sensitivities to the next.", measuring),
           field(s, "samples", &C::adapt_samples, integer(2, kMany),
                 "Samples of the batch that measure.", measuring),
           field(s, "share", &C::adapt_share, number(0, 1),
                 "The share of an interval's samples that may be used to measure; tensors take "
                 "turns where it does not suffice for all.",
                 measuring),
           field(s, "solver", &C::gact_solver, choice({"exact", "greedy"}),
                 "exact: widths of 1 to 16 bits with the least variance; greedy: as the published "
                 "program, 1, 2, 4, 8 bits or raw, by steps down from raw.",
                 {"policy gact with adaptive widths",
                  {"compression.policy", "compression.bits", "compression.gact.adaptive",
                   "compression.memory_budget"},
                  [](const Config& c) {
                    return policy_of(c) == PolicyKind::gact && chooses_widths(c);
                  }})}};
}

Section actnn() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  const Reader packed = {
      "policy actnn with bits above 0",
      {"compression.policy", "compression.bits"},
      [](const Config& c) { return policy_of(c) == PolicyKind::actnn && packs(c); }};
  const Reader mixed = {
      "policy actnn with adaptive widths",
      {"compression.policy", "compression.bits", "compression.actnn.adaptive"},
      [](const Config& c) { return policy_of(c) == PolicyKind::actnn && chooses_widths(c); }};
  return {
      "compression.actnn",
      "Widths of tensors and of their samples by formulas: policy actnn.",
      {field(s, "adaptive", &C::actnn_adaptive, boolean(),
             "Each tensor and each sample gets a width of its own also where bits, their "
             "average, is a whole number.",
             packed),
       field(s, "products_only", &C::actnn_products_only, boolean(),
             "Pack only what convolutions and matrix products read, and rebuild nothing.", packed),
       field(s, "interval", &C::actnn_interval, integer(1, kMany),
             "Steps from one look at the gradients to the next.", mixed),
       field(s, "by_sample", &C::actnn_by_sample, boolean(),
             "The samples of a tensor share its bits by their ranges; else each has the same.",
             mixed),
       field(s, "by_tensor", &C::actnn_by_tensor, boolean(),
             "Tensors share the average by their sensitivities; else each has the average.", mixed),
       field(s, "use_gradient", &C::actnn_use_gradient, boolean(),
             "Samples share the bits of a tensor also by the gradients that each had in the steps "
             "that looked at it; interval=1 looks at all. It takes 4 bytes for each sample of the "
             "data set and each tensor. As the published program's option of this name.",
             {"policy actnn with adaptive widths by sample, and data whose samples come again",
              {"compression.policy", "compression.bits", "compression.actnn.adaptive",
               "compression.actnn.by_sample", "data.name"},
              [mixed](const Config& c) {
                return mixed.reads(c) && c.compression.actnn_by_sample && has_samples(c);
              }}),
       field(s, "norms", &C::actnn_norms, choice({"inside", "outside"}),
             "Tensors that only normalizations read take the bits of the product before them. "
             "inside: the average counts them. outside, as published: it does not, and those "
             "before the first product take 8 bits.",
             mixed),
       field(s, "gradients", &C::actnn_gradients, choice({"averaged", "last"}),
             "Norms of gradients that sensitivities are made of: averaged over the steps that "
             "look, by 0.5; or, as published, those of the last one.",
             mixed)}};
}

Section acgc() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  return {
      "compression.acgc",
      "An error bound for each tensor: policy acgc.",
      {field(s, "growth", &C::acgc_growth, number(1e-6, 1e6),
             "The paper's e: errors of e^2 of the squared gradient are allowed.",
             policies({PolicyKind::acgc})),
       field(s, "rule", &C::acgc_rule, choice({"derived", "published"}),
             "derived: bounds that hold; published: those of the paper, its widths and rounding, "
             "and no recipes.",
             policies({PolicyKind::acgc})),
       field(s, "count", &C::acgc_count, choice({"worst", "expected"}),
             "What is bounded: errors in the worst case, or, of stochastic rounding, what is "
             "expected of them, which takes far fewer bits.",
             policies({PolicyKind::acgc})),
       field(s, "codec", &C::acgc_codec, choice(compress::error_bounded_names()),
             "fixed: a width for each channel; fixed_z: the same, zeros as masks where that is "
             "less; entropy: steps coded by their entropy; zfp where built with it.",
             policies({PolicyKind::acgc})),
       field(s, "interval", &C::acgc_interval, integer(1, kMany),
             "Steps from one look at the gradients to the next.", policies({PolicyKind::acgc}))}};
}

Section budget() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  return {"compression.budget",
          "The plan of memory_budget.",
          {field(s, "recompute", &C::budget_recompute, boolean(),
                 "Recompute blocks, as with checkpointing, where nothing else fits or leaves good "
                 "widths; as few as do that.",
                 {"memory_budget", {"compression.memory_budget"}, [](const Config& c) {
                    return policy_of(c) == PolicyKind::budget;
                  }})}};
}

Section advanced() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  return {
      "compression.advanced",
      "How packing, rebuilding, moving and measuring work, for every policy.",
      {field(s, "signs", &C::signs, choice({"codes", "masks"}),
             "Where the signs of relus are kept: in the codes of a neighbour, at no cost, or as "
             "masks of 1 bit.",
             policies({PolicyKind::gact, PolicyKind::actnn, PolicyKind::budget})),
       field(s, "chain", &C::chain, number(0, 1e6),
             "How many times its own elements a recipe may rebuild on the way; 0: recipes start "
             "from what is kept.",
             {"recipes",
              {"compression.recipes", "compression.policy", "compression.bits"},
              [](const Config& c) { return rebuilds(c); }}),
       field(s, "slice_bytes", &C::slice_bytes, or_null(integer(0, kMany)),
             "Backward unpacks and rebuilds tensors in slices of the batch of about so many bytes; "
             "0: whole; null: 8 MiB, which caches hold, on CUDA 64 MiB.",
             {"what packs or rebuilds activations",
              {"compression.bits", "compression.recipes"},
              [](const Config& c) { return packs(c) || rebuilds(c); }}),
       field(s, "min_elements", &C::min_elements, integer(0, kMany),
             "Tensors of at most so many elements are kept as they are.",
             {"what packs activations, and offload",
              {"compression.policy", "compression.bits", "compression.offload"},
              [](const Config& c) { return packs(c) || !c.compression.offload.empty(); }}),
       field(s, "group_size", &C::group_size, group_size(),
             "Values of one channel that share a minimum and a scale.", packing()),
       field(s, "group_axis", &C::group_axis, choice({"column", "row", "nchw"}),
             "row: values that share them are neighbours in memory, of all channels, and signs are "
             "kept as masks; nchw: row, but column for images, as where these are kept by "
             "channels. To compare with, not for actnn and acgc.",
             {"policies gact and budget, where they pack",
              {"compression.policy", "compression.bits"},
              [](const Config& c) {
                return packs(c) &&
                       (policy_of(c) == PolicyKind::gact || policy_of(c) == PolicyKind::budget);
              }}),
       field(s, "rounding", &C::rounding, choice({"auto", "stochastic", "dithered", "nearest"}),
             "stochastic is unbiased; dithered is unbiased with half the variance, at the same "
             "bytes, for time where unpacking is bound by arithmetic; nearest is closer but "
             "biased; auto: dithered, but stochastic on CUDA and with acgc.",
             {packing().who, packing().by,
              // Without packing, accept only what resolve() turns "auto" into.
              [](const Config& c) { return packs(c) || c.compression.rounding != "nearest"; }}),
       without_effect(
           bytes_field(s, "offload_window", &C::offload_window,
                       "What of them stays in memory at most (\"256 MiB\").",
                       "compression.advanced.offload_window",
                       {"offload",
                        {"compression.offload"},
                        [](const Config& c) { return !c.compression.offload.empty(); }})),
       field(s, "guard_min_bits", &C::guard_min_bits, integer(1, 16),
             "Below which the guard does not go.",
             {"the guard",
              {"compression.guard"},
              [](const Config& c) { return c.compression.guard > 0; }}),
       field(
           s, "track_interval", &C::track_interval, integer(0, kMany),
           "Steps from one measurement of the gradient's variance, of what compression adds to it "
           "and of the loss's smoothness to the next; 0: none, or with guard 200.",
           every_run()),
       without_effect(
           field(s, "profile", &C::profile, text(),
                 "A file that `frugal bench step --record-profile` wrote on a run with values: the "
                 "widths that steps on meta count with; empty: averages.",
                 on({"meta"}, "device meta"))),
       field(s, "track_samples", &C::track_samples, integer(2, kMany),
             "Samples of the batch that measure what compression adds.",
             {"guard and track_interval",
              {"compression.guard", "compression.advanced.track_interval"},
              [](const Config& c) {
                return c.compression.guard > 0 || c.compression.track_interval > 0;
              }})}};
}

Reader with_pixels() {
  return {"networks that give a class to each pixel", {"model.name"}, [](const Config& c) {
            return family_of(c.model) == Family::segmentation;
          }};
}

std::vector<std::string> metric_choices() {
  std::vector<std::string> names = {"auto", "accuracy"};
  for (const MetricName& metric : known_metrics()) names.emplace_back(metric.name);
  return names;
}

Section train() {
  constexpr auto s = &Config::train;
  using C = TrainConfig;
  return {
      "train",
      "The training loop.",
      {field(s, "epochs", &C::epochs, integer(1, 1'000'000),
             "Passes over the data, unless steps says when to stop.", every_run()),
       field(s, "steps", &C::steps, integer(0, kMany),
             "Stop after so many steps instead; 0: by epochs.", every_run()),
       field(s, "log_interval", &C::log_interval, integer(1, kMany),
             "Steps between lines of metrics.jsonl.", every_run()),
       without_effect(field(s, "tensorboard", &C::tensorboard, boolean(),
                            "Also write what metrics.jsonl gets to TensorBoard's event files, in "
                            "the folder tensorboard of the run.",
                            every_run())),
       without_effect(field(s, "checkpoint_interval", &C::checkpoint_interval, integer(0, kMany),
                            "Steps between checkpoints; 0: only at the ends of epochs, as "
                            "checkpoint_seconds says.",
                            every_run())),
       without_effect(field(s, "checkpoint_seconds", &C::checkpoint_seconds, number(0, 1e6),
                            "An epoch that ends sooner than so many seconds after the last "
                            "checkpoint writes none, unless it is the last one; 0: each epoch "
                            "writes one.",
                            every_run())),
       field(s, "eval_interval", &C::eval_interval, integer(1, 1'000'000),
             "Epochs between evaluations on the test images; the last epoch always has one.",
             every_run()),
       field(s, "metric", &C::metric, choice(metric_choices()),
             "What evaluations measure beside the loss. auto: what the data usually have, such as "
             "perplexity or r2; accuracy: nothing else. The best epoch is the best by this "
             "metric, or that of the highest accuracy where there is none.",
             every_run()),
       field(s, "patience", &C::patience, integer(0, 1'000'000),
             "Stop after so many epochs without a lower validation loss, whose epoch is the best "
             "one; 0: never, and train.metric says which is the best.",
             with_data(BatchSpec::Kind::graph)),
       field(s, "keep_best", &C::keep_best, integer(1, 1000),
             "Keep the weights of so many best evaluations, as checkpoint/best_step_N.safetensors; "
             "1: only the best, as checkpoint/best.safetensors.",
             every_run()),
       field(
           s, "grad_norms", &C::grad_norms, integer(0, kMany),
           "Steps between lines of metrics.jsonl with the norm of each layer's gradient; 0: none.",
           every_run()),
       field(s, "label_smoothing", &C::label_smoothing, below(0, 1),
             "Weight of the uniform distribution in the target.", every_run()),
       field(s, "loss", &C::loss, choice({"cross_entropy", "focal", "dice", "cross_entropy_dice"}),
             "A class for each pixel: what is trained with; cross_entropy_dice is the sum of both. "
             "Evaluations report the cross-entropy.",
             with_pixels()),
       field(s, "focal_gamma", &C::focal_gamma, number(0, 16), "loss=focal: the exponent of 1 - p.",
             {"train.loss focal",
              {"train.loss"},
              [](const Config& c) { return with_pixels().reads(c) && c.train.loss == "focal"; }}),
       field(
           s, "class_weights", &C::class_weights, list(positive(1e6), 0, 1 << 16),
           "Weights of the classes in the loss that is trained with: the cross-entropy is the "
           "weighted sum over the sum of the weights. A class for each pixel: also in the focal "
           "loss. Several labels: of each label's loss, in their mean. Evaluations report the "
           "plain loss. []: all are 1.",
           {"data with classes, but with train.loss dice, data.mixup, data.cutmix or GraphSAINT's "
            "samplers",
            {"data.name", "model.name", "train.loss", "data.mixup", "data.cutmix", "data.sampler"},
            weighs_classes}),
       field(s, "gradient_accumulation", &C::gradient_accumulation, integer(1, 4096),
             "Batches that make one step: its loss is the mean over all their targets.",
             every_run()),
       field(s, "checkpointing", &C::checkpointing, boolean(),
             "Keep only the inputs of residual blocks, whole, and recompute the rest in backward.",
             networks("checkpointing",
                      "networks of blocks, which are all but mlp, graph networks and a sequential "
                      "network without residuals and pools")),
       field(s, "checkpointed_blocks", &C::checkpointed_blocks, integer(0, kMany),
             "checkpointing: only of so many blocks, from the first; 0: of all.",
             {"train.checkpointing", {"train.checkpointing"}, checkpoints}),
       field(s, "freeze", &C::freeze, list(text(), 0, 64),
             "Parameters that are not trained: patterns or beginnings of names, such as "
             "\"layer1.\" or \"*.bias\"; \"all but head\": all but the last layer; \"!layer4.\": "
             "trains these nevertheless. Later entries go before earlier ones.",
             every_run()),
       field(s, "freeze_epochs", &C::freeze_epochs, integer(0, 1'000'000),
             "freeze: after so many epochs everything is trained; 0: never.",
             {"train.freeze", {"train.freeze"}, freezes}),
       field(s, "freeze_statistics", &C::freeze_statistics, boolean(),
             "freeze: batch norms of frozen layers use their running statistics and leave them; "
             "false: they use the batch's.",
             {"train.freeze", {"train.freeze"}, freezes})}};
}

Section early_stop() {
  constexpr auto s = &Config::train;
  using C = TrainConfig;
  const Reader stopping = {"train.early_stop.patience",
                           {"train.early_stop.patience"},
                           [](const Config& c) { return c.train.stop_patience > 0; }};
  return {"train.early_stop",
          "Ends training when evaluations get no better: on the validation set where there is one, "
          "else on the test set.",
          {field(s, "patience", &C::stop_patience, integer(0, 1'000'000),
                 "Stop after so many evaluations in a row without a better one; 0: never. The best "
                 "weights are then those of the best metric.",
                 every_run()),
           field(s, "min_delta", &C::stop_min_delta, number(0, 1e9),
                 "An evaluation is better if its metric is better by more than this.", stopping),
           field(s, "metric", &C::stop_metric, choice({"loss", "accuracy", "metric"}),
                 "What gets better; metric: what train.metric says, such as f1 or perplexity.",
                 stopping)}};
}

Json bits_of_gradients() {
  Json schema = integer(0, 8);
  schema["multipleOf"] = 4;
  return schema;
}

Section distributed_section() {
  constexpr auto s = &Config::distributed;
  using C = DistributedConfig;
  return {
      "distributed",
      "Training on several processes, which mpirun or srun starts. With one process nothing here "
      "does anything.",
      {without_effect(field(s, "sharding", &C::sharding, choice({"none", "optimizer", "gradients"}),
                            "optimizer: each rank keeps and updates its share of the optimizer's "
                            "state (ZeRO-1); gradients: it also keeps its share of the gradients "
                            "alone (ZeRO-2).",
                            every_run())),
       without_effect(bytes_field(s, "bucket_bytes", &C::bucket_bytes,
                                  "Gradients are added up over the ranks in buckets of so many "
                                  "bytes, while the backward pass goes on; the first has 1 MiB.",
                                  "distributed.bucket_bytes", every_run())),
       field(s, "sync_batch_norm", &C::sync_batch_norm, boolean(),
             "Batch norms use the statistics of the whole batch, as one process does; false: those "
             "of a rank's share.",
             every_run()),
       field(s, "compress_gradients", &C::compress_gradients, bits_of_gradients(),
             "Gradients go between ranks in codes of so many bits, 8 or 4, and what the codes lose "
             "is added in the next step; 0: as they are.",
             every_run()),
       without_effect(field(s, "timeout", &C::timeout, number(0, 1e9),
                            "Seconds after which a rank that does not answer ends the job; 0: "
                            "never.",
                            every_run()))}};
}

Section run() {
  constexpr auto s = &Config::run;
  using C = RunConfig;
  return {
      "",
      "The whole run.",
      {field(s, "seed", &C::seed, integer(0, INT64_MAX), "Everything random follows from it.",
             every_run()),
       field(s, "device", &C::device, device(),
             "Where to compute: cpu; cuda, or one of several GPUs, such as cuda:1; meta: nowhere, "
             "only memory is counted (bench step).",
             every_run()),
       field(s, "precision", &C::precision, choice({"f32", "tf32", "bf16"}),
             "tf32: CUDA's matrix products and convolutions round f32 operands to 10 bits; bf16: "
             "activations on CUDA are bf16, parameters f32.",
             on({"cuda", "meta"}, "device cuda, and meta in its place")),
       without_effect(field(s, "cuda_graphs", &C::cuda_graphs, boolean(),
                            "Capture a step of each shape once and rerun it (CUDA).",
                            on({"cuda"}, "device cuda"))),
       field(
           s, "deterministic", &C::deterministic, boolean(),
           "Convolutions and attention on CUDA give equal bits in every run; false: cuDNN may add "
           "in any order, which can be faster.",
           on({"cuda", "meta"}, "device cuda, and meta in its place")),
       bytes_field(
           s, "workspace_limit", &C::workspace_limit,
           "The most bytes of workspace of a convolution, product or attention on CUDA, where "
           "there "
           "is a way that takes less (\"512 MiB\"); a budget of the peak allows a sixteenth of it "
           "at most.",
           "workspace_limit", on({"cuda", "meta"}, "device cuda, and meta in its place")),
       without_effect(field(s, "threads", &C::threads, integer(0, 4096),
                            "Threads to compute with; 0: one per core.", every_run())),
       without_effect(
           bytes_field(s, "memory_limit", &C::memory_limit,
                       "Fail beyond so many bytes of tensors (\"2 GiB\"); 0: no limit. On CUDA "
                       "the parts of a language model's logits follow it.",
                       "memory_limit", every_run()))}};
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {model(),
                                                data(),
                                                views_of_data(),
                                                optim(),
                                                schedule(),
                                                compression(),
                                                gact(),
                                                actnn(),
                                                acgc(),
                                                budget(),
                                                advanced(),
                                                train(),
                                                early_stop(),
                                                distributed_section(),
                                                run()};
  return sections;
}

}  // namespace frugal::apps
