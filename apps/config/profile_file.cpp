#include "apps/config/profile_file.h"

#include <algorithm>
#include <limits>

#include "apps/config/keys/config_table.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/policy_kind.h"
#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"

namespace frugal::apps {
namespace {

constexpr const char* kKey = "compression.advanced.profile";
constexpr int64_t kProfileVersion = 1;  // the format's
constexpr int64_t kMostCounted = int64_t{1} << 53;

bool is_one_of(const std::string& path, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return path == name; });
}

// Does the key decide which tensors are saved, which of them are packed, or their widths?
bool decides_widths(const Config& config, const std::string& path) {
  if (path.starts_with("model."))
    return !is_one_of(path, {"model.weights", "model.adapter", "model.head", "model.num_classes",
                             "model.in_channels", "model.vocab_size", "model.max_positions"});
  if (path.starts_with("train."))
    return is_one_of(path, {"train.checkpointing", "train.checkpointed_blocks", "train.freeze"});
  if (path == "compression.advanced.rounding") return config.compression.policy == PolicyKind::acgc;
  return path.starts_with("compression.") &&
         !is_one_of(
             path,
             {"compression.offload", "compression.guard", "compression.gact.interval",
              "compression.gact.samples", "compression.gact.share", "compression.actnn.interval",
              "compression.acgc.interval", "compression.advanced.slice_bytes",
              "compression.advanced.offload_window", "compression.advanced.guard_min_bits",
              "compression.advanced.track_interval", "compression.advanced.track_samples", kKey});
}

Json keys_of(const Config& config) {
  Json keys = Json::object();
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (const std::string path = section.path(field); decides_widths(config, path))
        keys[path] = field.get(config);
  return keys;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw ConfigError(kKey, fmt::format("{}: {}", in_quotes(path), what));
}

int64_t whole(const std::string& path, const Json& object, const char* key, int64_t least) {
  if (object.is_object() && object.contains(key)) {
    const Json& value = object.at(key);
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{kMostCounted});
    if (fits && value.get<int64_t>() >= least && value.get<int64_t>() <= kMostCounted)
      return value.get<int64_t>();
  }
  refuse(path,
         fmt::format("expected a whole number of at least {} as \"{}\" of a tensor", least, key));
}

const Json& member(const std::string& path, const Json& object, const char* key,
                   Json::value_t type) {
  if (!object.is_object() || !object.contains(key) || object.at(key).type() != type)
    refuse(path, fmt::format("expected a profile that `frugal bench step --record-profile` wrote, "
                             "got a file without a fitting \"{}\"",
                             key));
  return object.at(key);
}

compress::WidthProfile profile_of(const std::string& path, const Json& run) {
  compress::WidthProfile profile;
  for (const Json& tensor : member(path, run, "tensors", Json::value_t::array)) {
    const auto seq = static_cast<uint64_t>(whole(path, tensor, "seq", 0));
    const auto [place, fresh] = profile.tensors.try_emplace(seq);
    if (!fresh) refuse(path, fmt::format("expected tensor {} once, got it twice", seq));
    place->second = {member(path, tensor, "op", Json::value_t::string).get<std::string>(),
                     static_cast<int>(whole(path, tensor, "slot", 0)),
                     whole(path, tensor, "elements", 1), whole(path, tensor, "bytes", 0)};
  }
  if (profile.average_bits() == 0) refuse(path, "expected packed tensors, got none");
  return profile;
}

// A profile of an earlier version lacks later keys. Its run had their defaults.
std::vector<std::string> differences(const Json& wanted, const Json& found) {
  std::vector<std::string> all;
  const Json defaults = keys_of(Config());
  for (const auto& [key, value] : wanted.items())
    if ((found.contains(key) ? found : defaults).at(key) != value)
      all.push_back(fmt::format("{} = {} there, {} here", key,
                                found.contains(key) ? printable(found.at(key).dump()) : "nothing",
                                value.dump()));
  return all;
}

std::string bits_text(double bits) { return fmt::format("{:.2f} bits for each value", bits); }

}  // namespace

void write_profiles(const std::string& path, const std::vector<RecordedRun>& runs) {
  Json list = Json::array();
  for (const RecordedRun& run : runs) {
    Json tensors = Json::array();
    for (const auto& [seq, tensor] : run.profile.tensors)
      tensors.push_back({{"seq", seq},
                         {"op", tensor.op},
                         {"slot", tensor.slot},
                         {"elements", tensor.elements},
                         {"bytes", tensor.bytes}});
    list.push_back({{"config", keys_of(run.config)},
                    {"batch_size", run.config.data.batch_size},
                    {"average_bits", run.profile.average_bits()},
                    {"tensors", tensors}});
  }
  data::atomic_write(path,
                     Json({{"frugal_profile", kProfileVersion}, {"runs", list}}).dump(1) + "\n");
}

compress::WidthProfile read_profile(const std::string& path, const Config& config) {
  const Json file = read_json(path);
  const Json& runs = member(path, file, "runs", Json::value_t::array);
  if (!file.contains("frugal_profile") || file.at("frugal_profile") != kProfileVersion)
    refuse(path, fmt::format("expected a profile of version {}", kProfileVersion));
  const Json wanted = keys_of(config);
  std::optional<std::vector<std::string>> nearest;
  for (const Json& run : runs) {
    std::vector<std::string> found =
        differences(wanted, member(path, run, "config", Json::value_t::object));
    if (found.empty()) return profile_of(path, run);
    if (!nearest || found.size() < nearest->size()) nearest = std::move(found);
  }
  if (!nearest) refuse(path, "expected a recorded run, got none");
  refuse(path, fmt::format("expected a run like this one, got {}; in the nearest: {}", runs.size(),
                           fmt::join(*nearest, ", ")));
}

std::string widths_on_meta(const Config& config) {
  const CompressionConfig& c = config.compression;
  if (c.known_widths != nullptr)
    return fmt::format("{} on average, by tensor from the profile {}",
                       bits_text(c.known_widths->average_bits()), printable(c.profile));
  if (c.policy == PolicyKind::acgc)
    return fmt::format("{}, {}; {} gives those of a run", bits_text(assumed_acgc_bits(c)),
                       c.acgc.rule == compress::acgc::Rule::published
                           ? "the average that was published"
                           : "the average of our ResNet-20",
                       kKey);
  if (has_adaptive_widths(c) && c.policy == PolicyKind::actnn && c.actnn.norms_outside)
    return fmt::format(
        "{}, the average; what only normalizations read takes other widths in a "
        "run, which the average does not count: {} gives those of a run",
        bits_text(c.bits), kKey);
  if (has_adaptive_widths(c) && c.policy == PolicyKind::gact && c.gact.greedy)
    return fmt::format("{}, the average, which the greedy search of a run stays below",
                       bits_text(c.bits));
  if (has_adaptive_widths(c))
    return fmt::format("{}, the average that a run has, too", bits_text(c.bits));
  return "";
}

std::string assumed_on_meta(const Config& config) {
  const CompressionConfig& c = config.compression;
  const bool is_acgc = c.policy == PolicyKind::acgc;
  const bool exact = c.known_widths == nullptr && !is_acgc &&
                     !(c.policy == PolicyKind::actnn && c.actnn.norms_outside) &&
                     !(c.policy == PolicyKind::gact && c.gact.greedy);
  std::string widths = exact ? "" : widths_on_meta(config);
  if (is_acgc)
    widths += fmt::format("; {} in the first step", bits_text(compress::start_bits(c.acgc)));
  return widths;
}

}  // namespace frugal::apps
