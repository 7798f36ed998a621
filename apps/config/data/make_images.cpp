#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/config/data/data_kinds.h"
#include "apps/config/data/data_parts.h"
#include "apps/config/data/mask_data.h"
#include "apps/config/data/random_dataset.h"
#include "apps/config/data/tensor_data.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/make_model.h"
#include "core/random/random_streams.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/class_names.h"
#include "data/formats/file_bytes.h"
#include "data/formats/idx.h"
#include "data/image/changes.h"
#include "data/image/cifar.h"
#include "data/image/image_folder.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "data/subset.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

// Means and standard deviations of the channels of a well-known data set, by name.
struct Convention {
  const char* name;
  std::vector<double> mean, std;
};
const std::vector<Convention>& conventions() {
  static const std::vector<Convention> all = {
      {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
      {"cifar10", {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
      {"cifar100", {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
      {"mnist", {0.1307}, {0.3081}},
      {"fashion_mnist", {0.2860}, {0.3530}},
      {"half", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}}};
  return all;
}

struct DataRow {
  const char* name;
  BatchSpec spec;
  std::vector<std::string> marks;  // see DataKind
  const char* convention;          // what data.normalize "auto" means; nullptr: values stay
  // Opens the data; nullptr: they are made in memory, or are files of pictures. most: how many
  // samples are read at most; 0: all.
  DatasetPtr (*open)(const std::string& folder, bool train, int64_t most);
  // pictures: files whose sizes and classes the configuration decides. arrays: the files of
  // data.name tensors. masks: those of data.name image_masks.
  enum class Files : uint8_t { own, pictures, arrays, masks } files = Files::own;
  bool of_files() const { return files == Files::pictures; }
  bool of_arrays() const { return files == Files::arrays; }
  bool of_masks() const { return files == Files::masks; }
};

const std::vector<DataRow>& data_rows() {
  using data::Cifar;
  static const std::vector<DataRow> rows = {
      {"fashion_mnist",
       {{28, 28, 1}, 10},
       {"fashion-mnist/train-images-idx3-ubyte", "fashion-mnist/train-images-idx3-ubyte.gz",
        "fashion_mnist/train-images-idx3-ubyte", "fashion_mnist/train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"},
       "fashion_mnist",
       [](const std::string& folder, bool train, int64_t most) {
         return data::open_idx(within(folder, {"fashion-mnist", "fashion_mnist"}), train, 10, most);
       }},
      {"mnist",
       {{28, 28, 1}, 10},
       {"mnist/train-images-idx3-ubyte", "mnist/train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"},
       "mnist",
       [](const std::string& folder, bool train, int64_t most) {
         return data::open_idx(within(folder, {"mnist"}), train, 10, most);
       }},
      {"cifar10",
       {{32, 32, 3}, 10},
       {"cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin"},
       "cifar10",
       [](const std::string& folder, bool train, int64_t most) {
         return data::open_cifar(folder, Cifar::c10, train, most);
       }},
      {"cifar100",
       {{32, 32, 3}, 100},
       {"cifar-100-binary/train.bin", "train.bin"},
       "cifar100",
       [](const std::string& folder, bool train, int64_t most) {
         return data::open_cifar(folder, Cifar::c100, train, most);
       }},
      {"random", {{32, 32, 3}, 10}, {}, nullptr, nullptr},
      {kRandomMasks, {{64, 64, 3}, 19}, {}, nullptr, nullptr},
      {kImageMasks, {}, {}, "imagenet", nullptr, DataRow::Files::masks},
      {"image_folder", {}, {}, "imagenet", nullptr, DataRow::Files::pictures},
      {"image_list", {}, {}, "imagenet", nullptr, DataRow::Files::pictures},
      {"tensors", {}, {}, "", nullptr, DataRow::Files::arrays},
  };
  return rows;
}

bool is_random(const Config& config) {
  return config.data.name == "random" || config.data.name == kRandomMasks;
}

// The schema lets no other name through.
const DataRow& data_row(const std::string& name) {
  for (const DataRow& row : data_rows())
    if (row.name == name) return row;
  throw ConfigError("data.name", fmt::format("expected a known dataset, got '{}'", name));
}

constexpr int64_t kMostRandom = int64_t{1} << 28;  // an epoch's order lies in memory
constexpr int64_t kSamplesAtWork = 8;  // copies of a sample that a thread augments, at most

std::filesystem::path find_part_path(const Config& config, Split split) {
  namespace fs = std::filesystem;
  const fs::path dir = within(*config.data.dir, {"ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"});
  const bool lists = config.data.name == "image_list";
  std::error_code ignored;
  std::vector<std::string> there;
  for (const std::string& name : data::part_names(split)) {
    const fs::path path = dir / (lists ? name + ".csv" : name);
    if (lists ? fs::is_regular_file(path, ignored) : fs::is_directory(path, ignored))
      there.push_back(path.string());
  }
  return data::only_one("data", there);
}

// How samples are changed before they are normalized.
enum class Changes : uint8_t { none, training, first_view, second_view };

// Files of pictures, arrays, sets with files of their own, or images made in memory.
class OpenImages final : public OpenData {
 public:
  BatchSpec spec(const Config& config) override;
  std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) override;
  std::unique_ptr<data::BatchSource> training_samples(const Config& config) override;
  std::vector<int64_t> samples_ahead(const Config& config, int64_t batch) override;
  std::vector<std::string> class_names(const Config& config) override;
  std::vector<int64_t> mask_values(const Config& config) override;
  data::PictureList labelled_pictures(const Config& config, Split split) override;
  void describe(const Config& config, RunEncoding& known) override;

 private:
  // The part of the data for a split, or an empty path: a folder of classes, or a list.
  const std::filesystem::path& part_path(const Config& config, Split split);
  // Where the training set is: its own part, or the whole folder.
  std::filesystem::path training_path(const Config& config);
  data::ClassNames find_classes(const Config& config);
  const data::ClassNames& classes(const Config& config) {
    if (!classes_) classes_ = find_classes(config);
    return *classes_;
  }
  data::PictureList list_files(const Config& config, const std::filesystem::path& path,
                               const std::vector<std::string>& classes);
  // The pictures of a part, with the classes of the training set.
  const data::PictureList& list_part(const Config& config, const std::filesystem::path& path);
  // Without a part to validate or to test on, the training set is split with the seed.
  bool splits_training_set(const Config& config);
  // The pictures of a split; none: there is no such split. With one part to validate or to test on,
  // that one is tested on.
  data::PictureList pictures_of(const Config& config, Split split);
  data::PictureList limited_pictures(const Config& config, Split split);
  DatasetPtr open_picture_files(const Config& config, Split split, double least_area);
  const MaskParts& mask_parts(const Config& config) {
    if (!masks_) masks_ = read_masks(config);
    return *masks_;
  }
  // Images, with their augmentation; nullptr: there is no such split.
  DatasetPtr open_images(const Config& config, Split split, Changes changes);

  std::map<Split, std::filesystem::path> part_paths_;
  std::optional<data::ClassNames> classes_;
  std::map<std::filesystem::path, data::PictureList> lists_;  // by list_part()'s path
  std::optional<MaskParts> masks_;
  TensorFiles arrays_;
};

const std::filesystem::path& OpenImages::part_path(const Config& config, Split split) {
  const auto found = part_paths_.find(split);
  return found != part_paths_.end()
             ? found->second
             : part_paths_.emplace(split, find_part_path(config, split)).first->second;
}

std::filesystem::path OpenImages::training_path(const Config& config) {
  const std::filesystem::path part = part_path(config, Split::train);
  if (!part.empty()) return part;
  if (config.data.name == "image_list")
    throw ConfigError("data.dir", fmt::format("expected a list train.csv in {}, got none",
                                              in_quotes(*config.data.dir)));
  return *config.data.dir;
}

data::ListColumns columns_of_list(const Config& config) {
  const DataConfig& c = config.data;
  return {c.path_column.value_or(""), c.name == "image_list" ? c.target.value_or("") : ""};
}

data::PictureList read_list(const Config& config, const std::filesystem::path& path,
                            const std::vector<std::string>& classes) {
  const data::ListColumns columns = columns_of_list(config);
  try {
    return config.data.several_labels ? data::read_several_labels(path.string(), classes, columns)
                                      : data::read_picture_list(path.string(), classes, columns);
  } catch (const ConfigError& e) {
    throw ConfigError(e.path() == "path" ? "data.path_column" : "data.target", e.reason());
  }
}

// ImageNet's own file of names, which says what people call the folders.
std::optional<data::ClassNames> imagenet_names(const Config& config) {
  const std::filesystem::path dir = *config.data.dir;
  for (const char* file : {"imagenet_class_index.json", "LOC_synset_mapping.txt"}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(dir / file, ignored))
      return data::read_class_names((dir / file).string());
  }
  return std::nullopt;
}

data::ClassNames OpenImages::find_classes(const Config& config) {
  if (const auto& known = config.data.known; known != nullptr && !known->class_ids.empty())
    return {known->class_ids, known->class_names.size() == known->class_ids.size()
                                  ? known->class_names
                                  : known->class_ids};
  const std::filesystem::path path = training_path(config);
  const std::vector<std::string> found = config.data.name == "image_list"
                                             ? read_list(config, path, {}).classes
                                             : data::list_classes(path.string());
  if (const auto& file = config.data.class_names; file && !data::is_file(*file))
    throw ConfigError("data.class_names",
                      fmt::format("expected a file, got {}, which is not there", in_quotes(*file)));
  if (const auto& file = config.data.class_names)
    return data::order_of_classes(data::read_class_names(*file), found, *file);
  data::ClassNames classes{found, found};
  if (const auto known = imagenet_names(config))
    for (size_t i = 0; i < found.size(); ++i) {
      const auto at = std::find(known->ids.begin(), known->ids.end(), found[i]);
      if (at != known->ids.end())
        classes.names[i] = known->names[static_cast<size_t>(at - known->ids.begin())];
    }
  return classes;
}

// ImageNet's validation pictures lie in one folder; a file beside the data, or above it, has their
// classes.
bool has_folders(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored)) return true;
  return false;
}
std::filesystem::path solution_of(const Config& config, const std::filesystem::path& part) {
  std::error_code ignored;
  for (const std::filesystem::path& folder :
       {part, part.parent_path(), std::filesystem::path(*config.data.dir)})
    if (const auto file = folder / "LOC_val_solution.csv"; std::filesystem::exists(file, ignored))
      return file;
  throw ConfigError(
      "data.dir",
      fmt::format("expected a folder for each class in {}, or LOC_val_solution.csv beside it",
                  in_quotes(part.string())));
}

