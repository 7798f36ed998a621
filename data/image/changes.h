// Random changes of pictures while a network trains, by their options.
#pragma once
#include <vector>

#include "core/option.h"
#include "data/dataset.h"

namespace frugal::data {

// What each sample goes through, in torchvision's order. Values are in [0, 1].
struct ChangeOptions {
  int64_t crop_padding = 0;  // PadCrop
  bool flip = false;         // HorizontalFlip
  enum class Augment : uint8_t { none, rand, trivial } auto_augment = Augment::none;
  std::vector<double> color_jitter = {};  // the four strengths of ColorJitter; empty: none
  double grayscale = 0, blur = 0;         // probabilities
  int64_t cutout = 0;                     // a side
  double erasing = 0;                     // a probability

  bool operator==(const ChangeOptions&) const = default;
  static std::vector<by_name::Option<ChangeOptions>> list();
};

// REQUIRES: color_jitter has none or 4 numbers.
DatasetPtr with_changes(DatasetPtr dataset, const ChangeOptions& options);
// Blanks, for after normalization: the blank is then the mean.
DatasetPtr with_blanks(DatasetPtr dataset, const ChangeOptions& options);

// How two views of a picture are made, for networks that learn from them, in the papers' order.
struct TwoViewOptions {
  double area = 0.2;
  bool flip = true;
  std::vector<double> color_jitter{0.4, 0.4, 0.4, 0.1};
  double jitter_share = 0.8;
  double grayscale = 0.2;
  std::vector<double> blur{0.5, 0.5}, solarize{0, 0};  // one for each view

  bool operator==(const TwoViewOptions&) const = default;
  static std::vector<by_name::Option<TwoViewOptions>> list();
};

// view: 0 or 1. is_cut: a reader of files has cut the part out. REQUIRES: as with_changes().
DatasetPtr with_view(DatasetPtr dataset, const TwoViewOptions& options, size_t view, bool is_cut);

// How the samples of a batch are mixed (mix.h).
// The strengths are the alphas of Beta(alpha, alpha), from which a batch's share is drawn; 0: off.
// With both, each batch draws which of the two it gets.
struct MixOptions {
  double mixup = 0;     // both pictures everywhere, one faded into the other
  double cutmix = 0;    // a rectangle of one picture in the other
  int64_t classes = 0;  // columns of the targets; 0: the dataset's
  bool mixes() const { return mixup > 0 || cutmix > 0; }
};

}  // namespace frugal::data
