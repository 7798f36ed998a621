#include "data/image/changes.h"

#include "data/image/augment.h"
#include "data/image/transforms.h"

namespace frugal::data {
namespace {

ColorJitterOptions jitter_of(const std::vector<double>& strengths, double p) {
  return {strengths[0], strengths[1], strengths[2], strengths[3], p};
}

}  // namespace

std::vector<by_name::Option<ChangeOptions>> ChangeOptions::list() {
  namespace range = by_name::range;
  using S = ChangeOptions;
  return {
      {{"crop_padding", range::integer(0, 1024),
        "Augmentation: random crop of the image padded by so many pixels, fewer than its shorter "
        "side; 0: off."},
       &S::crop_padding},
      {{"flip", range::flag(), "Augmentation: mirror half of the images."}, &S::flip},
      {{"cutout", range::integer(0, 4096), "Augmentation: blank a square of this side; 0: off."},
       &S::cutout},
      {{"auto_augment", range::choice("none, rand, trivial"),
        "Augmentation: two random operations (RandAugment, magnitude 9 of 30), or one of any "
        "strength (TrivialAugment)."},
       &S::auto_augment},
      {{"color_jitter", range::list(range::number(0, 16), 0, 4),
        "Augmentation: strengths of random brightness, contrast, saturation and hue, such as "
        "[0.4, 0.4, 0.4, 0.1]; []: off."},
       &S::color_jitter},
      {{"grayscale", range::number(0, 1),
        "Augmentation: probability that a sample loses its colours."},
       &S::grayscale},
      {{"blur", range::number(0, 1),
        "Augmentation: probability of a Gaussian blur of 0.1 to 2 pixels."},
       &S::blur},
      {{"erasing", range::number(0, 1),
        "Augmentation: probability that a random rectangle is blanked."},
       &S::erasing}};
}

DatasetPtr with_changes(DatasetPtr dataset, const ChangeOptions& options) {
  using Augment = ChangeOptions::Augment;
  if (options.crop_padding > 0) dataset = std::make_shared<PadCrop>(dataset, options.crop_padding);
  if (options.flip) dataset = std::make_shared<HorizontalFlip>(dataset);
  if (options.auto_augment == Augment::rand) dataset = std::make_shared<RandAugment>(dataset);
  if (options.auto_augment == Augment::trivial) dataset = std::make_shared<TrivialAugment>(dataset);
  if (!options.color_jitter.empty())
    dataset = std::make_shared<ColorJitter>(dataset, jitter_of(options.color_jitter, 1));
  if (options.grayscale > 0)
    dataset = std::make_shared<RandomGrayscale>(dataset, options.grayscale);
  if (options.blur > 0) dataset = std::make_shared<GaussianBlur>(dataset, options.blur);
  return dataset;
}

DatasetPtr with_blanks(DatasetPtr dataset, const ChangeOptions& options) {
  if (options.cutout > 0) dataset = std::make_shared<Cutout>(dataset, options.cutout);
  if (options.erasing > 0) dataset = std::make_shared<RandomErasing>(dataset, options.erasing);
  return dataset;
}

std::vector<by_name::Option<TwoViewOptions>> TwoViewOptions::list() {
  namespace range = by_name::range;
  using S = TwoViewOptions;
  return {{{"area", range::number(0, 1),
            "A random part of at least this share of the area is resized to the sample; 0: the "
            "whole picture."},
           &S::area},
          {{"flip", range::flag(), "Mirror half of the views."}, &S::flip},
          {{"color_jitter", range::list(range::number(0, 16), 0, 4),
            "Strengths of random brightness, contrast, saturation and hue; []: off."},
           &S::color_jitter},
          {{"jitter_share", range::number(0, 1), "Probability of the jitter."}, &S::jitter_share},
          {{"grayscale", range::number(0, 1), "Probability that a view loses its colours."},
           &S::grayscale},
          {{"blur", range::list(range::number(0, 1), 2, 2),
            "Probabilities of a Gaussian blur of 0.1 to 2 pixels of the first and the second "
            "view."},
           &S::blur},
          {{"solarize", range::list(range::number(0, 1), 2, 2),
            "Probabilities that values from 0.5 on are turned over, of the first and the second "
            "view."},
           &S::solarize}};
}

DatasetPtr with_view(DatasetPtr dataset, const TwoViewOptions& options, size_t view, bool is_cut) {
  if (!is_cut && options.area > 0)
    dataset = std::make_shared<RandomResizedCrop>(dataset, options.area);
  if (options.flip) dataset = std::make_shared<HorizontalFlip>(dataset);
  if (!options.color_jitter.empty() && options.jitter_share > 0)
    dataset = std::make_shared<ColorJitter>(dataset,
                                            jitter_of(options.color_jitter, options.jitter_share));
  if (options.grayscale > 0)
    dataset = std::make_shared<RandomGrayscale>(dataset, options.grayscale);
  if (options.blur[view] > 0) dataset = std::make_shared<GaussianBlur>(dataset, options.blur[view]);
  if (options.solarize[view] > 0)
    dataset = std::make_shared<Solarize>(dataset, options.solarize[view]);
  return dataset;
}

}  // namespace frugal::data