data::PictureList OpenImages::list_files(const Config& config, const std::filesystem::path& path,
                                         const std::vector<std::string>& classes) {
  if (config.data.name == "image_list") return read_list(config, path, classes);
  if (!has_folders(path) && path != training_path(config))
    return data::list_imagenet_validation(path.string(), solution_of(config, path).string(),
                                          classes);
  data::PictureList list = data::list_class_folders(path.string(), classes);
  std::vector<bool> found(classes.size());
  for (const data::PictureFile& file : list.files) found[static_cast<size_t>(file.label)] = true;
  if (path == training_path(config) && !config.data.class_names && config.data.known == nullptr)
    for (size_t i = 0; i < found.size(); ++i)
      FRUGAL_CHECK(found[i],
                   "[pictures] expected pictures (.jpg, .jpeg, .png, .webp, .bmp) in {}, got none",
                   in_quotes((path / classes[i]).string()));
  return list;
}

const data::PictureList& OpenImages::list_part(const Config& config,
                                               const std::filesystem::path& path) {
  const auto found = lists_.find(path);
  return found != lists_.end()
             ? found->second
             : lists_.emplace(path, list_files(config, path, classes(config).ids)).first->second;
}

bool OpenImages::splits_training_set(const Config& config) {
  return part_path(config, Split::validation).empty() && part_path(config, Split::test).empty();
}
data::SplitIndices split_of(const Config& config, const data::PictureList& all) {
  std::vector<int64_t> labels;
  for (const data::PictureFile& file : all.files)
    labels.push_back(all.answers.defined() ? 0 : file.label);
  return split_by(config, labels, [&](int64_t i) {
    return name_of_file(config, all.files[static_cast<size_t>(i)].path);
  });
}

