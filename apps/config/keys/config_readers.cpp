#include "apps/config/keys/config_readers.h"

#include <algorithm>

#include "apps/config/keys/level_keys.h"
#include "apps/config/make_model.h"
#include "compress/policies/policy_kind.h"

namespace frugal::apps {
namespace {

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
std::string listed(const char* what, const std::vector<std::string>& names) {
  return fmt::format("{} {}", what, fmt::join(names, ", "));
}

}  // namespace

Reader every_run() {
  return {"every run", {}, [](const Config&) { return true; }};
}

Reader networks(const char* key, const std::string& who) {
  return {who, {"model.name"}, [key](const Config& c) { return network_reads(c.model, key); }};
}

// Data.
DataTraits traits(const Config& c) { return data_traits(c); }
bool is_glue(const Config& c) {
  const DataTraits t = traits(c);
  return t.kind == BatchSpec::Kind::sequences && t.reads_files && !t.is_text &&
         c.data.name != "tensors" && c.data.name != kConversations;
}
bool has_array_stream(const Config& c) {
  return c.data.name == "tensors" && c.data.layout == "tokens" &&
         family_of(c.model) == Family::decoder;
}
// Windows of one long text, not samples of their own.
bool makes_windows(const Config& c) {
  return traits(c).is_text || has_array_stream(c) ||
         (c.data.name == "random_tokens" && family_of(c.model) == Family::decoder);
}
bool has_samples(const Config& c) {
  const DataTraits t = traits(c);
  return t.kind != BatchSpec::Kind::graph && !t.is_text && !has_array_stream(c);
}
const char* samples_of(BatchSpec::Kind kind) {
  switch (kind) {
    case BatchSpec::Kind::images:
      return "images";
    case BatchSpec::Kind::rows:
      return "rows";
    case BatchSpec::Kind::graph:
      return "graphs";
    case BatchSpec::Kind::sequences:
      break;
  }
  return "text";
}
Reader with_data(BatchSpec::Kind kind) {
  return {
      samples_of(kind), {"data.name"}, [kind](const Config& c) { return traits(c).kind == kind; }};
}
Reader data_named(const std::vector<std::string>& names) {
  return {listed("data.name", names), {"data.name"}, [names](const Config& c) {
            return is_one_of(c.data.name, names);
          }};
}
Reader sampled(const std::vector<std::string>& names) {
  return {listed("graphs with data.sampler", names),
          {"data.name", "data.sampler"},
          [names](const Config& c) {
            return traits(c).kind == BatchSpec::Kind::graph && is_one_of(c.data.sampler, names);
          }};
}

// What data::Loader makes batches of.
Reader loaded() {
  return {"images and rows", {"data.name"}, [](const Config& c) {
            const BatchSpec::Kind kind = traits(c).kind;
            return kind == BatchSpec::Kind::images || kind == BatchSpec::Kind::rows;
          }};
}
// Samples that an epoch cuts into batches.
Reader cut_samples() {
  return {
      "images, rows, GLUE, jsonl and tokens with encoders, and graphs with data.sampler "
      "neighbours",
      {"data.name", "model.name", "data.sampler"},
      [](const Config& c) {
        if (traits(c).kind == BatchSpec::Kind::graph) return c.data.sampler == "neighbours";
        return has_samples(c) && !makes_windows(c);
      }};
}
Reader with_pixels() {
  return {"networks that give a class to each pixel", {"model.name"}, [](const Config& c) {
            return family_of(c.model) == Family::segmentation;
          }};
}

// Training.
Reader optimizers(const std::vector<std::string>& names) {
  return {listed("optim.name", names), {"optim.name"}, [names](const Config& c) {
            return is_one_of(c.optim.name, names);
          }};
}
Reader on(const std::vector<std::string>& devices, const char* who) {
  return {who, {"device"}, [devices](const Config& c) {
            return is_one_of(c.run.on_cuda() ? "cuda" : c.run.device, devices);
          }};
}

// Compression.
// A budget means the policy of its name.
PolicyKind policy_of(const Config& c) {
  const CompressionConfig& compression = c.compression;
  const bool budget = compression.policy == PolicyKind::gact && !compression.memory_budget.empty();
  return budget ? PolicyKind::budget : compression.policy;
}
std::vector<std::string> names_of(const std::vector<PolicyKind>& kinds) {
  std::vector<std::string> names;
  for (const PolicyKind kind : kinds) names.emplace_back(name_of(kind));
  return names;
}
Reader policies(const std::vector<PolicyKind>& kinds) {
  return {listed("compression.policy", names_of(kinds)),
          {"compression.policy", "compression.memory_budget"},
          [kinds](const Config& c) {
            return std::find(kinds.begin(), kinds.end(), policy_of(c)) != kinds.end();
          }};
}
Reader packing() {
  return {"what packs activations: policies gact and actnn with bits above 0, acgc, memory_budget",
          {"compression.policy", "compression.bits"},
          packs};
}
bool packs(const Config& c) {
  const PolicyKind policy = policy_of(c);
  return policy == PolicyKind::acgc || policy == PolicyKind::budget || c.compression.bits > 0;
}
bool may_rebuild(const Config& c) {
  return policy_of(c) != PolicyKind::actnn || !c.compression.actnn.products_only;
}
bool rebuilds(const Config& c) {
  return policy_of(c) == PolicyKind::budget || (c.compression.recipes && may_rebuild(c));
}
bool measures(const Config& c) {
  return policy_of(c) == PolicyKind::budget ||
         (policy_of(c) == PolicyKind::gact && chooses_widths(c));
}
bool chooses_widths(const Config& c) { return has_adaptive_widths(c.compression); }
bool checkpoints(const Config& c) { return c.train.checkpointing; }
bool freezes(const Config& c) { return !c.train.freeze.empty(); }
bool packs_weights(const Config& c) { return c.model.packing.format != ops::MatrixFormat::f32; }
bool weighs_classes(const Config& c) {
  const DataTraits t = traits(c);
  if (family_of(c.model) == Family::segmentation)
    return c.train.of_task.pixel_loss != train::PixelLoss::dice;
  if (t.kind == BatchSpec::Kind::graph)
    return is_one_of(c.data.sampler, {"full", "neighbours", "clusters"});
  return t.target != BatchSpec::Target::boxes && !learns_from_views(c) && !makes_windows(c) &&
         c.data.mixup == 0 && c.data.cutmix == 0;
}
bool learns_from_views(const Config& c) { return is_self_supervised(c.model); }

}  // namespace frugal::apps
