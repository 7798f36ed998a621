#include "train/metrics/named_metrics.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/words/quoted.h"
#include "train/metrics/metric_names.h"
#include "train/metrics/metrics.h"

namespace frugal::train {
namespace {

constexpr int64_t kMostShown = 64;

// A metric whose direction is that of the table.
class Named : public Metric {
 public:
  explicit Named(const MetricName& name) : name_(name) {}
  bool higher_is_better() const override { return name_.higher_is_better; }

 protected:
  bool is_named(std::string_view name) const { return name_.name == name; }

 private:
  const MetricName& name_;  // is an entry of known_metrics()
};

class OfConfusion : public Named {
 public:
  OfConfusion(const MetricName& name, int64_t classes)
      : Named(name), confusion_(std::max<int64_t>(classes, 1)) {}
  void add(const Tensor& output, const Batch& batch) override {
    confusion_.add(output, batch.target);
  }
  bool adds_up() const override { return true; }
  void add_ranks(distributed::Communicator& ranks) override { confusion_.add_ranks(ranks); }
  double value(double) const override {
    return is_named("f1")         ? confusion_.f1()
           : is_named("macro_f1") ? confusion_.macro_f1()
           : is_named("micro_f1") ? confusion_.accuracy()
                                  : confusion_.matthews();
  }

 protected:
  const Confusion& confusion() const { return confusion_; }

 private:
  Confusion confusion_;
};

class OverlapOfPixels final : public OfConfusion {
 public:
  using OfConfusion::OfConfusion;
  double value(double) const override {
    return is_named("dice") ? confusion().mean_dice() : confusion().mean_iou();
  }
  std::vector<std::pair<std::string, double>> details() const override {
    std::vector<std::pair<std::string, double>> found = {{"dice", confusion().mean_dice()}};
    if (is_named("dice")) found = {{"miou", confusion().mean_iou()}};
    if (confusion().classes() > kMostShown) return found;
    for (int64_t c = 0; c < confusion().classes(); ++c) {
      if (std::isnan(confusion().iou(c))) continue;
      found.emplace_back(fmt::format("dice.{}", c), confusion().f1(c));
      found.emplace_back(fmt::format("iou.{}", c), confusion().iou(c));
    }
    return found;
  }
};

class MicroF1 final : public Named {
 public:
  using Named::Named;
  void add(const Tensor& output, const Batch& batch) override { counts_.add(output, batch.target); }
  bool adds_up() const override { return true; }
  void add_ranks(distributed::Communicator& ranks) override { counts_.add_ranks(ranks); }
  double value(double) const override { return counts_.micro_f1(); }

 private:
  MultiLabelCounts counts_;
};

class OfValues final : public Named {
 public:
  using Named::Named;
  void add(const Tensor& output, const Batch& batch) override { fit_.add(output, batch.target); }
  double value(double) const override {
    return is_named("r2") ? fit_.r2() : is_named("mse") ? fit_.mse() : fit_.mae();
  }

 private:
  FitOfValues fit_;
};

class Perplexity final : public Named {
 public:
  using Named::Named;
  bool reads_outputs() const override { return false; }
  void add(const Tensor&, const Batch&) override {}
  double value(double loss) const override { return std::exp(loss); }
};

}  // namespace

std::unique_ptr<Metric> make_metric(const BatchSpec& spec) {
  if (spec.metric.empty()) return nullptr;
  const MetricName* const name = find_metric(spec.metric);
  FRUGAL_CHECK(
      name != nullptr && name->measures(spec.target) && !spec.has_boxes() && !spec.has_views(),
      "[metric] expected one of the metrics {} for targets of the kind {}, got {}",
      names_of_metrics(spec.target), target_name(spec.target), in_quotes(spec.metric));
  if (spec.has_values()) return std::make_unique<OfValues>(*name);
  if (spec.has_several_labels()) return std::make_unique<MicroF1>(*name);
  if (name->name == "perplexity") return std::make_unique<Perplexity>(*name);
  if (name->name == "miou" || name->name == "dice")
    return std::make_unique<OverlapOfPixels>(*name, spec.classes);
  return std::make_unique<OfConfusion>(*name, spec.classes);
}

}  // namespace frugal::train
