#include "apps/config/data/data_parts.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/config/run_encoding.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr double kTrainShare = 0.8, kValidationShare = 0.1;

bool has_ending(const fs::path& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return path.filename().string().ends_with(ending);
  });
}

std::string find_part(const fs::path& dir, Split part, const std::vector<std::string>& endings) {
  std::error_code ignored;
  std::vector<std::string> there;
  for (const std::string& name : data::part_names(part))
    for (const std::string& ending : endings)
      if (fs::is_regular_file(dir / (name + ending), ignored))
        there.push_back((dir / (name + ending)).string());
  return data::only_one("data", there);
}

// The only file of these endings in the folder, or nothing.
std::string only_file(const fs::path& dir, const std::vector<std::string>& endings) {
  std::error_code ignored;
  std::string found;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    if (!entry.is_regular_file(ignored) || !has_ending(entry.path(), endings)) continue;
    if (!found.empty()) return "";
    found = entry.path().string();
  }
  return found;
}

}  // namespace

const std::string& DataParts::of(Split split) const {
  static const std::string none;
  if (one_file()) return train;
  switch (split) {
    case Split::train:
      return train;
    case Split::validation:
      return test.empty() ? none : validation;
    case Split::test:
      break;
  }
  return test.empty() ? validation : test;
}

DataParts find_parts(const Config& config, const std::vector<std::string>& endings) {
  const fs::path dir = *config.data.dir;
  const std::string wanted = fmt::format("{}", fmt::join(endings, " or "));
  std::error_code ignored;
  if (fs::is_regular_file(dir, ignored)) {
    if (!has_ending(dir, endings))
      throw ConfigError("data.dir", fmt::format("expected a file {} for {}, got {}", wanted,
                                                config.data.name, in_quotes(dir.string())));
    return {dir.string(), "", ""};
  }
  if (!fs::is_directory(dir, ignored))
    throw ConfigError("data.dir",
                      fmt::format("expected a file {} or a folder, got {}, which is "
                                  "not there{}",
                                  wanted, in_quotes(dir.string()), counted_from(dir.string())));
  DataParts parts{find_part(dir, Split::train, endings), find_part(dir, Split::validation, endings),
                  find_part(dir, Split::test, endings)};
  if (parts.train.empty() && parts.one_file()) parts.train = only_file(dir, endings);
  if (parts.train.empty())
    throw ConfigError("data.dir", fmt::format("expected train{} in {}, got none", endings.front(),
                                              in_quotes(dir.string())));
  // A run may have split a file, and be evaluated with a folder that has parts.
  if (!parts.one_file() && config.data.known == nullptr) {
    const auto refuse = [&](const char* key, const Json& usual, const Json& got) {
      throw ConfigError(key, fmt::format("expected {}, the default, since {} has a file for each "
                                         "part, got {}",
                                         usual.dump(), in_quotes(dir.string()), got.dump()));
    };
    const double usual = DataConfig().validation;
    if (config.data.split) refuse("data.split", nullptr, *config.data.split);
    if (config.data.validation != usual) refuse("data.validation", usual, config.data.validation);
  }
  return parts;
}

const std::vector<int64_t>& part_of(const data::SplitIndices& split, Split part) {
  switch (part) {
    case Split::train:
      return split.train;
    case Split::validation:
      return split.validation;
    case Split::test:
      break;
  }
  return split.test;
}

namespace {

// Says why samples cannot be split: there are too few, or each is alone in its class.
[[noreturn]] void refuse_split(const Config& config, const std::vector<int64_t>& labels) {
  const size_t classes = std::set<int64_t>(labels.begin(), labels.end()).size();
  if (classes < 2)
    throw ConfigError("data.split", fmt::format("expected enough samples for parts to train and to "
                                                "test on, got {}",
                                                labels.size()));
  const std::string& name = config.data.name;
  const bool texts = name == "jsonl", arrays = name == "tensors" && config.data.layout != "tokens";
  throw ConfigError(
      texts    ? "data.target"
      : arrays ? "data.task"
               : "data.split",
      fmt::format("expected classes with samples to train and to test on, got {} of {}{}",
                  with_noun(classes, "class", "classes"), with_noun(labels.size(), "sample"),
                  texts    ? "; it names the field with the label"
                  : arrays ? "; data.task=values predicts numbers"
                           : ""));
}

}  // namespace

data::SplitIndices split_by(const Config& config, const std::vector<int64_t>& labels,
                            const std::function<std::string(int64_t)>& name) {
  if (const auto& known = config.data.known; known != nullptr && known->parts) {
    data::SplitIndices split = kept_split(*known->parts, static_cast<int64_t>(labels.size()), name);
    FRUGAL_CHECK(!split.train.empty() && !split.test.empty(),
                 "[data] {}: expected samples that the run trained and tested on, got {} and {} of "
                 "them",
                 in_quotes(*config.data.dir), split.train.size(), split.test.size());
    return split;
  }
  const auto& wanted = config.data.split;
  const double train = wanted ? (*wanted)[0] : kTrainShare,
               validation = wanted ? (*wanted)[1] : kValidationShare;
  if (train + validation >= 1 + data::kLeastShare)
    throw ConfigError("data.split", fmt::format("expected shares of at most 1 together, got {}",
                                                train + validation));
  int64_t classes = 1;
  for (const int64_t label : labels) classes = std::max(classes, label + 1);
  data::SplitIndices split = data::split_samples(labels, classes, train, validation,
                                                 static_cast<uint64_t>(config.run.seed));
  if (split.test.empty()) split.test.swap(split.validation);  // as with a folder of two parts
  if (split.train.empty() || split.test.empty()) refuse_split(config, labels);
  return split;
}

std::string counted_from(const std::string& path) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error || fs::path(path).is_absolute()) return "";
  return fmt::format("; it counts from {}, where the command is called", in_quotes(here.string()));
}

std::string name_of_file(const Config& config, const std::string& path) {
  return fs::path(path).lexically_relative(*config.data.dir).string();
}

}  // namespace frugal::apps
