// A study of error-bounded codecs on activations of a network in training, with the bounds of
// AC-GC: the bytes of each codec, its speed, and whether the error of the gradient keeps the bound.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/report.h"
#include "apps/config/resolve.h"
#include "compress/policies/acgc_policy.h"
#include "lab/commands.h"
#include "ops/dense/copy.h"

namespace frugal::lab {

using namespace apps;

namespace {

using Clock = std::chrono::steady_clock;
using compress::AcgcOptions;
using compress::AcgcPolicy;
using compress::acgc::Count;
using compress::acgc::Rule;

// Records the tensors that another policy packs.
class Capture final : public SavePolicy {
 public:
  explicit Capture(SavePolicy& policy) : policy_(policy) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    if (policy_.decide(info, value).what == Decision::pack) tensors[info.seq] = ops::clone(value);
    return {};
  }
  std::map<uint64_t, Tensor> tensors;

 private:
  SavePolicy& policy_;
};

struct Row {
  AcgcOptions options;
  // Means over the elements of all tensors; the times are in ns.
  double bits = 0, pack_seconds = 0, unpack_seconds = 0;
  double parameter = 0, whole = 0;  // largest |error|^2 / |gradient|^2
  double total = 0;                 // its mean over the steps, in the whole gradient
};

double seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void measure_codec(Row& row, const AcgcPolicy& policy, const std::map<uint64_t, Tensor>& tensors) {
  compress::ErrorBoundedOptions of;
  of.rounding = row.options.rounding;
  of.min_bits = row.options.min_bits;
  of.clip = true;
  of.expected = row.options.count == Count::expected;
  const auto codec = compress::make_error_bounded(row.options.codec, of);
  double bytes = 0, elements = 0;
  for (const auto& [seq, tensor] : tensors) {
    std::vector<double> bounds = policy.bounds2(seq);
    if (bounds.empty()) continue;
    for (double& each : bounds) each = std::sqrt(each);
    SaveInfo info;
    info.seq = seq;
    auto begin = Clock::now();
    const auto packed = codec->pack(tensor, compress::ErrorBound(bounds), info);
    row.pack_seconds += seconds(begin);
    begin = Clock::now();
    packed->unpack();
    row.unpack_seconds += seconds(begin);
    bytes += static_cast<double>(
        dynamic_cast<const compress::bounded::Payload&>(*packed).payload().numel());
    elements += static_cast<double>(tensor.numel());
  }
  row.bits = 8 * bytes / elements;
  row.pack_seconds *= 1e9 / elements;
  row.unpack_seconds *= 1e9 / elements;
}

void check_bound(Row& row, const std::vector<float>& exact, const std::vector<float>& packed,
                 Module& model) {
  double all_errors = 0, all = 0;
  size_t at = 0;
  for (const auto& p : model.parameters()) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < p.parameter->value().numel(); ++i, ++at) {
      const double g = static_cast<double>(exact[at]), d = static_cast<double>(packed[at]) - g;
      error += d * d;
      norm += g * g;
    }
    if (norm > 0) row.parameter = std::max(row.parameter, error / norm);
    all_errors += error;
    all += norm;
  }
  row.whole = std::max(row.whole, all_errors / all);
  row.total += all_errors / all;
}

}  // namespace

void study_bounds(const LabArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets, "compression");
  config.compression.offload.clear();
  resolve(config);
  const CompressionConfig& c = config.compression;
  const int64_t steps = arguments.repeats > 0 ? arguments.repeats : 5;
  GradientBench bench(config);
  bench.train(arguments.train_steps);

  std::vector<Row> rows;
  auto add = [&](const std::string& codec, Rule rule, Count count) {
    AcgcOptions options;
    options.e = c.acgc.e;
    options.rule = rule;
    options.count = count;
    options.codec = codec;
    if (count == Count::worst) options.rounding = compress::Rounding::nearest;
    options.keep.recipes = c.recipes && rule == Rule::derived;
    options.keep.chain = c.chain;
    options.keep.min_elements = c.min_elements;
    rows.push_back({options});
  };
  for (const std::string& name : compress::error_bounded_names())
    add(name, Rule::derived, Count::worst);
  add("fixed", Rule::published, Count::worst);
  add("fixed_z", Rule::published, Count::worst);
  for (const std::string& name : compress::error_bounded_names())
    if (name != "zfp") add(name, Rule::derived, Count::expected);

  std::vector<std::unique_ptr<AcgcPolicy>> policies;
  for (const Row& row : rows) policies.push_back(std::make_unique<AcgcPolicy>(row.options));
  for (int64_t step = 0; step <= steps; ++step) {
    const RngKey key = bench.rng();
    const Batch batch = bench.next();
    const auto number = static_cast<uint64_t>(step);
    const std::vector<float> exact = bench.gradient(batch, nullptr, number, key);
    for (size_t i = 0; i < rows.size(); ++i) {
      // The policy observes the first step.
      const std::vector<float> packed = bench.gradient(batch, policies[i].get(), number, key);
      if (step > 0) check_bound(rows[i], exact, packed, bench.model());
    }
    std::fprintf(stderr, "step %lld of %lld: done\n", static_cast<long long>(step),
                 static_cast<long long>(steps));
  }
  const RngKey key = bench.rng();
  const Batch batch = bench.next();
  for (size_t i = 0; i < rows.size(); ++i) {
    Capture capture(*policies[i]);
    bench.gradient(batch, &capture, static_cast<uint64_t>(steps) + 1, key);
    measure_codec(rows[i], *policies[i], capture.tensors);
    if (rows[i].options.rule == Rule::published) rows[i].bits = policies[i]->average_bits();
  }

  Json results = Json::array();
  std::vector<std::vector<std::string>> text{{"codec", "bounds", "bits", "pack ns", "unpack ns",
                                              "error of a parameter", "of all (allowed 1)",
                                              "mean of all"}};
  const double e2 = c.acgc.e * c.acgc.e;
  for (const Row& row : rows) {
    const bool published = row.options.rule == Rule::published;
    const char* bounds = published                           ? "published"
                         : row.options.count == Count::worst ? "worst"
                                                             : "expected";
    results.push_back({{"codec", row.options.codec},
                       {"bounds", bounds},
                       {"bits", row.bits},
                       {"pack_ns", row.pack_seconds},
                       {"unpack_ns", row.unpack_seconds},
                       {"largest_parameter_error", row.parameter / e2},
                       {"largest_error", row.whole / e2},
                       {"mean_error", row.total / static_cast<double>(steps) / e2}});
    text.push_back({row.options.codec, bounds, fmt::format("{:.2f}", row.bits),
                    published ? "" : fmt::format("{:.2f}", row.pack_seconds),
                    published ? "" : fmt::format("{:.2f}", row.unpack_seconds),
                    fmt::format("{:.2g}", row.parameter / e2),
                    fmt::format("{:.2g}", row.whole / e2),
                    fmt::format("{:.2g}", row.total / static_cast<double>(steps) / e2)});
  }
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"batch_size", batch.input.size(0)},
                           {"train_steps", arguments.train_steps},
                           {"steps", steps},
                           {"growth", c.acgc.e},
                           {"recipes", c.recipes},
                           {"rows", results}};
    print_json(document);
    return;
  }
  std::printf(
      "%s, batch %lld, after %lld steps, e = %g; times per element, largest of %lld steps\n%s",
      config.model.name.c_str(), static_cast<long long>(batch.input.size(0)),
      static_cast<long long>(arguments.train_steps), c.acgc.e, static_cast<long long>(steps),
      table(text).c_str());
}

}  // namespace frugal::lab
