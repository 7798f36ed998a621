#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/config/data/data_kinds.h"
#include "apps/config/data/data_parts.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/run_encoding.h"
#include "core/integers.h"
#include "core/random/random_streams.h"
#include "core/words/quoted.h"
#include "data/detection/box_batches.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

constexpr int64_t kRandomBoxesTrain = 256, kRandomBoxesTest = 64;
constexpr int64_t kMultiple = 32;  // divides the sides of batches that are no letterbox

const char* name_of(data::BoxPart part) {
  switch (part) {
    case data::BoxPart::train:
      return "train";
    case data::BoxPart::validation:
      return "validation";
    case data::BoxPart::test:
      break;
  }
  return "test";
}

// The lists of a folder, or boxes made in memory.
class OpenBoxes final : public OpenData {
 public:
  BatchSpec spec(const Config& config) override;
  std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) override;
  std::vector<int64_t> samples_ahead(const Config& config, int64_t batch) override;
  std::vector<std::string> class_names(const Config& config) override;
  std::vector<int64_t> category_ids(const Config& config) override;
  void describe(const Config& config, RunEncoding& known) override;

 private:
  // The classes of the run that is used, or else of the training set.
  const data::BoxClasses& classes_of_boxes(const Config& config);
  const data::BoxSet& box_part(const Config& config, data::BoxPart part);
  data::BoxSet read_part(const Config& config, data::BoxPart part);
  // A set without pictures: there is no such split. Without a part to test on, the validation part
  // is tested on.
  const data::BoxSet& box_split(const Config& config, Split split);

  std::map<data::BoxPart, data::BoxSet> parts_;
};

// The classes of the run that is used; null: there is no such run, or it does not know them.
std::shared_ptr<const data::BoxClasses> known_classes(const Config& config) {
  return config.data.known == nullptr ? nullptr : config.data.known->boxes;
}

const data::BoxClasses& OpenBoxes::classes_of_boxes(const Config& config) {
  if (const auto known = known_classes(config)) return *known;
  const data::BoxSet& train = box_part(config, data::BoxPart::train);
  FRUGAL_CHECK(!train.pictures.empty(), "[boxes] {}: expected pictures to train on, got none",
               in_quotes(*config.data.dir));
  return train;
}

data::BoxSet OpenBoxes::read_part(const Config& config, data::BoxPart part) {
  const std::string& folder = *config.data.dir;
  data::BoxListOptions options;
  options.exif = exif_of(config);
  // Names say which class is which; the parts of a set may number them differently.
  if (part != data::BoxPart::train || known_classes(config) != nullptr)
    options.known = classes_of_boxes(config);
  data::BadEntries bad(config.data.skip_bad);
  data::BoxSet set = data::read_boxes(folder, part, options, bad);
  bad.warn(fmt::format("{}, {}", in_quotes(folder), name_of(part)));
  return set;
}

const data::BoxSet& OpenBoxes::box_part(const Config& config, data::BoxPart part) {
  const auto found = parts_.find(part);
  return found != parts_.end() ? found->second
                               : parts_.emplace(part, read_part(config, part)).first->second;
}

const data::BoxSet& OpenBoxes::box_split(const Config& config, Split split) {
  static const data::BoxSet none;
  if (split == Split::train) return box_part(config, data::BoxPart::train);
  const data::BoxSet& test = box_part(config, data::BoxPart::test);
  const bool swapped = test.pictures.empty();
  if (split == Split::validation)
    return swapped ? none : box_part(config, data::BoxPart::validation);
  FRUGAL_ASSERT(split == Split::test);
  const data::BoxSet& found = swapped ? box_part(config, data::BoxPart::validation) : test;
  FRUGAL_CHECK(!found.pictures.empty(),
               "[boxes] {}: expected pictures to test on, in a part test or val beside train, got "
               "none",
               in_quotes(*config.data.dir));
  return found;
}

bool is_random_boxes(const Config& config) { return config.data.name == kRandomBoxes; }

Shape random_shape(const Config& config) {
  if (config.data.shape) return Shape(std::span<const int64_t>(*config.data.shape));
  return {64, 64, 3};
}

int64_t random_classes(const Config& config) { return config.data.classes.value_or(4); }

// The extents of a batch, the largest ones where they differ.
Shape sample_of(const Config& config) {
  const DataConfig& c = config.data;
  if (is_random_boxes(config)) return random_shape(config);
  if (!c.sides) return {c.image_size, c.image_size, c.channels};
  const int64_t side = *std::max_element(c.sides->begin(), c.sides->end());
  return {round_up(std::min(side, c.longest_side), kMultiple), round_up(c.longest_side, kMultiple),
          c.channels};
}

BatchSpec OpenBoxes::spec(const Config& config) {
  BatchSpec spec;
  spec.sample = sample_of(config);
  spec.classes =
      is_random_boxes(config) ? random_classes(config) : classes_of_boxes(config).classes();
  spec.target = BatchSpec::Target::boxes;
  spec.metric = usual_metric(spec.target);
  return spec;
}

