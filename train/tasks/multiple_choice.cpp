#include "train/tasks/multiple_choice.h"

#include <algorithm>

#include "autograd/functions.h"
#include "train/tasks/language_model.h"

namespace frugal::train {
namespace {

// Keeps the output of each sample, by its index.
class ChoiceMetric final : public Metric {
 public:
  ChoiceMetric(const std::vector<data::ChoiceQuestion>& questions,
               const std::vector<int64_t>& bytes)
      : questions_(questions), bytes_(bytes), outputs_(bytes.size()) {}

  void add(const Tensor& output, const Batch& batch) override {
    const CategoryScope scope(Category::workspace);
    const Tensor here = to_device(output, kCpu);
    for (int64_t n = 0; n < here.size(0); ++n)
      outputs_[static_cast<size_t>(batch.samples.data<int64_t>()[n])] = here.data<float>()[n];
  }
  double value(double) const override { return accuracy(false); }
  std::vector<std::pair<std::string, double>> details() const override {
    return {{"accuracy_by_bytes", accuracy(true)}};
  }

 private:
  double accuracy(bool by_bytes) const {
    int64_t right = 0;
    for (const data::ChoiceQuestion& question : questions_) {
      int64_t best = 0;
      const auto score = [&](int64_t choice) {
        const auto at = static_cast<size_t>(question.first + choice);
        return outputs_[at] / (by_bytes ? static_cast<double>(bytes_[at]) : 1.0);
      };
      for (int64_t i = 1; i < question.count; ++i)
        if (score(i) > score(best)) best = i;
      right += best == question.answer ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(questions_.size());
  }

  const std::vector<data::ChoiceQuestion>& questions_;
  const std::vector<int64_t>& bytes_;
  std::vector<double> outputs_;
};

}  // namespace

ForwardPass MultipleChoice::loss(Module& model, Batch& batch, Context& context,
                                 const LossOptions& options) const {
  auto* const headed = model.as_headed();
  FRUGAL_ASSERT(headed != nullptr);
  const Tensor targets = to_device(batch.target, kCpu);
  const HeadedModule::Head head = head_of(*headed, batch, context);
  const int64_t rows = rows_in(part_bytes_, head), length = targets.size(1);
  CrossEntropyOptions how;
  how.sum = true;
  Variables sums;
  for (int64_t n = 0; n < targets.size(0); ++n) {
    const int64_t* const row = targets.data<int64_t>() + n * length;
    const auto counts = [](int64_t target) { return target != kIgnored; };
    const int64_t begin = std::find_if(row, row + length, counts) - row;
    int64_t end = length;
    while (end > begin && row[end - 1] == kIgnored) --end;
    const Variable x = slice(slice(head.x, 0, n, n + 1), 1, begin, end);
    const Tensor target = batch.target.slice(0, n, n + 1).slice(1, begin, end);
    const Variable sum =
        linear_cross_entropy(x, head.weight, head.bias, target, how, rows, head.soft_cap).loss;
    sums.push_back(reshape(sum, {1}));
  }
  const Variable losses = concat(sums, 0);
  ForwardPass pass;
  pass.loss = mean(losses);
  if (options.keep_output) pass.output = neg(losses);
  pass.counts.counted = targets.size(0);
  return pass;
}

std::unique_ptr<Metric> MultipleChoice::metric() const {
  return std::make_unique<ChoiceMetric>(questions_, bytes_);
}

}  // namespace frugal::train