data::PictureList OpenImages::pictures_of(const Config& config, Split split) {
  const auto validation = part_path(config, Split::validation),
             test = part_path(config, Split::test);
  if (splits_training_set(config)) {
    const data::PictureList& all = list_part(config, training_path(config));
    const data::SplitIndices parts = split_of(config, all);
    data::PictureList list{{}, all.classes, all.answers};
    for (const int64_t index : part_of(parts, split))
      list.files.push_back(all.files[static_cast<size_t>(index)]);
    return list;
  }
  if (split == Split::train) return list_part(config, training_path(config));
  const bool both = !validation.empty() && !test.empty();
  if (split == Split::validation) return both ? list_part(config, validation) : data::PictureList{};
  FRUGAL_ASSERT(split == Split::test);
  return list_part(config, test.empty() ? validation : test);
}

// The shorter side of an evaluated picture before its centre is cut out.
int64_t resized_side(const DataConfig& c) {
  constexpr double kMargin = 256.0 / 224;  // the resized picture's side, by the side that is seen
  return c.resize.value_or(std::llround(static_cast<double>(c.image_size) * kMargin));
}

data::PictureList OpenImages::limited_pictures(const Config& config, Split split) {
  const DataConfig& c = config.data;
  data::PictureList list = pictures_of(config, split);
  const int64_t limit = split == Split::train ? c.train_samples : c.test_samples;
  const auto count = static_cast<int64_t>(list.files.size());
  if (limit > 0 && limit < count) {  // evenly, since the files of a class lie together
    std::vector<data::PictureFile> some;
    for (int64_t i = 0; i < limit; ++i)
      some.push_back(std::move(list.files[static_cast<size_t>(i * count / limit)]));
    list.files = std::move(some);
  }
  return list;
}