void check_boxes(const Config& config) {
  const DataConfig& c = config.data;
  if (is_random_boxes(config)) {
    const Shape shape = random_shape(config);
    if (shape[0] < 16 || shape[1] < 16 || (shape[2] != 1 && shape[2] != 3))
      throw ConfigError("data.shape",
                        fmt::format("expected at least 16 x 16 pixels and 1 or 3 channels for {}, "
                                    "got {}",
                                    kRandomBoxes, shape));
    if (random_classes(config) < 2)
      throw ConfigError("data.classes",
                        fmt::format("expected at least 2 for {}, with the background, got {}",
                                    kRandomBoxes, random_classes(config)));
  }
  if (!is_random_boxes(config) && c.dir && !std::filesystem::is_directory(*c.dir))
    throw ConfigError("data.dir", fmt::format("found no folder {}", in_quotes(*c.dir)));
  const int64_t channels = sample_of(config)[2];
  if (channels != 1 && channels != 3)
    throw ConfigError("data.channels", fmt::format("expected 1 or 3, got {}", channels));
  if (c.mean.has_value() != c.std.has_value())
    throw ConfigError("data.mean", "expected both data.mean and data.std, or neither");
  for (const auto& [key, numbers] : {std::pair{"data.mean", &c.mean}, {"data.std", &c.std}})
    if (*numbers && static_cast<int64_t>((*numbers)->size()) != channels)
      throw ConfigError(key, fmt::format("expected a number for each of {} channels, got {}",
                                         channels, (*numbers)->size()));
}

std::unique_ptr<data::BatchSource> OpenBoxes::batches(const Config& config, Split split) {
  const DataConfig& c = config.data;
  const bool train = split == Split::train;
  if (is_random_boxes(config) && split == Split::validation) return nullptr;
  const int64_t limit = train ? c.train_samples : c.test_samples;
  data::BoxSet set;
  if (is_random_boxes(config)) {
    const Shape shape = random_shape(config);
    const RandomStream& stream = train ? streams::kTrainImages : streams::kTestImages;
    set = data::random_boxes(shape[0], shape[1], random_classes(config),
                             limit > 0 ? limit
                             : train   ? kRandomBoxesTrain
                                       : kRandomBoxesTest,
                             stream.key(static_cast<uint64_t>(config.run.seed)));
  } else {
    set = box_split(config, split);
    if (set.pictures.empty()) return nullptr;
    if (limit > 0 && limit < static_cast<int64_t>(set.pictures.size()))
      set.pictures.resize(static_cast<size_t>(limit));
    // The order decides between equal scores, and COCO's evaluation goes by ids.
    if (!train)
      std::stable_sort(
          set.pictures.begin(), set.pictures.end(),
          [](const data::BoxPicture& a, const data::BoxPicture& b) { return a.id < b.id; });
  }
  FRUGAL_CHECK(set.classes() <= *config.model.num_classes,
               "[data] expected labels below {}, the model's outputs, got {} classes",
               *config.model.num_classes, set.classes());
  return std::make_unique<data::BoxBatches>(std::move(set), box_options(config, train));
}

std::vector<int64_t> OpenBoxes::samples_ahead(const Config& config, int64_t batch) {
  const data::BoxBatchOptions options = box_options(config, true);
  if (options.threads == 0) return {};
  return std::vector<int64_t>(static_cast<size_t>(options.prefetch), batch);
}

std::vector<std::string> OpenBoxes::class_names(const Config& config) {
  return is_random_boxes(config) ? std::vector<std::string>{} : classes_of_boxes(config).names;
}

std::vector<int64_t> OpenBoxes::category_ids(const Config& config) {
  return is_random_boxes(config) ? std::vector<int64_t>{} : classes_of_boxes(config).ids;
}

void OpenBoxes::describe(const Config& config, RunEncoding& known) {
  known.class_ids = class_names(config);
}

}  // namespace

data::BoxBatchOptions box_options(const Config& config, bool train) {
  const DataConfig& c = config.data;
  data::BoxBatchOptions options;
  options.batch_size = train ? c.batch_size : c.test_batch();
  options.shuffle = options.training = train;
  options.drop_last = train && c.drop_last;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.flip = c.flip ? 0.5 : 0;
  options.skip_bad = c.skip_bad;
  options.exif = exif_of(config);
  options.threads = static_cast<int>(c.workers);
  const Shape sample = sample_of(config);
  options.channels = sample[2];
  options.letterbox = is_random_boxes(config) || !c.sides;
  if (options.letterbox) {
    options.height = sample[0];
    options.width = sample[1];
  } else {
    options.sides = *c.sides;
    options.longest = c.longest_side;
    options.multiple = kMultiple;
  }
  if (c.mean) options.mean = *c.mean;
  if (c.std) options.std = *c.std;
  if (!c.mean && options.channels == 1) {
    options.mean = {0.449};  // ImageNet's channels together
    options.std = {0.226};
  }
  return options;
}

namespace {

class BoxKind final : public DataKind {
 public:
  std::vector<std::string> names() const override { return {kImageBoxes, kRandomBoxes}; }
  std::vector<DataKey> keys() const override;
  DataTraits traits(const Config& config) const override {
    DataTraits traits;
    traits.reads_files = !is_random_boxes(config);
    traits.target = BatchSpec::Target::boxes;
    return traits;
  }
  void check(const Config& config) const override { check_boxes(config); }
  std::shared_ptr<OpenData> open() const override { return std::make_shared<OpenBoxes>(); }
};

std::vector<DataKey> BoxKind::keys() const {
  namespace range = by_name::range;
  return {{{{"sides", range::or_nothing(range::list(range::integer(1, 1 << 14), 1, 64)),
             "image_boxes: the shorter side of a picture becomes one of these, in training a "
             "random one, else the last; a batch is as large as its largest picture. null: each "
             "picture fits into image_size x image_size."},
            &DataConfig::sides},
           data_named({kImageBoxes})},
          {{{"longest_side", range::integer(1, 1 << 14),
             "image_boxes with sides: the longer side of a picture, at most."},
            &DataConfig::longest_side},
           {"image_boxes with data.sides", {"data.name", "data.sides"}, [](const Config& c) {
              return c.data.name == kImageBoxes && c.data.sides;
            }}}};
}

}  // namespace

const DataKind& box_data() {
  static const BoxKind kind;
  return kind;
}

}  // namespace frugal::apps
