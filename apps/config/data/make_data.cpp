#include "apps/config/data/make_data.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/config/data/csv_columns.h"
#include "apps/config/data/data_kinds.h"
#include "apps/config/data/data_parts.h"
#include "apps/config/keys/value_named.h"
#include "core/words/quoted.h"
#include "data/fetch/sources.h"
#include "data/missing_files.h"
#include "data/text/sequence_batches.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {

const std::vector<const DataKind*>& data_kinds() {
  static const std::vector<const DataKind*> all = {&image_data(), &text_data(), &graph_data(),
                                                   &row_data(), &box_data()};
  return all;
}

namespace {

// The schema lets no other name through.
const DataKind& kind_of(const std::string& name) {
  for (const DataKind* kind : data_kinds()) {
    const std::vector<std::string> names = kind->names();
    if (std::find(names.begin(), names.end(), name) != names.end()) return *kind;
  }
  throw ConfigError("data.name", fmt::format("expected a known dataset, got '{}'", name));
}

// What is wrong with the file or folder that data.dir names; empty: nothing, so what it holds may
// be wrong.
std::string wrong_place(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(dir, error))
    return fmt::format("expected a file or a folder, got {}, which is not there{}", in_quotes(dir),
                       counted_from(dir));
  const bool is_folder = fs::is_directory(dir, error);
  if (access(dir.c_str(), is_folder ? R_OK | X_OK : R_OK) != 0)
    return fmt::format("expected a {} that can be read, got {}: {}", is_folder ? "folder" : "file",
                       in_quotes(dir), std::strerror(errno));
  return "";
}

// Calls `f`, which reads the data. What it cannot read may be what the configuration names.
template <class F>
auto reading(const Config& config, const F& f) {
  try {
    return f();
  } catch (const ConfigError& e) {  // the library's options have the names of keys
    if (e.path() != "batch_size") throw;
    throw ConfigError("data.batch_size", e.reason());
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::filesystem::filesystem_error&) {  // a folder that cannot be looked into
    if (!config.data.dir) throw;
    if (const std::string wrong = wrong_place(*config.data.dir); !wrong.empty())
      throw ConfigError("data.dir", wrong);
    throw;
  } catch (const Error& e) {
    if (!config.data.dir) throw;
    if (const std::string wrong = wrong_place(*config.data.dir); !wrong.empty())
      throw ConfigError("data.dir", wrong);
    if (dynamic_cast<const data::MissingFiles*>(&e) == nullptr) throw;
    const std::string why = e.what();  // "[idx] expected ...", of which the key takes the place
    throw ConfigError("data.dir", why.substr(why.find("] ") + 2));
  }
}

// A table of all pairs of so many classes, with which f1 is counted, takes 128 MiB.
constexpr int64_t kMostInPairs = 4096;

// train.metric; auto: the metric that the data have.
std::string metric_of(const Config& config, const BatchSpec& spec) {
  const std::string& wanted = config.train.metric;
  if (wanted == "auto") return spec.metric;
  const bool accuracy = wanted == "accuracy" && has_accuracy(spec.target);
  const MetricName* const known = find_metric(wanted);
  if (!accuracy && (known == nullptr || !known->measures(spec.target)))
    throw ConfigError("train.metric", fmt::format("expected auto{} or one of {} for {}, got {}",
                                                  has_accuracy(spec.target) ? ", accuracy" : "",
                                                  names_of_metrics(spec.target), config.data.name,
                                                  in_quotes(wanted)));
  if (accuracy) return "";
  if (spec.target_of_each_token() && spec.vocabulary > kMostInPairs && known->counts_pairs)
    throw ConfigError(
        "train.metric",
        fmt::format("expected perplexity or accuracy for a vocabulary of more than {} "
                    "tokens, since {} counts each pair of them; it has {}",
                    kMostInPairs, wanted, spec.vocabulary));
  return wanted;
}

}  // namespace

// What arrays hold is what data.layout says.
const DataKind& kind_of(const Config& config) {
  if (config.data.name != "tensors") return kind_of(config.data.name);
  using Find = const DataKind& (*)();
  return value_named<Find>(
      config.data.layout,
      {{"nhwc", image_data}, {"nchw", image_data}, {"rows", row_data}, {"tokens", text_data}})();
}

std::string within(const std::string& dir, const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const std::string& folder : folders)
    if (fs::is_directory(fs::path(dir) / folder, ignored)) return (fs::path(dir) / folder).string();
  return dir;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> all;
  for (const DataKind* kind : data_kinds())
    for (const std::string& name : kind->names()) all.push_back(name);
  return all;
}

