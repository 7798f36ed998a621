#include "train/tasks/segmentation.h"

#include <algorithm>

#include "autograd/functions.h"
#include "autograd/segmentation_functions.h"
#include "core/error.h"
#include "models/resized_module.h"
#include "ops/dense/copy.h"

namespace frugal::train {
namespace {

// Logits of more than kLogitBytes are made in parts of at most kPartBytes, or of one image.
constexpr int64_t kPartBytes = int64_t{16} << 20;

// How many images of logits to make at once, where a whole batch has so many images or that of
// `small`; 0: all of them, which are saved.
int64_t images_at_once(const ResizedModule::Small& small, int64_t whole_batch) {
  const int64_t one = small.height * small.width * small.logits.size(3) *
                      static_cast<int64_t>(size_of(small.logits.dtype()));
  const int64_t images = small.logits.size(0);
  if (std::max(images, whole_batch) * one <= kLogitBytes) return 0;
  return std::clamp<int64_t>(kPartBytes / one, 1, images);
}

}  // namespace

Segmentation::Segmentation(BatchSpec spec, SegmentationOptions options)
    : Classification(std::move(spec), {options.class_weights}), options_(std::move(options)) {
  FRUGAL_CHECK(options_.focal_gamma >= 0, "[segmentation] expected a gamma of at least 0, got {}",
               options_.focal_gamma);
}

ForwardPass Segmentation::loss(Module& model, Batch& batch, Context& context,
                               const LossOptions& options) const {
  const bool training = context.training;
  auto* const resized = model.as_resized();
  if (resized == nullptr) {
    Variable output = run(model, batch, context);
    if (!training) return pass_of({std::move(output), batch.target}, options);
    ForwardPass pass = trained_pass(std::move(output), batch.target, options);
    pass.weighs_classes = divides_by_weights();
    return pass;
  }
  context.extras = std::move(batch.extras);
  ResizedModule::Small small = resized->before_resize(
      batch.held ? Variable::constant(std::move(batch.input)) : Variable(std::move(batch.input)),
      context);
  context.extras.clear();
  ForwardPass pass = pass_of_small(small, batch.target, training, options);
  pass.weighs_classes = training && divides_by_weights();
  if (!small.auxiliary.defined()) return pass;
  small.logits = std::move(small.auxiliary);
  const Variable second =
      scale(auxiliary_loss(small, batch.target, options), options_.auxiliary_weight);
  if (pass.terms.empty()) pass.terms.emplace_back("out", pass.loss.value());
  pass.terms.emplace_back("aux", second.value());
  pass.loss = add(pass.loss, second);
  return pass;
}

ForwardPass Segmentation::pass_of_small(const ResizedModule::Small& small, const Tensor& target,
                                        bool training, const LossOptions& options) const {
  const int64_t part = images_at_once(small, training ? spec().whole_batch : 0);
  const bool whole = part == 0 || options.keep_output ||
                     (training && options_.loss != SegmentationOptions::Loss::cross_entropy);
  if (whole && !training) return pass_of({small.output(), target}, options);
  if (whole) return trained_pass(small.output(), target, options);
  ResizedCrossEntropy made = loss_in_parts(small, target, part, training, options);
  ForwardPass pass;
  pass.loss = std::move(made.loss);
  pass.target = target;
  pass.answers = std::move(made.top);
  return pass;
}

ResizedCrossEntropy Segmentation::loss_in_parts(const ResizedModule::Small& small,
                                                const Tensor& target, int64_t part, bool training,
                                                const LossOptions& options) const {
  if (!training) return resized_cross_entropy(small.logits, target, {}, part, {});
  CrossEntropyOptions how;
  how.label_smoothing = options.label_smoothing;
  return resized_cross_entropy(small.logits, target, how, part,
                               class_weights(small.logits.value()));
}

Variable Segmentation::auxiliary_loss(const ResizedModule::Small& small, const Tensor& target,
                                      const LossOptions& options) const {
  const int64_t part = images_at_once(small, spec().whole_batch);
  if (part > 0 && options_.loss == SegmentationOptions::Loss::cross_entropy)
    return loss_in_parts(small, target, part, true, options).loss;
  NamedTensors terms;
  return trained_loss(small.output(), target, options, terms);
}

ForwardPass Segmentation::trained_pass(Variable output, const Tensor& target,
                                       const LossOptions& options) const {
  ForwardPass pass;
  if (options.keep_output) pass.output = output;
  if (output.device().type != DeviceType::meta) judge({output, target}, pass);
  pass.loss = trained_loss(std::move(output), target, options, pass.terms);
  return pass;
}

Variable Segmentation::trained_loss(Variable output, const Tensor& target,
                                    const LossOptions& options, NamedTensors& terms) const {
  using Loss = SegmentationOptions::Loss;
  const Tensor weights = class_weights(output.value());
  const auto entropy = [&](Variable logits) {
    CrossEntropyOptions how;
    how.label_smoothing = options.label_smoothing;
    if (!weights.defined()) return cross_entropy(std::move(logits), target, how);
    return weighted_cross_entropy(std::move(logits), target, weights, how);
  };
  switch (options_.loss) {
    case Loss::cross_entropy:
      return entropy(std::move(output));
    case Loss::focal:
      return focal_cross_entropy(output, target, {.gamma = options_.focal_gamma}, weights);
    case Loss::dice:
      return dice_loss(output, target);
    case Loss::cross_entropy_dice: {
      const Variable dice = dice_loss(output, target), first = entropy(output);
      terms = {{"cross_entropy", first.value()}, {"dice", dice.value()}};
      return add(first, dice);
    }
  }
  return {};
}

bool Segmentation::divides_by_weights() const {
  using Loss = SegmentationOptions::Loss;
  return (options_.loss == Loss::cross_entropy || options_.loss == Loss::cross_entropy_dice) &&
         Classification::divides_by_weights();
}

}  // namespace frugal::train
