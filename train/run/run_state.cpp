#include "train/run/run_state.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "train/compression_state.h"

namespace frugal::train {
namespace {

using Json = nlohmann::ordered_json;  // keys keep their order

constexpr int64_t kLargest = int64_t{1} << 53;  // the largest whole number that is accepted

Json to_json(const Totals& totals) {
  return {{"loss", totals.loss},
          {"weight", totals.weight},
          {"correct", totals.correct},
          {"samples", totals.samples}};
}

std::string shown(const Json& value) { return printable(value.dump(), 80); }

// A whole number within limits: a conversion alone would take -1 for a large one.
int64_t whole(const Json& json, const char* key, int64_t least = 0, int64_t most = kLargest) {
  const Json& value = json.at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{kLargest});
  FRUGAL_CHECK(fits && value.get<int64_t>() >= least && value.get<int64_t>() <= most,
               "expected {} to {} as \"{}\", got {}", least, most, key, shown(value));
  return value.get<int64_t>();
}

uint64_t word(const Json& json, const char* key) {
  const Json& value = json.at(key);
  FRUGAL_CHECK(value.is_number_unsigned(),
               "expected a whole number of at least 0 as \"{}\", got {}", key, shown(value));
  return value.get<uint64_t>();
}

double number(const Json& json, const char* key,
              double least = -std::numeric_limits<double>::infinity()) {
  const Json& value = json.at(key);
  FRUGAL_CHECK(
      value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= least,
      "expected a finite number of at least {} as \"{}\", got {}", least, key, shown(value));
  return value.get<double>();
}

Totals totals_from(const Json& json) {
  Totals totals;
  totals.loss = number(json, "loss");
  totals.samples = whole(json, "samples");
  // Earlier runs weighed each batch by its number of targets.
  totals.weight =
      json.contains("weight") ? number(json, "weight", 0) : static_cast<double>(totals.samples);
  totals.correct = whole(json, "correct", 0, totals.samples);
  return totals;
}

// JSON has no infinity and no NaN. A perplexity is infinite where the loss is large, and stands as
// null in all versions; the others are texts.
Json metric_json(double metric) {
  if (std::isfinite(metric)) return metric;
  if (std::isnan(metric)) return "nan";
  return metric > 0 ? Json(nullptr) : Json("-inf");
}

double metric_from(const Json& json, const char* key) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Json& value = json.at(key);
  if (value.is_null()) return kInfinity;
  if (value == "-inf") return -kInfinity;
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return number(json, key);
}

Json to_json(const Evaluation& evaluation) {
  Json json = {{"loss", evaluation.loss},
               {"accuracy", evaluation.accuracy},
               {"samples", evaluation.samples}};
  if (evaluation.metric) json["metric"] = metric_json(*evaluation.metric);
  if (!evaluation.details.empty()) json["details"] = evaluation.details;
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
  if (result.test.metric) json["test_metric"] = metric_json(*result.test.metric);
  if (!result.test.details.empty()) json["test_details"] = result.test.details;
  if (result.validation) json["validation"] = to_json(*result.validation);
  return json;
}

Json optional_json(const std::optional<EpochResult>& result) {
  return result ? to_json(*result) : Json(nullptr);
}

Evaluation evaluation_from(const Json& json, const std::string& prefix = "") {
  Evaluation evaluation;
  evaluation.loss = number(json, (prefix + "loss").c_str());
  evaluation.accuracy = number(json, (prefix + "accuracy").c_str(), 0);
  evaluation.samples = whole(json, (prefix + "samples").c_str());
  const std::string metric = prefix + "metric";
  if (json.contains(metric)) evaluation.metric = metric_from(json, metric.c_str());
  if (const auto found = json.find(prefix + "details"); found != json.end())
    found->get_to(evaluation.details);
  return evaluation;
}