DatasetPtr OpenImages::open_picture_files(const Config& config, Split split, double least_area) {
  const DataConfig& c = config.data;
  data::PictureList list = limited_pictures(config, split);
  if (list.files.empty()) return nullptr;
  data::PictureOptions options;
  options.height = options.width = c.image_size;
  options.channels = c.channels;
  options.skip_bad = c.skip_bad;
  options.exif = exif_of(config);
  options.least_area = least_area;
  options.resize = resized_side(c);
  return std::make_shared<data::PictureFiles>(std::move(list), options);
}

BatchSpec OpenImages::spec(const Config& config) {
  const DataRow& row = data_row(config.data.name);
  BatchSpec spec = row.spec;
  if (is_random(config)) {
    if (config.data.name == kRandomMasks) spec.target = BatchSpec::Target::class_of_pixel;
    if (config.data.shape) spec.sample = Shape(std::span<const int64_t>(*config.data.shape));
    if (config.data.classes) spec.classes = *config.data.classes;
  }
  if (row.of_files()) {
    spec.sample = {config.data.image_size, config.data.image_size, config.data.channels};
    spec.classes = static_cast<int64_t>(classes(config).ids.size());
    if (config.data.several_labels) spec.target = BatchSpec::Target::labels;
  }
  if (row.of_arrays()) {
    const TensorParts& parts = arrays_.parts(config);
    spec.sample = parts.sample;
    spec.classes = parts.train_targets.classes;
    spec.target = target_of(parts.train_targets);
  }
  if (row.of_masks()) {
    spec.sample = {config.data.image_size, config.data.image_size, config.data.channels};
    spec.classes = mask_parts(config).values.classes;
    spec.target = BatchSpec::Target::class_of_pixel;
  }
  spec.mixes = config.data.mixup > 0 || config.data.cutmix > 0;
  if (is_self_supervised(config.model) && spec.target == BatchSpec::Target::class_of_sample)
    spec.target = BatchSpec::Target::views;
  spec.metric = usual_metric(spec.target);
  return spec;
}

// The change that data.normalize, data.mean and data.std ask for; nullopt: none.
std::optional<Convention> normalization(const Config& config, int64_t channels) {
  const DataConfig& c = config.data;
  const DataRow& row = data_row(c.name);
  if (c.mean || c.std) {
    if (!c.mean || !c.std || c.normalize != "auto")
      throw ConfigError("data.mean",
                        "expected both data.mean and data.std, and data.normalize auto");
    return Convention{"", *c.mean, *c.std};
  }
  if (c.normalize == "none") return std::nullopt;
  const std::string name = c.normalize != "auto"       ? c.normalize
                           : row.convention != nullptr ? row.convention
                                                       : "";
  if (name.empty()) return std::nullopt;
  for (const Convention& convention : conventions()) {
    if (convention.name != name) continue;
    Convention found = convention;
    const auto known = static_cast<int64_t>(found.mean.size());
    if (known == channels) return found;
    if (channels != 1)
      throw ConfigError("data.normalize", fmt::format("expected data of {} channels for {}, got {}",
                                                      known, name, channels));
    // A single channel is luminance: it gets the mean of the means, and of the deviations.
    const auto mean_of = [](const std::vector<double>& values) {
      double sum = 0;
      for (double value : values) sum += value;
      return std::vector<double>{sum / static_cast<double>(values.size())};
    };
    found.mean = mean_of(found.mean);
    found.std = mean_of(found.std);
    return found;
  }
  throw ConfigError("data.normalize", fmt::format("expected a known name, got '{}'", name));
}

// The least share of a picture's area that a sample is cut from; 0: nothing is cut at random.
double area_to_cut(const DataConfig& c, Changes changes) {
  switch (changes) {
    case Changes::none:
      return 0;
    case Changes::training:
      return c.crop_area;
    case Changes::first_view:
    case Changes::second_view:
      break;
  }
  return c.views.area;
}

