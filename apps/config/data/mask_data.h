// data.name image_masks: pictures with a class for each pixel.
#pragma once
#include "apps/config/data/make_data.h"
#include "apps/config/run_encoding.h"
#include "data/image/mask_files.h"

namespace frugal::apps {

struct MaskParts {
  std::vector<data::MaskFile> train, validation, test;
  data::MaskValues values;
  std::optional<KeptParts> split;  // none: the folder has parts of its own
  const std::vector<data::MaskFile>& of(Split part) const;
};
// The parts of data.dir. Masks are read only if neither data.mask_values nor data.classes
// says which classes there are. Errors: those of list_masks() and find_mask_values(); no pictures
// to train on.
MaskParts read_masks(const Config& config);

// Null: there is no such split.
DatasetPtr open_masks(const Config& config, const MaskParts& parts, Split split);

}  // namespace frugal::apps
