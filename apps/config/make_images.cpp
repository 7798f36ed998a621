#include <algorithm>

#include "apps/config/data_kinds.h"
#include "apps/config/random_dataset.h"
#include "core/random_streams.h"
#include "data/formats/idx.h"
#include "data/image/cifar.h"
#include "data/image/transforms.h"
#include "data/loader.h"
#include "data/subset.h"

namespace frugal::apps {
namespace {

struct DataRow {
  const char* name;
  BatchSpec spec;
  std::vector<std::string> marks;  // see DataKind; none: made in memory
  std::vector<double> mean, std;
  DatasetPtr (*open)(const std::string& folder, bool train);
};

const std::vector<DataRow>& data_rows() {
  using data::Cifar;
  static const std::vector<DataRow> rows = {
      {"fashion_mnist",
       {{28, 28, 1}, 10},
       {"fashion-mnist/train-images-idx3-ubyte", "fashion-mnist/train-images-idx3-ubyte.gz",
        "fashion_mnist/train-images-idx3-ubyte", "fashion_mnist/train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"},
       {0.2860},
       {0.3530},
       [](const std::string& folder, bool train) {
         return data::open_idx(within(folder, {"fashion-mnist", "fashion_mnist"}), train);
       }},
      {"mnist",
       {{28, 28, 1}, 10},
       {"mnist/train-images-idx3-ubyte", "mnist/train-images-idx3-ubyte.gz",
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"},
       {0.1307},
       {0.3081},
       [](const std::string& folder, bool train) {
         return data::open_idx(within(folder, {"mnist"}), train);
       }},
      {"cifar10",
       {{32, 32, 3}, 10},
       {"cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin"},
       {0.4914, 0.4822, 0.4465},
       {0.2470, 0.2435, 0.2616},
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c10, train);
       }},
      {"cifar100",
       {{32, 32, 3}, 100},
       {"cifar-100-binary/train.bin", "train.bin"},
       {0.5071, 0.4865, 0.4409},
       {0.2673, 0.2564, 0.2762},
       [](const std::string& folder, bool train) {
         return data::open_cifar(folder, Cifar::c100, train);
       }},
      {"random", {{32, 32, 3}, 10}, {}, {}, {}, nullptr},
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

BatchSpec image_spec(const Config& config) {
  BatchSpec spec = data_row(config.data.name).spec;
  if (config.data.name == "random") {
    if (config.data.shape) spec.sample = Shape(std::span<const int64_t>(*config.data.shape));
    if (config.data.classes) spec.classes = *config.data.classes;
  }
  return spec;
}

// Images, with their augmentation.
DatasetPtr open_images(const Config& config, bool train) {
  const DataConfig& c = config.data;
  const DataRow& row = data_row(c.name);
  const int64_t limit = train ? c.train_samples : c.test_samples;
  DatasetPtr dataset;
  if (row.open == nullptr) {
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
  if (train && c.crop_padding > 0)
    dataset = std::make_shared<data::PadCrop>(dataset, c.crop_padding);
  if (train && c.flip) dataset = std::make_shared<data::HorizontalFlip>(dataset);
  if (c.normalize && !row.mean.empty())
    dataset = std::make_shared<data::Normalize>(dataset, row.mean, row.std);
  // After normalization, so that the blank is the mean.
  if (train && c.cutout > 0) dataset = std::make_shared<data::Cutout>(dataset, c.cutout);
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
}

std::unique_ptr<data::BatchSource> open_image_batches(const Config& config, Split split) {
  if (split == Split::validation) return nullptr;
  const bool train = split == Split::train;
  const DatasetPtr images = open_images(config, train);
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
                                  traits.reads_files = row.open != nullptr;
                                  traits.normalizes = !row.mean.empty();
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