DatasetPtr OpenImages::open_images(const Config& config, Split split, Changes changes) {
  const DataConfig& c = config.data;
  const DataRow& row = data_row(c.name);
  const bool train = split == Split::train;
  const int64_t limit = train ? c.train_samples : c.test_samples;
  DatasetPtr dataset;
  if (row.of_files()) {
    dataset = open_picture_files(config, split, area_to_cut(c, changes));
    if (dataset == nullptr) return nullptr;
  } else if (row.of_masks()) {
    dataset = open_masks(config, mask_parts(config), split);
    if (dataset == nullptr) return nullptr;
  } else if (row.of_arrays()) {
    dataset = arrays_.open(config, split);
    if (dataset == nullptr) return nullptr;
    if (limit > 0) dataset = data::first(dataset, limit);
  } else if (split == Split::validation) {
    return nullptr;
  } else if (row.open == nullptr) {
    const BatchSpec spec = this->spec(config);
    const int64_t samples = random_samples(c, train);
    const auto seed = static_cast<uint64_t>(config.run.seed);
    const RandomStream& stream = train ? streams::kTrainImages : streams::kTestImages;
    if (spec.target_of_each_pixel())
      return std::make_shared<RandomMasks>(spec.sample, spec.classes, samples, seed, stream);
    dataset = std::make_shared<RandomDataset>(spec.sample, spec.classes, samples, seed, stream);
  } else {
    dataset = row.open(*c.dir, train, limit);
  }
  const bool augments = changes == Changes::training;
  if (augments) dataset = data::with_changes(dataset, c);
  if (changes == Changes::first_view || changes == Changes::second_view)
    dataset =
        data::with_view(dataset, c.views, changes == Changes::first_view ? 0 : 1, row.of_files());
  if (const auto change = normalization(config, dataset->sample_shape().back()))
    dataset = std::make_shared<data::Normalize>(dataset, change->mean, change->std);
  if (augments) dataset = data::with_blanks(dataset, c);
  return dataset;
}

data::LoaderOptions loader_options(const Config& config, bool train) {
  data::LoaderOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch();
  options.shuffle = train;
  options.drop_last = train && config.data.drop_last;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.threads = static_cast<int>(config.data.workers);
  if (train)
    options.mix = {config.data.mixup, config.data.cutmix, config.model.num_classes.value_or(0)};
  return options;
}

class ImageKind final : public DataKind {
 public:
  std::vector<std::string> names() const override;
  DataTraits traits(const Config& config) const override;
  std::vector<DataKey> keys() const override;
  void check(const Config& config) const override;
  std::vector<std::string> marks(const std::string& name) const override {
    return data_row(name).marks;
  }
  std::shared_ptr<OpenData> open() const override { return std::make_shared<OpenImages>(); }
};

