#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/config/data_kinds.h"
#include "apps/config/random_dataset.h"
#include "core/quoted.h"
#include "core/random_streams.h"
#include "data/formats/idx.h"
#include "data/image/augment.h"
#include "data/image/cifar.h"
#include "data/image/image_folder.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "data/subset.h"

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
  const char* convention;          // of data.normalize "auto"; nullptr: values stay
  // nullptr: made in memory, or files of pictures
  DatasetPtr (*open)(const std::string& folder, bool train);
  bool of_files = false;  // picture files, whose sizes and classes the configuration decides
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
       [](const std::string& folder, bool train) {
         return data::open_idx(within(folder, {"fashion-mnist", "fashion_mnist"}), train);
       }},
      {"mnist",
       {{28, 28, 1}, 10},
       {"mnist/train-images-idx3-ubyte", "mnist/train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"},
       "mnist",
       [](const std::string& folder, bool train) {
         return data::open_idx(within(folder, {"mnist"}), train);
       }},
      {"cifar10",
       {{32, 32, 3}, 10},
       {"cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin"},
       "cifar10",
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c10, train);
       }},
      {"cifar100",
       {{32, 32, 3}, 100},
       {"cifar-100-binary/train.bin", "train.bin"},
       "cifar100",
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c100, train);
       }},
      {"random", {{32, 32, 3}, 10}, {}, nullptr, nullptr},
      {"image_folder", {}, {}, "imagenet", nullptr, true},
      {"image_list", {}, {}, "imagenet", nullptr, true},
  };
  return rows;
}

// The schema lets no other name through.
const DataRow& data_row(const std::string& name) {
  for (const DataRow& row : data_rows())
    if (row.name == name) return row;
  throw ConfigError("data.name", fmt::format("expected a known dataset, got '{}'", name));
}

int64_t or_all(int64_t wanted, int64_t all) { return wanted > 0 ? wanted : all; }

constexpr int64_t kRandomTrain = 2048, kRandomTest = 512;
constexpr int64_t kMostRandom = int64_t{1} << 28;  // an epoch's order lies in memory
constexpr int64_t kSamplesAtWork = 8;  // copies of a sample that a thread augments, at most

// The part of the data for a split, or an empty path: a folder of classes, or a list.
std::filesystem::path part_path(const Config& config, Split split) {
  namespace fs = std::filesystem;
  const fs::path dir = within(*config.data.dir, {"ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"});
  const bool lists = config.data.name == "image_list";
  const std::vector<std::string> names =
      split == Split::train        ? std::vector<std::string>{"train"}
      : split == Split::validation ? std::vector<std::string>{"val", "valid", "validation"}
                                   : std::vector<std::string>{"test"};
  std::error_code ignored;
  for (const std::string& name : names) {
    const fs::path path = dir / (lists ? name + ".csv" : name);
    if (lists ? fs::is_regular_file(path, ignored) : fs::is_directory(path, ignored)) return path;
  }
  return {};
}

// Where the training set is: its own part, or the whole folder.
std::filesystem::path training_path(const Config& config) {
  const std::filesystem::path part = part_path(config, Split::train);
  if (!part.empty()) return part;
  if (config.data.name == "image_list")
    throw ConfigError("data.dir", fmt::format("expected a list train.csv in {}, got none",
                                              in_quotes(*config.data.dir)));
  return *config.data.dir;
}

