// Mixing the samples of a batch, so that targets are shares of classes: Mixup and CutMix.
#pragma once
#include <vector>

#include "data/image/changes.h"

namespace frugal::data {

// The sample before the first one of a part of a batch: its values, without mixing, and its label.
struct SampleBefore {
  std::vector<float> values;
  int64_t label = 0;
};

// Mixes each sample of batch.input [N, ...] f32 with the sample before it, the first one with the
// last, all with one share. If `batch` is only a part of a batch, its first sample is mixed with
// `before`: then the part becomes what it becomes in the whole batch. CutMix takes samples [H, W,
// C]. Writes the shares of the classes to batch.target [N, options.classes] f32; a sample that is
// mixed from one of kIgnored does not count. All draws come from `key`. labels: N of them, below
// options.classes. Ref: Zhang et al. 2018 (mixup); Yun et al. 2019 (CutMix).
void mix_samples(const Batch& batch, const std::vector<int64_t>& labels, const MixOptions& options,
                 RngKey key, const SampleBefore* before = nullptr);

// A draw from Beta(alpha, alpha), from the words of `key`. Errors: alpha that is not positive and
// finite. Ref: Marsaglia and Tsang 2000.
double draw_beta(RngKey key, double alpha);

}  // namespace frugal::data
