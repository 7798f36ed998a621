#include "apps/config/data/mask_data.h"

#include <algorithm>

#include "apps/config/data/data_parts.h"
#include "core/words/quoted.h"

namespace frugal::apps {

MaskParts read_masks(const Config& config) {
  const DataConfig& c = config.data;
  const std::string& folder = *c.dir;
  MaskParts parts;
  parts.train = data::list_masks(folder, data::MaskPart::train);
  if (!parts.train.empty()) {
    parts.validation = data::list_masks(folder, data::MaskPart::validation);
    parts.test = data::list_masks(folder, data::MaskPart::test);
    if (parts.test.empty()) std::swap(parts.test, parts.validation);
  } else {
    const std::vector<data::MaskFile> all = data::list_masks(folder);
    const auto name = [&](int64_t i) {
      return name_of_file(config, all[static_cast<size_t>(i)].picture);
    };
    const data::SplitIndices split = split_by(config, std::vector<int64_t>(all.size()), name);
    parts.split = parts_of(split, name);
    const auto take = [&](Split part) {
      std::vector<data::MaskFile> own;
      for (const int64_t index : part_of(split, part))
        own.push_back(all[static_cast<size_t>(index)]);
      return own;
    };
    parts.train = take(Split::train);
    parts.validation = take(Split::validation);
    parts.test = take(Split::test);
  }
  FRUGAL_CHECK(!parts.train.empty() && !parts.test.empty(),
               "[masks] {}: expected pictures to train and to test on, got {} and {}",
               in_quotes(folder), parts.train.size(), parts.test.size());
  const auto& known = c.known;
  if (known != nullptr && known->classes > 0) {
    parts.values = {known->mask_values, known->classes};
  } else if (c.mask_values) {
    parts.values = {*c.mask_values, static_cast<int64_t>(c.mask_values->size())};
    if (c.classes && *c.classes != parts.values.classes)
      throw ConfigError("data.classes",
                        fmt::format("expected {}, as many as data.mask_values, or null; got {}",
                                    parts.values.classes, *c.classes));
    for (const int64_t value : *c.mask_values)
      if (std::count(c.mask_values->begin(), c.mask_values->end(), value) > 1)
        throw ConfigError("data.mask_values",
                          fmt::format("expected each value once, got {} twice", value));
    data::check_mask_values(parts.train, parts.values);
  } else if (c.classes) {
    parts.values.classes = *c.classes;
    if (data::are_marks(parts.train)) {
      parts.values = data::find_mask_values(parts.train);
      if (*c.classes != parts.values.classes)
        throw ConfigError(
            "data.classes",
            fmt::format("expected 2 or null, since masks hold 0 and 255 alone, got {}; "
                        "data.mask_values names the values of other classes",
                        *c.classes));
    }
  } else {
    parts.values = data::find_mask_values(parts.train);
  }
  return parts;
}

const std::vector<data::MaskFile>& MaskParts::of(Split part) const {
  switch (part) {
    case Split::train:
      return train;
    case Split::validation:
      return validation;
    case Split::test:
      break;
  }
  return test;
}

DatasetPtr open_masks(const Config& config, const MaskParts& parts, Split split) {
  const DataConfig& c = config.data;
  std::vector<data::MaskFile> files = parts.of(split);
  if (files.empty()) return nullptr;
  const int64_t limit = split == Split::train ? c.train_samples : c.test_samples;
  if (limit > 0 && limit < static_cast<int64_t>(files.size()))
    files.resize(static_cast<size_t>(limit));
  data::MaskFilesOptions options;
  options.height = options.width = c.image_size;
  options.channels = c.channels;
  options.exif = exif_of(config);
  options.random = split == Split::train;
  if (c.scale) {
    options.least_scale = (*c.scale)[0];
    options.most_scale = (*c.scale)[1];
  }
  return std::make_shared<data::MaskFiles>(std::move(files), parts.values, options);
}

}  // namespace frugal::apps
