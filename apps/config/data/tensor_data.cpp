#include "apps/config/data/tensor_data.h"

#include <algorithm>

#include "apps/config/keys/value_named.h"
#include "apps/config/make_model.h"
#include "core/words/quoted.h"
#include "data/class_names.h"
#include "data/formats/npy.h"

namespace frugal::apps {
namespace {

const std::vector<std::string>& endings() {
  static const std::vector<std::string> all = {".npz", ".safetensors"};
  return all;
}

bool has_arrays(const std::string& path, const std::string& before) {
  return data::TensorFile(path).contains(before + "input");
}

TensorPlaces places_of(const DataParts& files) {
  TensorPlaces places;
  places.train = {files.train, ""};
  if (files.one_file()) {
    for (const char* before : {"val_", "valid_", "validation_"})
      if (has_arrays(files.train, before)) places.validation = {files.train, before};
    if (has_arrays(files.train, "test_")) places.test = {files.train, "test_"};
    if (!has_arrays(files.train, "") && has_arrays(files.train, "train_"))
      places.train.before = "train_";
    places.split = places.validation.file.empty() && places.test.file.empty();
  } else {
    places.validation = {files.validation, ""};
    places.test = {files.test, ""};
  }
  if (!places.split && places.test.file.empty()) std::swap(places.test, places.validation);
  return places;
}

TensorPlace place_of(const TensorPlaces& places, Split split) {
  if (places.split) return places.train;
  switch (split) {
    case Split::train:
      return places.train;
    case Split::validation:
      return places.validation;
    case Split::test:
      break;
  }
  return places.test;
}

// [H, W, C], [F] or [T] of an input array's shape.
Shape sample_of(const Config& config, const TensorPlace& place, const Shape& shape) {
  const std::string& layout = config.data.layout;
  const bool pictures = layout == "nhwc" || layout == "nchw";
  // One channel may be left out.
  const bool fits = pictures ? shape.dim() == 4 || (layout == "nhwc" && shape.dim() == 3)
                    : layout == "tokens" ? shape.dim() == 1 || shape.dim() == 2
                                         : shape.dim() == 2;
  if (!fits || shape.numel() == 0)
    throw ConfigError(
        "data.layout",
        fmt::format("expected an input {} for {}, got {} in {}; the layouts are nhwc and nchw "
                    "(pictures), rows and tokens",
                    pictures             ? "[N, H, W, C] or [N, C, H, W]"
                    : layout == "tokens" ? "[N, T] or [tokens]"
                                         : "[N, F]",
                    layout, shape, in_quotes(place.file)));
  if (layout == "nhwc") return {shape[1], shape[2], shape.dim() == 4 ? shape[3] : 1};
  if (layout == "nchw") return {shape[2], shape[3], shape[1]};
  if (layout == "tokens") return {config.data.max_length};
  FRUGAL_ASSERT(layout == "rows");
  return {shape[1]};
}

// Predicts next tokens, so targets are not read.

data::TargetTask task_of(const Config& config) {
  using data::TargetTask;
  if (config.data.layout == "tokens") return TargetTask::classes;
  return value_named<TargetTask>(config.data.task, {{"auto", TargetTask::automatic},
                                                    {"classes", TargetTask::classes},
                                                    {"labels", TargetTask::labels},
                                                    {"values", TargetTask::values}});
}

bool has_pictures(const Config& config) {
  return config.data.layout == "nhwc" || config.data.layout == "nchw";
}

TensorParts read_parts(const Config& config) {
  TensorParts parts;
  parts.places = places_of(find_parts(config, endings()));
  const TensorPlace& place = parts.places.train;
  const data::TensorFile file(place.file);
  parts.sample = sample_of(config, place, file.shape(place.before + "input"));
  parts.of_bytes = has_pictures(config) && file.dtype(place.before + "input") == DType::u8;
  parts.has_targets = config.data.layout != "tokens" ||
                      (!is_decoder(config) && file.contains(place.before + "target"));
  if (parts.has_targets)
    parts.train_targets = at_section(
        "data", [&] { return data::read_targets(file, place.before + "target", task_of(config)); });
  // The run may have seen classes that no sample has any more.
  const auto& known = config.data.known;
  if (known != nullptr && parts.has_targets && !parts.train_targets.rows.defined())
    parts.train_targets.classes = std::max(parts.train_targets.classes, known->classes);
  return parts;
}

// What split_samples() keeps alike: classes.
std::vector<int64_t> labels_to_split(const data::SampleTargets& targets) {
  if (targets.rows.defined()) return std::vector<int64_t>(targets.labels.size());
  return targets.labels;
}

}  // namespace

Tensor pictures_like(bool of_bytes, const Tensor& input, const std::string& expected) {
  const bool is_bytes = input.dtype() == DType::u8;
  FRUGAL_CHECK(of_bytes || !is_bytes,
               "{} of the numbers that training has, which stay as they are, got bytes (u8), which "
               "become 0 to 1",
               expected);
  if (is_bytes) return input;
  const Tensor numbers = data::to_f32(input);
  if (!of_bytes) return numbers;
  const float* const values = numbers.data<float>();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    FRUGAL_CHECK(
        !(values[i] < 0 || values[i] > 1),
        "{} of bytes (u8), as training has, or of numbers from 0 to 1, which bytes become, "
        "got {} in {}",
        expected, values[i], describe(input));
  return numbers;
}

const TensorParts& TensorFiles::parts(const Config& config) {
  if (!parts_) parts_ = read_parts(config);
  return *parts_;
}

DatasetPtr TensorFiles::open(const Config& config, Split split) {
  const TensorPlaces& places = parts(config).places;
  if (place_of(places, split).file.empty()) return nullptr;
  if (!places.split) return read_whole(config, split);
  if (split_ == nullptr) split_ = read_whole(config, split);
  const data::SplitIndices indices = split_by(config, labels_to_split(parts(config).train_targets));
  const std::vector<int64_t>& own = part_of(indices, split);
  return own.empty() ? nullptr : std::make_shared<data::Selection>(split_, own);
}

DatasetPtr TensorFiles::read_whole(const Config& config, Split split) {
  const TensorParts& parts = this->parts(config);
  const TensorPlaces& places = parts.places;
  const TensorPlace place = place_of(places, split);
  const data::TensorFile file(place.file);
  Tensor input = file.read(place.before + "input");
  const Shape sample = sample_of(config, place, input.shape());
  FRUGAL_CHECK(sample == parts.sample,
               "[tensors] {}: expected samples {}, as in the training part, got {}",
               in_quotes(place.file), parts.sample, sample);
  if (!has_pictures(config))
    input = data::to_f32(input);
  else
    input = pictures_like(
        parts.of_bytes, input,
        fmt::format("[tensors] {}: expected {}input", in_quotes(place.file), place.before));
  if (config.data.layout == "nhwc")
    input = input.view({input.size(0), sample[0], sample[1], sample[2]});
  const bool first = split == Split::train || places.split;
  data::SampleTargets targets =
      first ? parts.train_targets
            : data::read_targets(file, place.before + "target", data::TargetTask::automatic,
                                 &parts.train_targets);
  return std::make_shared<data::TensorDataset>(place.file, input, std::move(targets),
                                               config.data.layout == "nchw");
}

TokenArray TensorFiles::open_tokens(const Config& config, Split split) {
  const TensorParts& parts = this->parts(config);
  const TensorPlaces& places = parts.places;
  const TensorPlace place = place_of(places, split);
  if (place.file.empty()) return {};
  const data::TensorFile file(place.file);
  TokenArray array;
  array.one_part = places.split;
  array.ids = data::to_i64(place.file, file.read(place.before + "input"));
  sample_of(config, place, array.ids.shape());
  const int64_t* const ids = array.ids.data<int64_t>();
  for (int64_t i = 0; i < array.ids.numel(); ++i)
    FRUGAL_CHECK(ids[i] >= 0 && ids[i] < (int64_t{1} << 31),
                 "[tensors] {}: expected token ids of at least 0, got {} at position {}",
                 in_quotes(place.file), ids[i], i);
  if (!parts.has_targets) return array;
  const bool first = split == Split::train || places.split;
  array.labels = first ? parts.train_targets.labels
                       : data::read_targets(file, place.before + "target",
                                            data::TargetTask::classes, &parts.train_targets)
                             .labels;
  FRUGAL_CHECK(static_cast<int64_t>(array.labels.size()) == array.ids.size(0),
               "[tensors] {}: expected {} targets, one a sample, got {}", in_quotes(place.file),
               array.ids.size(0), array.labels.size());
  if (!places.split || array.ids.dim() == 1) return array;
  const data::SplitIndices indices = split_by(config, parts.train_targets.labels);
  const std::vector<int64_t>& own = part_of(indices, split);
  if (own.empty()) return {};
  TokenArray some;
  const int64_t width = array.ids.size(1);
  some.ids = Tensor::empty({static_cast<int64_t>(own.size()), width}, DType::i64);
  for (size_t i = 0; i < own.size(); ++i) {
    std::copy_n(ids + own[i] * width, width,
                some.ids.mut<int64_t>() + static_cast<int64_t>(i) * width);
    some.labels.push_back(array.labels[static_cast<size_t>(own[i])]);
  }
  return some;
}

BatchSpec::Target target_of(const data::SampleTargets& targets) {
  using Target = BatchSpec::Target;
  if (!targets.rows.defined()) return Target::class_of_sample;
  return targets.rows.kind == FloatTargets::answers ? Target::labels : Target::values;
}

std::vector<std::string> TensorFiles::class_names(const Config& config) {
  const data::SampleTargets& targets = parts(config).train_targets;
  const bool values = target_of(targets) == BatchSpec::Target::values;
  if (!config.data.class_names) return {};
  if (values)
    throw ConfigError("data.class_names",
                      "expected null, since the targets are numbers, which have no classes");
  std::vector<std::string> names = data::read_class_names(*config.data.class_names).names;
  if (static_cast<int64_t>(names.size()) < targets.classes)
    throw ConfigError("data.class_names", fmt::format("expected a name for each of {} classes, "
                                                      "got {}",
                                                      targets.classes, names.size()));
  return names;
}

void TensorFiles::describe(const Config& config, RunEncoding& known) {
  const TensorParts& parts = this->parts(config);
  if (has_pictures(config)) known.of_bytes = parts.of_bytes;
  if (!parts.places.split || !parts.has_targets) return;
  known.parts = parts_of(split_by(config, labels_to_split(parts.train_targets)));
}

}  // namespace frugal::apps
