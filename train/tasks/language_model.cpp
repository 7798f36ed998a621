#include "train/tasks/language_model.h"

#include <algorithm>
#include <bit>

#include "autograd/functions.h"
#include "compress/quantize/group_layout.h"
#include "core/integers.h"

namespace frugal::train {

int64_t rows_in(int64_t bytes, const HeadedModule::Head& head) {
  constexpr int64_t kLeastRows = 512;
  const auto row_bytes = head.weight.size(0) * static_cast<int64_t>(size_of(head.x.dtype()));
  return std::max(kLeastRows, bytes / row_bytes);
}

HeadedModule::Head head_of(HeadedModule& model, Batch& batch, Context& context) {
  context.extras = std::move(batch.extras);
  HeadedModule::Head head = model.before_output(
      batch.held ? Variable::constant(std::move(batch.input)) : Variable(std::move(batch.input)),
      context);
  context.extras.clear();
  return head;
}

int64_t part_bytes_on_gpu(int64_t memory) {
  constexpr int64_t kShare = 128, kMost = int64_t{512} << 20;
  const int64_t bytes = std::clamp(memory / kShare, kLogitBytes, kMost);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
}

ForwardPass LanguageModel::loss(Module& model, Batch& batch, Context& context,
                                const LossOptions& options) const {
  auto* const headed = model.as_headed();
  if (headed == nullptr || options.keep_output)
    return Classification::loss(model, batch, context, options);
  const HeadedModule::Head head = head_of(*headed, batch, context);
  const int64_t rows = batch.target.numel();
  // A whole batch has so many, if its samples have the greatest length.
  const int64_t most = context.training && spec().whole_batch > 0
                           ? std::max(rows, spec().whole_batch * spec().sample[0])
                           : rows;
  if (most <= rows_in(kLogitBytes, head))
    return pass_of({head.output(), batch.target, batch.floats}, options);
  const int64_t part = ceil_div(rows, ceil_div(rows, rows_in(part_bytes_, head)));  // equal parts
  CrossEntropyOptions how;
  how.label_smoothing = options.label_smoothing;
  LinearCrossEntropy judged =
      linear_cross_entropy(head.x, head.weight, head.bias, batch.target, how, part, head.soft_cap);
  ForwardPass pass;
  pass.loss = std::move(judged.loss);
  pass.target = batch.target;
  pass.answers = std::move(judged.top);
  return pass;
}

}  // namespace frugal::train
