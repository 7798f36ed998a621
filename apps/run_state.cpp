#include "apps/run_state.h"

namespace frugal::apps {
namespace {

Json to_json(const Totals& totals) {
  return {{"loss", totals.loss}, {"correct", totals.correct}, {"samples", totals.samples}};
}

Totals totals_from(const Json& json) {
  Totals totals;
  json.at("loss").get_to(totals.loss);
  json.at("correct").get_to(totals.correct);
  json.at("samples").get_to(totals.samples);
  return totals;
}

Json optional_json(const std::optional<EpochResult>& result) {
  return result ? to_json(*result) : Json(nullptr);
}

std::optional<EpochResult> result_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  EpochResult result;
  json.at("epoch").get_to(result.epoch);
  json.at("step").get_to(result.step);
  json.at("train_loss").get_to(result.train_loss);
  json.at("train_accuracy").get_to(result.train_accuracy);
  json.at("test_loss").get_to(result.test.loss);
  json.at("test_accuracy").get_to(result.test.accuracy);
  json.at("test_samples").get_to(result.test.samples);
  if (json.contains("test_metric")) result.test.metric = json.at("test_metric").get<double>();
  if (const auto found = json.find("validation"); found != json.end()) {
    result.validation = {found->at("loss").get<double>(), found->at("accuracy").get<double>(),
                         found->at("samples").get<int64_t>()};
    if (found->contains("metric")) result.validation->metric = found->at("metric").get<double>();
  }
  return result;
}

Json widths_json(const std::vector<compress::AdaptivePolicy::State>& widths) {
  Json all = Json::array();
  for (const auto& each : widths)
    all.push_back({{"seq", each.seq},
                   {"bits", each.bits},
                   {"sensitivity", each.sensitivity ? Json(*each.sensitivity) : Json(nullptr)},
                   {"measured", each.measured}});
  return all;
}

std::vector<compress::AdaptivePolicy::State> widths_from(const Json& json) {
  std::vector<compress::AdaptivePolicy::State> widths;
  for (const Json& entry : json) {
    auto& each = widths.emplace_back();
    entry.at("seq").get_to(each.seq);
    entry.at("bits").get_to(each.bits);
    if (const Json& c = entry.at("sensitivity"); !c.is_null()) each.sensitivity = c.get<double>();
    entry.at("measured").get_to(each.measured);
  }
  return widths;
}

}  // namespace

void Totals::add(const BatchResult& batch) {
  loss += batch.loss * static_cast<double>(batch.counted);
  correct += batch.correct;
  samples += batch.counted;
}

Json to_json(const Evaluation& evaluation) {
  Json json = {{"loss", evaluation.loss},
               {"accuracy", evaluation.accuracy},
               {"samples", evaluation.samples}};
  if (evaluation.metric) json["metric"] = *evaluation.metric;
  return json;
}

Json to_json(const EpochResult& result) {
  Json json = {{"epoch", result.epoch},
               {"step", result.step},
               {"train_loss", result.train_loss},
               {"train_accuracy", result.train_accuracy},
               {"test_loss", result.test.loss},
               {"test_accuracy", result.test.accuracy},
               {"test_samples", result.test.samples}};
  if (result.test.metric) json["test_metric"] = *result.test.metric;
  if (result.validation) json["validation"] = to_json(*result.validation);
  return json;
}

Json to_json(const RunState& s) {
  return {{"step", s.step},
          {"batches", s.batches},
          {"loader", {{"epoch", s.loader.epoch}, {"next_batch", s.loader.next_batch}}},
          {"rng", {{"seed", s.rng.seed}, {"offset", s.rng.offset}}},
          {"interval", to_json(s.interval)},
          {"epoch", to_json(s.epoch)},
          {"last", optional_json(s.last)},
          {"best", optional_json(s.best)},
          {"memory",
           {{"activation", s.memory.activation},
            {"packed", s.memory.packed},
            {"peak", s.memory.peak},
            {"at_peak", s.memory.at_peak}}},
          {"widths", widths_json(s.widths)},
          {"learned", s.learned},
          {"tracking", s.tracking},
          {"metrics_bytes", s.metrics_bytes},
          {"finished", s.finished}};
}

RunState run_state_from(const Json& json) {
  RunState s;
  json.at("step").get_to(s.step);
  json.at("batches").get_to(s.batches);
  json.at("loader").at("epoch").get_to(s.loader.epoch);
  json.at("loader").at("next_batch").get_to(s.loader.next_batch);
  json.at("rng").at("seed").get_to(s.rng.seed);
  json.at("rng").at("offset").get_to(s.rng.offset);
  s.interval = totals_from(json.at("interval"));
  s.epoch = totals_from(json.at("epoch"));
  s.last = result_from(json.at("last"));
  s.best = result_from(json.at("best"));
  const Json& memory = json.at("memory");
  memory.at("activation").get_to(s.memory.activation);
  memory.at("packed").get_to(s.memory.packed);
  memory.at("peak").get_to(s.memory.peak);
  memory.at("at_peak").get_to(s.memory.at_peak);
  s.widths = widths_from(json.at("widths"));
  json.at("learned").get_to(s.learned);
  json.at("tracking").get_to(s.tracking);
  json.at("metrics_bytes").get_to(s.metrics_bytes);
  json.at("finished").get_to(s.finished);
  return s;
}

}  // namespace frugal::apps