std::vector<std::string> class_names(const Config& config) {
  const std::filesystem::path path = training_path(config);
  return config.data.name == "image_list" ? data::read_picture_list(path.string()).classes
                                          : data::list_classes(path.string());
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

data::PictureList list_part(const Config& config, const std::filesystem::path& path,
                            const std::vector<std::string>& classes) {
  if (config.data.name == "image_list") return data::read_picture_list(path.string(), classes);
  if (!classes.empty() && !has_folders(path))
    return data::list_imagenet_validation(path.string(), solution_of(config, path).string(),
                                          classes);
  return data::list_class_folders(path.string(), classes);
}

// Shares of the pictures to train and to validate on, where the data has no such parts.
constexpr double kTrainShare = 0.8, kValidationShare = 0.1;

// The pictures of a split; none: there is no such split. Without a part to validate or to test on,
// the training set is split with the seed. With one of the two, that one is tested on.
data::PictureList pictures_of(const Config& config, Split split) {
  const auto validation = part_path(config, Split::validation),
             test = part_path(config, Split::test);
  if (validation.empty() && test.empty()) {
    const auto seed = static_cast<uint64_t>(config.run.seed);
    const auto& c = config.data.split;
    const double train = c ? (*c)[0] : kTrainShare, second = c ? (*c)[1] : kValidationShare;
    data::PictureList all = list_part(config, training_path(config), {});
    auto [rest, tested] = data::split_pictures(all, std::max(0.0, 1 - train - second), seed);
    if (split == Split::test) return tested;
    auto [trained, validated] = data::split_pictures(rest, second / (train + second), seed);
    return split == Split::train ? trained : validated;
  }
  if (split == Split::train) return list_part(config, training_path(config), {});
  const std::vector<std::string> classes = class_names(config);
  const bool both = !validation.empty() && !test.empty();
  if (split == Split::validation)
    return both ? list_part(config, validation, classes) : data::PictureList{};
  return list_part(config, test.empty() ? validation : test, classes);
}

DatasetPtr open_picture_files(const Config& config, Split split) {
  const DataConfig& c = config.data;
  data::PictureList list = pictures_of(config, split);
  if (list.files.empty()) return nullptr;
  const int64_t limit = split == Split::train ? c.train_samples : c.test_samples;
  const auto count = static_cast<int64_t>(list.files.size());
  if (limit > 0 && limit < count) {  // evenly, since the files of a class lie together
    std::vector<data::PictureFile> some;
    for (int64_t i = 0; i < limit; ++i)
      some.push_back(std::move(list.files[static_cast<size_t>(i * count / limit)]));
    list.files = std::move(some);
  }
  data::PictureOptions options;
  options.height = options.width = c.image_size;
  options.channels = c.channels;
  options.skip_bad = c.skip_bad;
  if (split == Split::train) options.least_area = c.crop_area;
  constexpr double kMargin = 256.0 / 224;  // of the resized picture around the part that is seen
  options.resize = c.resize.value_or(std::llround(static_cast<double>(c.image_size) * kMargin));
  return std::make_shared<data::PictureFiles>(std::move(list), options);
}

BatchSpec image_spec(const Config& config) {
  const DataRow& row = data_row(config.data.name);
  BatchSpec spec = row.spec;
  if (config.data.name == "random") {
    if (config.data.shape) spec.sample = Shape(std::span<const int64_t>(*config.data.shape));
    if (config.data.classes) spec.classes = *config.data.classes;
  }
  if (row.of_files) {
    spec.sample = {config.data.image_size, config.data.image_size, config.data.channels};
    spec.classes = static_cast<int64_t>(class_names(config).size());
  }
  return spec;
}

// The change that data.normalize, data.mean and data.std ask for; nullopt: none.
std::optional<Convention> normalization(const Config& config) {
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
    const int64_t channels = image_spec(config).sample.back();
    const auto known = static_cast<int64_t>(found.mean.size());
    if (known == channels) return found;
    if (channels != 1)
      throw ConfigError("data.normalize", fmt::format("expected data of {} channels for {}, got {}",
                                                      known, name, channels));
    // Of luminance: the mean of the channels' means and of their deviations.
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

// Random changes while training, in torchvision's order. Values are in [0, 1].
DatasetPtr with_changes(DatasetPtr dataset, const DataConfig& c) {
  if (c.crop_padding > 0) dataset = std::make_shared<data::PadCrop>(dataset, c.crop_padding);
  if (c.flip) dataset = std::make_shared<data::HorizontalFlip>(dataset);
  if (c.auto_augment == "rand") dataset = std::make_shared<data::RandAugment>(dataset);
  if (c.auto_augment == "trivial") dataset = std::make_shared<data::TrivialAugment>(dataset);
  if (!c.color_jitter.empty()) {
    data::ColorJitterOptions jitter;
    jitter.brightness = c.color_jitter[0];
    jitter.contrast = c.color_jitter[1];
    jitter.saturation = c.color_jitter[2];
    jitter.hue = c.color_jitter[3];
    dataset = std::make_shared<data::ColorJitter>(dataset, jitter);
  }
  if (c.grayscale > 0) dataset = std::make_shared<data::RandomGrayscale>(dataset, c.grayscale);
  if (c.blur > 0) dataset = std::make_shared<data::GaussianBlur>(dataset, c.blur);
  return dataset;
}

// Images, with their augmentation; nullptr: there is no such split.
DatasetPtr open_images(const Config& config, Split split) {
  const DataConfig& c = config.data;
  const DataRow& row = data_row(c.name);
  const bool train = split == Split::train;
  const int64_t limit = train ? c.train_samples : c.test_samples;
  DatasetPtr dataset;
  if (row.of_files) {
    dataset = open_picture_files(config, split);
    if (dataset == nullptr) return nullptr;
  } else if (split == Split::validation) {
    return nullptr;
  } else if (row.open == nullptr) {
    const BatchSpec spec = image_spec(config);
    dataset = std::make_shared<RandomDataset>(
        spec.sample, spec.classes,
        or_all(limit, train ? std::max(kRandomTrain, 2 * c.batch_size) : kRandomTest),
        static_cast<uint64_t>(config.run.seed),
        train ? streams::kTrainImages : streams::kTestImages);
  } else {
    dataset = row.open(*c.dir, train);
    if (limit > 0) dataset = data::first(dataset, limit);
  }
  if (train) dataset = with_changes(dataset, c);
  if (const auto change = normalization(config))
    dataset = std::make_shared<data::Normalize>(dataset, change->mean, change->std);
  // After normalization, so that the blank is the mean.
  if (train && c.cutout > 0) dataset = std::make_shared<data::Cutout>(dataset, c.cutout);
  if (train && c.erasing > 0) dataset = std::make_shared<data::RandomErasing>(dataset, c.erasing);
  return dataset;
}

data::LoaderOptions loader_options(const Config& config, bool train) {
  data::LoaderOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch_size;
  options.shuffle = train;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.threads = static_cast<int>(config.data.workers);
  return options;
}

void check_images(const Config& config) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"data.train_samples", config.data.train_samples},
      {"data.test_samples", config.data.test_samples}};
  for (const auto& [key, samples] : sizes)
    if (config.data.name == "random" && samples > kMostRandom)
      throw ConfigError(
          key, fmt::format("expected at most {} for random, got {}", kMostRandom, samples));
  const DataConfig& c = config.data;
  const bool of_files = data_row(c.name).of_files;
  if (!c.color_jitter.empty() && c.color_jitter.size() != 4)
    throw ConfigError("data.color_jitter",
                      fmt::format("expected none or 4 strengths, got {}", c.color_jitter.size()));
  if (!c.color_jitter.empty() && c.color_jitter[3] > 0.5)
    throw ConfigError("data.color_jitter",
                      fmt::format("expected a hue of at most 0.5, got {}", c.color_jitter[3]));
  const int64_t channels = of_files ? c.channels : image_spec(config).sample.back();
  const bool colours = !c.color_jitter.empty() && (c.color_jitter[2] > 0 || c.color_jitter[3] > 0);
  if (channels != 3 && (colours || c.grayscale > 0))
    throw ConfigError(colours ? "data.color_jitter" : "data.grayscale",
                      fmt::format("expected images of 3 channels, got {}", channels));
  for (const auto& [key, numbers] : {std::pair{"data.mean", &c.mean}, {"data.std", &c.std}})
    if (*numbers && static_cast<int64_t>((*numbers)->size()) != channels)
      throw ConfigError(key, fmt::format("expected a number for each of {} channels, got {}",
                                         channels, (*numbers)->size()));
  if (!of_files) return;
  if (c.channels != 1 && c.channels != 3)
    throw ConfigError("data.channels", fmt::format("expected 1 or 3, got {}", c.channels));
  if (c.resize && *c.resize < c.image_size)
    throw ConfigError("data.resize", fmt::format("expected at least data.image_size, {}, got {}",
                                                 c.image_size, *c.resize));
  if (c.split && (*c.split)[0] + (*c.split)[1] > 1)
    throw ConfigError("data.split", fmt::format("expected shares of at most 1 together, got {}",
                                                (*c.split)[0] + (*c.split)[1]));
}

