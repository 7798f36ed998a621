#include "train/tasks/language_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "core/integers.h"

namespace frugal::train {
namespace {

class Perplexity final : public Metric {
 public:
  bool reads_outputs() const override { return false; }
  void add(const Tensor&, const Batch&) override {}
  double value(double loss) const override { return std::exp(loss); }
};

// Logits of more than kLogitBytes are made in parts. Each part reads the whole weight, so it has at
// least kLeastRows rows.
constexpr int64_t kLogitBytes = int64_t{64} << 20, kLeastRows = 512;

// The number of rows of a head to make at once: all of them, or parts of equal size.
int64_t rows_at_once(const HeadedModule::Head& head, int64_t rows) {
  const auto row_bytes = head.weight.size(0) * static_cast<int64_t>(size_of(head.x.dtype()));
  const int64_t most = std::max(kLeastRows, kLogitBytes / row_bytes);
  return ceil_div(rows, std::max<int64_t>(ceil_div(rows, most), 1));
}

}  // namespace

ForwardPass LanguageModel::loss(Module& model, Batch& batch, Context& context,
                                const LossOptions& options) const {
  auto* const headed = dynamic_cast<HeadedModule*>(&model);
  if (headed == nullptr || options.keep_output)
    return Classification::loss(model, batch, context, options);
  context.extras = std::move(batch.extras);
  HeadedModule::Head head = headed->before_output(
      batch.held ? Variable::constant(std::move(batch.input)) : Variable(std::move(batch.input)),
      context);
  context.extras.clear();
  const int64_t rows = batch.target.numel(), part = rows_at_once(head, rows);
  if (part == rows) return pass_of({head.output(), batch.target, batch.floats}, options);
  CrossEntropyOptions how;
  how.label_smoothing = options.label_smoothing;
  LinearCrossEntropy judged =
      linear_cross_entropy(head.x, head.weight, head.bias, batch.target, how, part);
  ForwardPass pass;
  pass.loss = std::move(judged.loss);
  pass.target = batch.target;
  pass.answers = std::move(judged.top);
  return pass;
}

std::unique_ptr<Metric> LanguageModel::metric() const {
  if (spec().metric != "perplexity") return Classification::metric();
  return std::make_unique<Perplexity>();
}

}  // namespace frugal::train