std::optional<EpochResult> result_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  EpochResult result;
  result.epoch = whole(json, "epoch", 1);
  result.step = whole(json, "step", 1);
  result.train_loss = number(json, "train_loss");
  result.train_accuracy = number(json, "train_accuracy", 0);
  result.test = evaluation_from(json, "test_");
  if (const auto found = json.find("validation"); found != json.end())
    result.validation = evaluation_from(*found);
  return result;
}

Json results_json(const std::vector<EpochResult>& results) {
  Json all = Json::array();
  for (const EpochResult& result : results) all.push_back(to_json(result));
  return all;
}

std::vector<EpochResult> results_from(const Json& json) {
  FRUGAL_CHECK(json.is_array(), "expected a list as \"kept\", got {}", shown(json));
  std::vector<EpochResult> results;
  for (const Json& entry : json) {
    const auto result = result_from(entry);
    FRUGAL_CHECK(result, "expected an evaluation in \"kept\", got null");
    results.push_back(*result);
  }
  return results;
}

Json to_json(const EarlyStopState& state) {
  return {{"best", state.best ? Json(*state.best) : Json(nullptr)}, {"waited", state.waited}};
}

EarlyStopState early_stop_from(const Json& json) {
  EarlyStopState state;
  if (!json.at("best").is_null()) state.best = number(json, "best");
  state.waited = whole(json, "waited");
  return state;
}

std::string ended_from(const Json& json, bool finished) {
  const Json& value = json.at("ended");
  const std::set<std::string> all = {"", "epochs", "steps", "patience", "early_stop"};
  FRUGAL_CHECK(value.is_string() && all.contains(value.get<std::string>()) &&
                   value.get<std::string>().empty() != finished,
               "expected why training ended as \"ended\", or nothing before that, got {}",
               shown(value));
  return value.get<std::string>();
}

Json to_json(const StepMemory& memory) {
  return {{"activation", memory.activation},
          {"packed", memory.packed},
          {"peak", memory.peak},
          {"at_peak", memory.at_peak}};
}

StepMemory memory_from(const Json& json) {
  StepMemory memory;
  memory.activation = whole(json, "activation");
  memory.packed = whole(json, "packed");
  memory.peak = whole(json, "peak");
  const Json& at_peak = json.at("at_peak");
  FRUGAL_CHECK(at_peak.is_array() && at_peak.size() == kCategories,
               "expected {} numbers as \"at_peak\", got {}", kCategories, shown(at_peak));
  for (size_t i = 0; i < kCategories; ++i)
    memory.at_peak[i] = whole({{"at_peak", at_peak[i]}}, "at_peak");
  return memory;
}

using compress::AdaptivePolicy;

Json items_json(const std::vector<AdaptivePolicy::Item>& items) {
  Json all = Json::array();
  for (const auto& item : items) {
    all.push_back({{"seq", item.seq},
                   {"bits", item.bits},
                   {"sensitivity", item.sensitivity ? Json(*item.sensitivity) : Json(nullptr)},
                   {"measured", item.measured},
                   {"elements", item.elements},
                   {"shape", std::vector<int64_t>(item.shape.begin(), item.shape.end())},
                   {"has_sign", item.has_sign},
                   {"slope", item.slope},
                   {"raw_bytes", item.raw_bytes},
                   {"curved", item.curved}});
    if (item.source_bits > 0) all.back()["source_bits"] = item.source_bits;
  }
  return all;
}

// AdaptivePolicy::restore() checks the values.
std::vector<AdaptivePolicy::Item> items_from(const Json& json) {
  std::vector<AdaptivePolicy::Item> items;
  for (const Json& entry : json) {
    auto& item = items.emplace_back();
    item.seq = word(entry, "seq");
    item.bits = static_cast<int>(whole(entry, "bits", 0, AdaptivePolicy::kRaw));
    if (!entry.at("sensitivity").is_null()) item.sensitivity = number(entry, "sensitivity", 0);
    item.measured = whole(entry, "measured", -1);
    item.elements = whole(entry, "elements");
    for (const Json& extent : entry.at("shape"))
      item.shape.push_back(whole({{"shape", extent}}, "shape"));
    entry.at("has_sign").get_to(item.has_sign);
    item.slope = number(entry, "slope", 0);
    item.raw_bytes = whole(entry, "raw_bytes");
    item.curved = entry.value("curved", false);  // not in earlier runs
    if (entry.contains("source_bits"))
      item.source_bits = static_cast<int>(whole(entry, "source_bits", 0, AdaptivePolicy::kRaw));
  }
  return items;
}

