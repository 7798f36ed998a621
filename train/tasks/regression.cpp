#include "train/tasks/regression.h"

#include "autograd/functions.h"
#include "ops/dense/copy.h"
#include "train/metrics/named_metrics.h"

namespace frugal::train {

void Regression::judge(const Judged& judged, ForwardPass& pass) const {
  pass.counts = {judged.target.numel(), 0};
}

Variable Regression::loss_of(Judged judged, const LossOptions&) const {
  Tensor target;
  {
    const CategoryScope input(Category::input);
    target = ops::cast(judged.target, judged.output.value().dtype());
  }
  return mse_loss(judged.output, Variable::constant(target));
}

int64_t Regression::counted(const Tensor& target, FloatTargets) const { return target.numel(); }

Counts Regression::count(const ForwardPass& pass) const { return pass.counts; }

std::unique_ptr<Metric> Regression::metric() const { return make_metric(spec()); }

}  // namespace frugal::train