Reader picture_files() {
  return {"image_folder and image_list", {"data.name"}, [](const Config& c) {
            return traits(c).of_picture_files;
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

// Who reads a change of pictures.
Reader reader_of_change(const std::string& key) {
  if (key == "flip") return mirrored_images();
  return key == "color_jitter" || key == "grayscale" || key == "blur" ? changed_images()
                                                                      : labelled_images();
}

std::vector<DataKey> ImageKind::keys() const {
  namespace range = by_name::range;
  std::vector<DataKey> all = {
      {{{"shape", range::or_nothing(range::list(range::integer(1, 1 << 16), 3, 3)),
         "random, random_masks, random_boxes: [height, width, channels]; null: [32, 32, 3], and "
         "[64, 64, 3] of the others."},
        &DataConfig::shape},
       data_named({"random", kRandomMasks, kRandomBoxes})},
      {{{"classes", range::or_nothing(range::integer(1, 1 << 20)),
         "random, random_masks, random_tokens, random_graph: number of classes; null: 10, 19, "
         "2, 40. random_boxes: with the background; null: 4. image_masks: null counts them in "
         "the masks."},
        &DataConfig::classes},
       {"image_masks, random, random_masks, random_boxes, random_graph and random_tokens of "
        "encoders",
        {"data.name", "model.name"},
        [](const Config& c) {
          return c.data.name == "random" || c.data.name == kRandomMasks ||
                 c.data.name == kRandomBoxes || c.data.name == kImageMasks ||
                 c.data.name == "random_graph" ||
                 (c.data.name == "random_tokens" && !makes_windows(c));
        }}},

      {{{"normalize",
         range::choice("auto, none, imagenet, cifar10, cifar100, mnist, fashion_mnist, half"),
         "Subtract each channel's mean and divide by its standard deviation. auto: those of "
         "the data set (of picture files: imagenet; of tensors: none); half: both are 0.5. "
         "Graphs: auto scales rows of features. csv: auto takes those of the training part."},
        &DataConfig::normalize},
       {"images, csv and graphs in files, but for ogbn_arxiv",
        {"data.name"},
        [](const Config& c) { return data_traits(c).normalizes; }}},
      {{{"mean", range::or_nothing(range::list(range::number(-1e6, 1e6), 1, 4096)),
         "Images: subtract these from the channels instead. Values are in [0, 1]."},
        &DataConfig::mean},
       normalized_images()},
      {{{"std", range::or_nothing(range::list(range::divisor(1e6), 1, 4096)),
         "Images: then divide the channels by these."},
        &DataConfig::std},
       normalized_images()},
      {{{"image_size", range::integer(1, 1 << 14), "Picture files: height and width of a sample."},
        &DataConfig::image_size},
       {"image_folder, image_list, image_masks, and image_boxes without data.sides",
        {"data.name", "data.sides"},
        [](const Config& c) { return samples_of_files().reads(c) && !c.data.sides; }}},
      {{{"channels", range::integer(1, 3), "Picture files: 3 for colours, 1 for grey."},
        &DataConfig::channels},
       samples_of_files()},
      {{{"resize", range::or_nothing(range::integer(1, 1 << 15)),
         "Picture files: for evaluation the shorter side becomes so long, then the centre is "
         "cut out; null: image_size * 256 / 224."},
        &DataConfig::resize},
       picture_files()},
      {{{"crop_area", range::number(0, 1),
         "Picture files: for training a random part of at least this share of the area is "
         "resized to the sample; 0: the centre, as for evaluation."},
        &DataConfig::crop_area},
       {"image_folder and image_list, where networks learn from labels",
        {"data.name", "model.name"},
        [](const Config& c) { return data_traits(c).of_picture_files && !learns_from_views(c); }}},
      {{{"scale", range::or_nothing(range::list(range::positive(1e3), 2, 2)),
         "image_masks: for training, pictures and masks are enlarged by a random factor between "
         "these two before a part is cut out; null: [1, 1]."},
        &DataConfig::scale},
       data_named({kImageMasks})},
      {{{"mask_values", range::or_nothing(range::list(range::integer(0, 255), 1, 256)),
         "image_masks: the value of each class in the masks, in order; other values do not "
         "count. null: values are classes and 255 does not count, but masks of 0 and 255 alone "
         "have two classes."},
        &DataConfig::mask_values},
       data_named({kImageMasks})},
      {{{"mixup", range::number(0, 1e3),
         "Augmentation: each batch is faded into itself, shifted by one sample, with a share "
         "from Beta(mixup, mixup); 0: off. With cutmix too, each batch draws one of the two."},
        &DataConfig::mixup},
       one_class_images()},
      {{{"cutmix", range::number(0, 1e3),
         "Augmentation: each sample gets a rectangle of the sample before it, with a share "
         "from Beta(cutmix, cutmix); 0: off."},
        &DataConfig::cutmix},
       one_class_images()},
      {{{"skip_bad", range::flag(),
         "Instead of an error: of image_folder and image_list, a damaged or missing file "
         "becomes a sample that does not count. image_boxes: a picture that is damaged, or has "
         "a wrong annotation, is left out. Warnings count them."},
        &DataConfig::skip_bad},
       {"image_folder, image_list and image_boxes",
        {"data.name"},
        [](const Config&
               c) { return data_traits(c).of_picture_files || c.data.name == kImageBoxes; }}},
      {{{"exif", range::choice("auto, turn, ignore"),
         "Picture files: whether pictures are turned as their EXIF orientation says. auto: "
         "turn for image_folder and image_list, ignore for image_boxes and image_masks. Boxes "
         "and masks of the other kind are turned so that they fit, where their size tells."},
        &DataConfig::exif},
       samples_of_files()},
      {{{"several_labels", range::flag(),
         "image_list: a picture may have several labels, each a question of its own."},
        &DataConfig::several_labels},
       data_named({"image_list"})},
      {{{"class_names", range::or_nothing(range::any_text()),
         "File with the names of the classes in the order of the outputs: a line each, a JSON "
         "list, or ImageNet's class index; null: sorted names of folders or labels."},
        &DataConfig::class_names},
       {"image_folder, image_list and tensors with classes",
        {"data.name"},
        [](const Config&
               c) { return data_traits(c).of_picture_files || c.data.name == "tensors"; }}},
      {{{"path_column", range::or_nothing(range::any_text()),
         "image_list: the column with the paths of the pictures; null: the first."},
        &DataConfig::path_column},
       data_named({"image_list"})}};
  for (const auto& each : data::ChangeOptions::list())
    all.push_back({by_name::Option<DataConfig>(each), reader_of_change(each.key.name)});
  return all;
}

void ImageKind::check(const Config& config) const {
  const std::shared_ptr<OpenData> images = open_data(config);
  const std::pair<const char*, int64_t> sizes[] = {
      {"data.train_samples", config.data.train_samples},
      {"data.test_samples", config.data.test_samples}};
  for (const auto& [key, samples] : sizes)
    if (is_random(config) && samples > kMostRandom)
      throw ConfigError(
          key, fmt::format("expected at most {} for random, got {}", kMostRandom, samples));
  const DataConfig& c = config.data;
  const bool of_files = data_row(c.name).of_files();
  const bool views = is_self_supervised(config.model);
  const char* const jitter_key = views ? "data.views.color_jitter" : "data.color_jitter";
  const std::vector<double>& jitter = views ? c.views.color_jitter : c.color_jitter;
  if (!jitter.empty() && jitter.size() != 4)
    throw ConfigError(jitter_key,
                      fmt::format("expected none or 4 strengths, got {}", jitter.size()));
  if (!jitter.empty() && jitter[3] > 0.5)
    throw ConfigError(jitter_key, fmt::format("expected a hue of at most 0.5, got {}", jitter[3]));
  const bool of_masks = data_row(c.name).of_masks();
  const int64_t channels = of_files || of_masks ? c.channels : images->spec(config).sample.back();
  const bool colours = !jitter.empty() && (jitter[2] > 0 || jitter[3] > 0);
  const double grey = views ? c.views.grayscale : c.grayscale;
  if (channels != 3 && (colours || grey > 0))
    throw ConfigError(
        colours ? jitter_key : (views ? "data.views.grayscale" : "data.grayscale"),
        fmt::format("expected images of 3 channels, got {}; [] and 0 turn changes of colours off",
                    channels));
  for (const auto& [key, numbers] : {std::pair{"data.mean", &c.mean}, {"data.std", &c.std}})
    if (*numbers && static_cast<int64_t>((*numbers)->size()) != channels)
      throw ConfigError(key, fmt::format("expected a number for each of {} channels, got {}",
                                         channels, (*numbers)->size()));
  if (c.crop_padding > 0) {
    const Shape sample = images->spec(config).sample;
    const int64_t side = std::min(sample[0], sample[1]);
    if (c.crop_padding >= side)
      throw ConfigError(
          "data.crop_padding",
          fmt::format("expected less than the shorter side of the pictures, which is {}, got {}: a "
                      "crop could miss the picture, and batches of equal samples have no variance "
                      "that a batch normalization could divide by",
                      with_noun(side, "pixel"), c.crop_padding));
  }
  if (c.cutout > 0) {
    const Shape sample = images->spec(config).sample;
    const int64_t side = std::max(sample[0], sample[1]);
    if (c.cutout >= side)
      throw ConfigError("data.cutout",
                        fmt::format("expected less than the longer side of the pictures, which is "
                                    "{}, got {}: it could blank a whole picture",
                                    with_noun(side, "pixel"), c.cutout));
  }
  const bool mixes = c.mixup > 0 || c.cutmix > 0;
  if (mixes &&
      (c.several_labels || images->spec(config).target != BatchSpec::Target::class_of_sample))
    throw ConfigError(c.mixup > 0 ? "data.mixup" : "data.cutmix",
                      fmt::format("expected 0 for {}, whose samples have several labels or values; "
                                  "samples of one class each are mixed",
                                  c.name));
  if (views && (c.several_labels || of_masks || !images->spec(config).has_views()))
    throw ConfigError("data.name", fmt::format("expected images of one class each for {}, which "
                                               "the metric knn reads, got {}",
                                               config.model.name, c.name));
  if (mixes && c.batch_size == 1)
    throw ConfigError("data.batch_size", "expected at least 2 to mix the samples of a batch");
  if (c.scale && (*c.scale)[0] > (*c.scale)[1])
    throw ConfigError("data.scale", fmt::format("expected the smaller factor first, got {} and {}",
                                                (*c.scale)[0], (*c.scale)[1]));
  if (!of_files && !of_masks) return;
  if (c.channels != 1 && c.channels != 3)
    throw ConfigError("data.channels", fmt::format("expected 1 or 3, got {}", c.channels));
  if (c.resize && *c.resize < c.image_size)
    throw ConfigError("data.resize", fmt::format("expected at least data.image_size, {}, got {}",
                                                 c.image_size, *c.resize));
  if (c.split && (*c.split)[0] + (*c.split)[1] > 1)
    throw ConfigError("data.split", fmt::format("expected shares of at most 1 together, got {}",
                                                (*c.split)[0] + (*c.split)[1]));
}

std::unique_ptr<data::BatchSource> OpenImages::batches(const Config& config, Split split) {
  const bool train = split == Split::train, views = train && is_self_supervised(config.model);
  const DatasetPtr images = open_images(config, split,
                                        views   ? Changes::first_view
                                        : train ? Changes::training
                                                : Changes::none);
  if (images == nullptr) return nullptr;
  FRUGAL_CHECK(images->classes() <= *config.model.num_classes,
               "[data] expected labels below {}, the model's outputs, got {} classes",
               *config.model.num_classes, images->classes());
  data::LoaderOptions options = loader_options(config, train);
  if (views) options.second_view = open_images(config, split, Changes::second_view);
  return std::make_unique<data::Loader>(images, options);
}

std::vector<int64_t> OpenImages::samples_ahead(const Config& config, int64_t batch) {
  const data::LoaderOptions loader = loader_options(config, true);
  if (loader.threads == 0) return {};
  std::vector<int64_t> all(static_cast<size_t>(loader.prefetch), batch);
  // Random masks and their pictures are drawn where they belong in the batch.
  if (config.data.name != kRandomMasks) all.push_back(loader.threads * kSamplesAtWork);
  return all;
}

// The names of the classes of the sets that come without a file of names.
const std::vector<std::string>& known_classes(const std::string& name) {
  static const std::vector<std::string> digits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                                        clothes = {"T-shirt/top", "Trouser", "Pullover",
                                                   "Dress",       "Coat",    "Sandal",
                                                   "Shirt",       "Sneaker", "Bag",
                                                   "Ankle boot"},
                                        cifar10 = {"airplane", "automobile", "bird", "cat",
                                                   "deer",     "dog",        "frog", "horse",
                                                   "ship",     "truck"},
                                        none;
  return name == "mnist"           ? digits
         : name == "fashion_mnist" ? clothes
         : name == "cifar10"       ? cifar10
                                   : none;
}

std::vector<std::string> OpenImages::class_names(const Config& config) {
  namespace fs = std::filesystem;
  const DataRow& row = data_row(config.data.name);
  if (row.of_files()) return classes(config).names;
  if (row.of_arrays()) return arrays_.class_names(config);
  if (config.data.name == "cifar10" || config.data.name == "cifar100") {
    const bool ten = config.data.name == "cifar10";
    const fs::path file =
        fs::path(within(*config.data.dir, {"cifar-10-batches-bin", "cifar-100-binary"})) /
        (ten ? "batches.meta.txt" : "fine_label_names.txt");
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) {
      std::vector<std::string> names = data::read_class_names(file.string()).names;
      if (static_cast<int64_t>(names.size()) == row.spec.classes) return names;
    }
  }
  return known_classes(config.data.name);
}

std::vector<int64_t> OpenImages::mask_values(const Config& config) {
  if (!data_row(config.data.name).of_masks()) return {};
  return mask_parts(config).values.of_classes;
}

void OpenImages::describe(const Config& config, RunEncoding& known) {
  const DataRow& row = data_row(config.data.name);
  if (row.of_arrays()) return arrays_.describe(config, known);
  if (row.of_masks()) known.parts = mask_parts(config).split;
  if (!row.of_files()) return;
  known.class_ids = classes(config).ids;
  if (!splits_training_set(config)) return;
  const data::PictureList& all = list_part(config, training_path(config));
  known.parts = parts_of(split_of(config, all), [&](int64_t i) {
    return name_of_file(config, all.files[static_cast<size_t>(i)].path);
  });
}

std::vector<std::string> ImageKind::names() const {
  std::vector<std::string> names;
  for (const DataRow& row : data_rows()) names.emplace_back(row.name);
  return names;
}

DataTraits ImageKind::traits(const Config& config) const {
  const DataRow& row = data_row(config.data.name);
  DataTraits traits;
  traits.reads_files = row.open != nullptr || row.files != DataRow::Files::own;
  traits.normalizes = row.convention != nullptr;
  traits.of_picture_files = row.of_files();
  traits.splits = row.files != DataRow::Files::own;
  if (row.of_masks() || config.data.name == kRandomMasks)
    traits.target = BatchSpec::Target::class_of_pixel;
  return traits;
}

std::unique_ptr<data::BatchSource> OpenImages::training_samples(const Config& config) {
  const DatasetPtr images = open_images(config, Split::train, Changes::none);
  data::LoaderOptions options = loader_options(config, false);
  return std::make_unique<data::Loader>(images, options);
}

data::PictureList OpenImages::labelled_pictures(const Config& config, Split split) {
  if (!data_row(config.data.name).of_files()) return {};
  return limited_pictures(config, split);
}

}  // namespace

namespace {

bool has_pictures_of(const std::string& name) {
  const auto& rows = data_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const DataRow& row) { return name == row.name; });
}

}  // namespace

bool has_bytes_of_pictures(const Config& config) {
  if (!has_pictures_of(config.data.name) || is_random(config)) return false;
  if (!data_row(config.data.name).of_arrays()) return true;
  return config.data.known != nullptr && config.data.known->of_bytes.value_or(false);
}

train::PictureInput evaluated_pictures(const Config& config, const BatchSpec& spec) {
  const std::string& name = config.data.name;
  if (!has_pictures_of(name) || spec.kind != BatchSpec::Kind::images || spec.sample.dim() != 3)
    return {};
  train::PictureInput input;
  input.view = {spec.sample[0], spec.sample[1], spec.sample[2], 0, exif_of(config)};
  if (data_row(name).of_files()) input.view.resize = resized_side(config.data);
  input.of_bytes = has_bytes_of_pictures(config);
  if (const auto change = normalization(config, spec.sample[2])) {
    input.mean = change->mean;
    input.std = change->std;
  }
  return input;
}

const DataKind& image_data() {
  static const ImageKind kind;
  return kind;
}

}  // namespace frugal::apps