Json to_json(const AdaptivePolicy::State& state) {
  Json decisions = Json::array();
  for (const auto& each : state.decisions)
    decisions.push_back({{"seq", each.seq},
                         {"what", static_cast<int>(each.what)},
                         {"packs", each.packs},
                         {"carry_sign", each.carry_sign}});
  return {{"average", state.average}, {"items", items_json(state.items)}, {"decisions", decisions}};
}

AdaptivePolicy::State adaptive_from(const Json& json) {
  AdaptivePolicy::State state;
  state.average = number(json, "average", 1);
  state.items = items_from(json.at("items"));
  for (const Json& entry : json.at("decisions")) {
    auto& each = state.decisions.emplace_back();
    each.seq = word(entry, "seq");
    each.what = static_cast<Decision::What>(whole(entry, "what", 0, Decision::pack));
    entry.at("packs").get_to(each.packs);
    entry.at("carry_sign").get_to(each.carry_sign);
  }
  return state;
}

Json to_json(const Planner::State& state) {
  return {{"memory", to_json(state.memory)},
          {"variance", state.variance},
          {"average_bits", state.average_bits},
          {"items", items_json(state.items)},
          {"margin", state.margin},
          {"feasible", state.feasible}};
}

Planner::State planner_from(const Json& json) {
  Planner::State state;
  state.memory = memory_from(json.at("memory"));
  state.variance = number(json, "variance", 0);
  state.average_bits = number(json, "average_bits", 0);
  state.items = items_from(json.at("items"));
  state.margin = whole(json, "margin");
  json.at("feasible").get_to(state.feasible);
  return state;
}

Json to_json(const compress::OffloadStats& stats) {
  return {{"written", stats.written},
          {"read", stats.read},
          {"pack_seconds", stats.pack_seconds},
          {"unpack_seconds", stats.unpack_seconds}};
}

compress::OffloadStats offload_from(const Json& json) {
  compress::OffloadStats stats;
  stats.written = whole(json, "written");
  stats.read = whole(json, "read");
  stats.pack_seconds = number(json, "pack_seconds", 0);
  stats.unpack_seconds = number(json, "unpack_seconds", 0);
  return stats;
}

std::vector<double> numbers_from(const Json& json) {
  std::vector<double> numbers;
  for (const Json& value : json) numbers.push_back(number({{"number", value}}, "number"));
  return numbers;
}

// What an AdaptivePolicy learned has a place and a form of its own in a written state.
const compress::Learned* widths_in(const compress::Learned& learned) {
  if (learned.policy == AdaptivePolicy::State::kPolicy) return &learned;
  return learned.inside.empty() ? nullptr : &learned.inside[0];
}

Json widths_json(const compress::Learned& learned) {
  const compress::Learned* const widths = widths_in(learned);
  return widths != nullptr ? to_json(AdaptivePolicy::State::read(*widths)) : Json(nullptr);
}

Json to_json(const compress::Learned& learned) {
  if (learned.empty() || widths_in(learned) == &learned) return nullptr;
  return {{"policy", learned.policy}, {"version", learned.version}, {"lists", learned.lists}};
}

// Learner::restore_learned() checks the contents of the lists.
compress::Learned learned_from(const Json& json, const Json& adaptive) {
  compress::Learned learned;
  if (json.is_null()) return adaptive.is_null() ? learned : adaptive_from(adaptive).write();
  if (!adaptive.is_null()) learned.inside = {adaptive_from(adaptive).write()};
  json.at("policy").get_to(learned.policy);
  learned.version = static_cast<int>(whole(json, "version", 1, 1 << 20));
  for (const auto& [name, list] : json.at("lists").items())
    learned.lists[name] = numbers_from(list);
  return learned;
}

}  // namespace