BatchSpec batch_spec(const Config& config) {
  BatchSpec spec = reading(config, [&] { return open_data(config)->spec(config); });
  spec.metric = metric_of(config, spec);
  // A captured step has a batch of its own, which lives as long as the graph.
  const int64_t whole = config.distributed.whole_batch;
  spec.releases_input =
      is_large_input(spec, whole > 0 ? whole : config.data.batch_size) && !config.run.cuda_graphs;
  spec.whole_batch = config.data.batch_size;
  return spec;
}

DataTraits data_traits(const Config& config) { return kind_of(config).traits(config); }

data::Exif exif_of(const Config& config) {
  using data::Exif;
  if (config.data.exif == "auto")
    return data_traits(config).of_picture_files ? Exif::turn : Exif::ignore;
  return value_named<Exif>(config.data.exif, {{"turn", Exif::turn}, {"ignore", Exif::ignore}});
}

std::string find_data(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::vector<std::string> marks = kind_of(name).marks(name);
  for (const std::string& folder : data::data_folders())
    for (const std::string& mark : marks)
      if (fs::exists(fs::path(folder) / mark, ignored)) return folder;
  return "";
}

std::string searched_folders() {
  const std::vector<std::string> all = data::data_folders();
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i];
  return text;
}

std::vector<std::string> marks_of(const Config& config) {
  return kind_of(config).marks(config.data.name);
}

void describe_data(const Config& config, RunEncoding& known) {
  open_data(config)->describe(config, known);
}

void resolve_data(Config& config) {
  const std::string& name = config.data.name;
  const DataKind& kind = kind_of(config);
  if (kind.traits(config).reads_files && !config.data.dir && kind.marks(name).empty())
    throw ConfigError("data.dir", fmt::format("expected where the files of {} are", name));
  kind.check(config);
  find_data_dir(config);
}

void find_data_dir(Config& config) {
  const std::string& name = config.data.name;
  if (config.data.dir || !data_traits(config).reads_files) return;
  const std::string found = find_data(name);
  if (found.empty())
    throw ConfigError("data.dir",
                      fmt::format("found no {} in {}; `frugal data fetch {}` downloads it, or "
                                  "data.dir names its folder",
                                  name, searched_folders(), name));
  config.data.dir = found;
}

std::unique_ptr<data::BatchSource> make_batches(const Config& config, Split split) {
  return reading(config, [&] { return open_data(config)->batches(config, split); });
}

std::unique_ptr<data::BatchSource> make_batches(const Config& config, Split split,
                                                int64_t test_batch) {
  Config own = config;
  own.data.test_batch_size = test_batch;
  return make_batches(own, split);
}

std::unique_ptr<data::BatchSource> training_samples(const Config& config) {
  return open_data(config)->training_samples(config);
}

std::map<std::string, std::string> describing_files(
    const Config& config, const std::function<bool(const std::string& name)>& wanted) {
  const std::shared_ptr<OpenData> data = open_data(config);
  const auto is_wanted = [&](const char* name) { return !wanted || wanted(name); };
  std::map<std::string, std::string> files;
  if (is_wanted("classes.json"))
    if (const std::vector<std::string> names = data->class_names(config); !names.empty())
      files["classes.json"] =
          Json(names).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (is_wanted("columns.json"))
    if (const data::CsvEncoding* const columns = data->columns(config))
      files["columns.json"] =
          columns_json(*columns).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (is_wanted("data.json"))
    if (const std::string known = data_json(config); !known.empty()) files["data.json"] = known;
  return files;
}

data::PictureList labelled_pictures(const Config& config, Split split) {
  return open_data(config)->labelled_pictures(config, split);
}

std::vector<int64_t> samples_ahead(const Config& config, int64_t batch) {
  return open_data(config)->samples_ahead(config, batch);
}

int64_t columns_of_largest(const Config& config, Split split, int64_t batch) {
  return reading(config, [&]() -> int64_t {
    const std::vector<int64_t>& lengths = open_data(config)->row_lengths(config, split);
    const int64_t whole = batch * std::max(config.distributed.ranks, 1);
    return lengths.empty() ? 0 : data::columns_of_largest(lengths, whole);
  });
}

std::vector<int64_t> category_ids(const Config& config) {
  return open_data(config)->category_ids(config);
}

std::vector<int64_t> values_of_masks(const Config& config) {
  return open_data(config)->mask_values(config);
}

std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config) {
  return open_data(config)->tokenizer(config);
}

}  // namespace frugal::apps
