#include "train/tasks/regression.h"

#include "autograd/functions.h"
#include "ops/dense/copy.h"
#include "train/metrics.h"

namespace frugal::train {
namespace {

class R2 final : public Metric {
 public:
  void add(const Tensor& output, const Batch& batch) override { fit_.add(output, batch.target); }
  double value(double) const override { return fit_.r2(); }

 private:
  FitOfValues fit_;
};

}  // namespace

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

std::unique_ptr<Metric> Regression::metric() const { return std::make_unique<R2>(); }

}  // namespace frugal::train