std::unique_ptr<data::BatchSource> open_image_batches(const Config& config, Split split) {
  const bool train = split == Split::train;
  const DatasetPtr images = open_images(config, split);
  if (images == nullptr) return nullptr;
  FRUGAL_CHECK(images->classes() <= *config.model.num_classes,
               "[data] expected labels below {}, the model's outputs, got {} classes",
               *config.model.num_classes, images->classes());
  return std::make_unique<data::Loader>(images, loader_options(config, train));
}

std::vector<int64_t> images_ahead(const Config& config, int64_t batch) {
  const data::LoaderOptions loader = loader_options(config, true);
  if (loader.threads == 0) return {};
  std::vector<int64_t> all(static_cast<size_t>(loader.prefetch), batch);
  all.push_back(loader.threads * kSamplesAtWork);
  return all;
}

std::vector<std::string> image_names() {
  std::vector<std::string> names;
  for (const DataRow& row : data_rows()) names.emplace_back(row.name);
  return names;
}

}  // namespace

const DataKind& image_data() {
  static const DataKind kind = {image_names,
                                [](const std::string& name) {
                                  const DataRow& row = data_row(name);
                                  DataTraits traits;
                                  traits.reads_files = row.open != nullptr || row.of_files;
                                  traits.normalizes = row.convention != nullptr;
                                  traits.of_picture_files = row.of_files;
                                  return traits;
                                },
                                check_images,
                                [](const std::string& name) { return data_row(name).marks; },
                                image_spec,
                                open_image_batches,
                                images_ahead};
  return kind;
}

}  // namespace frugal::apps