void Totals::add(const BatchResult& batch) {
  loss += batch.loss * batch.weight;
  weight += batch.weight;
  correct += batch.correct;
  samples += batch.counted;
}

std::string text_of(const RunState& s, const CompressionState& compression) {
  const Json json = {
      {"version", RunState::kVersion},
      {"step", s.step},
      {"batches", s.batches},
      {"loader", {{"epoch", s.loader.epoch}, {"next_batch", s.loader.next_batch}}},
      {"rng", {{"seed", s.rng.seed}, {"offset", s.rng.offset}}},
      {"interval", to_json(s.interval)},
      {"epoch", to_json(s.epoch)},
      {"last", optional_json(s.last)},
      {"best", optional_json(s.best)},
      {"kept", results_json(s.kept)},
      {"early_stop", to_json(s.early_stop)},
      {"memory", to_json(s.memory)},
      {"last_step",
       {{"lr", s.last_step.lr},
        {"mean_bits", s.last_step.mean_bits},
        {"saved", s.last_step.saved}}},
      {"adaptive", widths_json(compression.learned)},
      {"learned", to_json(compression.learned)},
      {"tracking", compression.tracking},
      {"planner", compression.planner ? to_json(*compression.planner) : Json(nullptr)},
      {"offload", to_json(compression.offload)},
      {"metrics_bytes", s.metrics_bytes},
      {"finished", s.finished},
      {"ended", s.ended}};
  return json.dump();
}

RunState run_state_from(const std::string& text, CompressionState& compression) {
  const Json json = data::parse_json<Json>(text);
  const auto version = json.find("version");
  const int64_t written = version == json.end() ? 1 : whole(json, "version");
  FRUGAL_CHECK(written == RunState::kVersion,
               "expected a state of version {}, got one of version {}: resume it with the version "
               "of frugal that wrote it, or start anew in another folder; the weights alone are in "
               "last.safetensors",
               RunState::kVersion, written);
  RunState s;
  s.step = whole(json, "step");
  s.batches = whole(json, "batches");
  s.loader.epoch = whole(json.at("loader"), "epoch");
  s.loader.next_batch = whole(json.at("loader"), "next_batch");
  s.rng.seed = word(json.at("rng"), "seed");
  s.rng.offset = word(json.at("rng"), "offset");
  s.interval = totals_from(json.at("interval"));
  s.epoch = totals_from(json.at("epoch"));
  s.last = result_from(json.at("last"));
  s.best = result_from(json.at("best"));
  s.kept = results_from(json.at("kept"));
  for (const EpochResult& result : s.kept)
    FRUGAL_CHECK(result.step <= s.step, "expected weights of step {} at the most, got of step {}",
                 s.step, result.step);
  s.early_stop = early_stop_from(json.at("early_stop"));
  for (const auto* result : {&s.last, &s.best})
    FRUGAL_CHECK(!*result || (*result)->step <= s.step,
                 "expected an evaluation of step {} at the most, got one of step {}", s.step,
                 (*result)->step);
  s.memory = memory_from(json.at("memory"));
  if (const auto found = json.find("last_step"); found != json.end()) {  // not in earlier runs
    s.last_step = {number(*found, "lr", 0), number(*found, "mean_bits", 0)};
    if (found->contains("saved")) s.last_step.saved = whole(*found, "saved");
  }
  compression.learned = learned_from(json.at("learned"), json.at("adaptive"));
  compression.tracking = numbers_from(json.at("tracking"));
  if (!json.at("planner").is_null()) compression.planner = planner_from(json.at("planner"));
  compression.offload = offload_from(json.at("offload"));
  s.metrics_bytes = whole(json, "metrics_bytes");
  json.at("finished").get_to(s.finished);
  s.ended = ended_from(json, s.finished);
  return s;
}

}  // namespace frugal::train
