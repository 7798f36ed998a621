#include "apps/config/run_encoding.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unordered_set>

#include "apps/config/data/data_kinds.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/fetch/sha256.h"
#include "data/formats/file_bytes.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDataVersion = 1;                   // the format of data.json
constexpr int64_t kMostIndex = int64_t{1} << 40;      // the highest index of a sample
constexpr size_t kMostReadFiles = 64;                 // contents count in so many files or fewer
constexpr int64_t kMostReadBytes = int64_t{4} << 20;  // a file of so many bytes is read whole
constexpr int64_t kLookedAtBytes = int64_t{1} << 20;  // read at each end of a larger file

struct DataFile {
  std::string name;  // below data.dir
  fs::path path;
};

// A folder of data may hold runs.
bool is_run_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored) &&
         fs::is_directory(path / "checkpoint", ignored);
}

void add_files(const fs::path& dir, const fs::path& folder, bool recursive,
               const std::function<bool(const std::string& name)>& wanted,
               std::vector<DataFile>& files) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path& path = entry.path();
    if (entry.is_directory(ignored)) {
      if (recursive && !entry.is_symlink(ignored) && !is_run_folder(path))
        add_files(dir, path, true, wanted, files);
    } else if (entry.is_regular_file(ignored) && wanted(path.filename().string())) {
      files.push_back({path.lexically_relative(dir).string(), path});
    }
  }
}

// The files of a set that lies beside the file `mark`.
std::function<bool(const std::string&)> relatives_of(const std::string& mark) {
  const fs::path path = mark;
  const std::string ending = path.extension().string();
  if (mark.starts_with("ind.")) {
    const std::string begin = mark.substr(0, mark.find('.', 4) + 1);
    return [begin](const std::string& name) { return name.starts_with(begin); };
  }
  if (mark.find("-ubyte") != std::string::npos)
    return [](const std::string& name) { return name.find("-ubyte") != std::string::npos; };
  if (ending == ".bin" || ending == ".csv" || ending == ".tsv" || ending == ".txt")
    return [ending](const std::string& name) { return name.ends_with(ending); };
  return [](const std::string&) { return true; };
}

bool is_data_name(const std::string& name) {
  static const std::vector<std::string> endings = {
      ".csv", ".csv.gz", ".json", ".jsonl", ".txt", ".npz", ".safetensors", ".jsonl.gz", ".npy"};
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

std::vector<DataFile> data_files(const Config& config) {
  const DataTraits traits = data_traits(config);
  std::vector<DataFile> files;
  if (!traits.reads_files || !config.data.dir) return files;
  const fs::path dir = *config.data.dir;
  std::error_code ignored;
  if (fs::is_regular_file(dir, ignored)) return {{dir.filename().string(), dir}};
  const bool pictures = traits.kind == BatchSpec::Kind::images && config.data.name != "tensors";
  bool found = false;
  for (const std::string& mark : marks_of(config)) {
    const fs::path path = dir / mark;
    if (found || !fs::exists(path, ignored)) continue;
    const bool folder = fs::is_directory(path, ignored);
    add_files(dir, folder ? path : path.parent_path(), false,
              folder ? relatives_of("") : relatives_of(path.filename().string()), files);
    found = true;
  }
  if (!found && pictures)
    add_files(
        dir, dir, true, [](const std::string&) { return true; }, files);
  else if (!found)
    add_files(dir, dir, false, is_data_name, files);
  std::sort(files.begin(), files.end(),
            [](const DataFile& a, const DataFile& b) { return a.name < b.name; });
  return files;
}

// The SHA-256 of a small file, or of both ends of a larger one.
std::string contents_of(const fs::path& path) {
  const std::string file = path.string();
  const auto text = [](const std::vector<uint8_t>& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const int64_t size = data::file_size("data", file);
  if (size <= kMostReadBytes) return data::sha256_hex(text(data::read_file("data", file)));
  std::string found;
  const data::FileHandle handle = data::open_file("data", file);
  for (const int64_t at : {int64_t{0}, size - kLookedAtBytes}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(kLookedAtBytes));
    FRUGAL_CHECK(std::fseek(handle.get(), static_cast<long>(at), SEEK_SET) == 0 &&
                     std::fread(bytes.data(), 1, bytes.size(), handle.get()) == bytes.size(),
                 "[data] cannot read {}", in_quotes(file));
    found += data::sha256_hex(text(bytes));
  }
  return found;
}

bool are_utf8(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    try {
      static_cast<void>(Json(name).dump());
      return true;
    } catch (const Json::exception&) {
      return false;
    }
  });
}

std::vector<double> finite_numbers(const Json& json, const char* key) {
  auto all = json.at(key).get<std::vector<double>>();
  for (const double value : all)
    FRUGAL_CHECK(std::isfinite(value), "expected finite numbers as \"{}\"", key);
  return all;
}

std::vector<int64_t> indices_from(const Json& json) {
  FRUGAL_CHECK(json.is_array(), "expected a list of samples, got {}", json.type_name());
  std::vector<int64_t> all;
  for (const Json& each : json) {
    const int64_t least = all.empty() ? 0 : all.back() + 1;
    FRUGAL_CHECK(each.is_number_integer() && each >= least && each <= kMostIndex,
                 "expected rising indices of samples, got {}", in_quotes(each.dump()));
    all.push_back(each.get<int64_t>());
  }
  return all;
}

}  // namespace

std::optional<DataDigest> digest_of(const Config& config) {
  Config own = config;
  find_data_dir(own);
  const std::vector<DataFile> files = data_files(own);
  if (files.empty()) return std::nullopt;
  DataDigest digest;
  std::string text;
  for (const DataFile& file : files) {
    std::error_code ignored;
    const auto bytes = static_cast<int64_t>(fs::file_size(file.path, ignored));
    ++digest.files;
    digest.bytes += std::max<int64_t>(bytes, 0);
    // The name of data in one file may change, as that of their folder may.
    text += files.size() == 1 ? std::to_string(bytes) : fmt::format("{} {}\n", file.name, bytes);
    if (files.size() <= kMostReadFiles) text += contents_of(file.path) + "\n";
  }
  digest.sha256 = data::sha256_hex(text);
  return digest;
}

std::string data_change(const Config& config, const RunEncoding& known) {
  if (!known.digest) return "";
  const std::optional<DataDigest> now = digest_of(config);
  if (!now || *now == *known.digest) return "";
  const auto shown = [](const DataDigest& digest) {
    return fmt::format("{} of {}", with_noun(digest.files, "file"),
                       with_noun(digest.bytes, "byte"));
  };
  if (now->files == known.digest->files && now->bytes == known.digest->bytes)
    return fmt::format("{}, as many as when the run began, with other names or contents",
                       shown(*now));
  return fmt::format("{}, and {} when the run began", shown(*now), shown(*known.digest));
}

Json digest_json(const DataDigest& digest) {
  return {{"files", digest.files}, {"bytes", digest.bytes}, {"sha256", digest.sha256}};
}

std::string data_json(const Config& config) {
  RunEncoding known;
  describe_data(config, known);
  Json json = {{"version", kDataVersion}};
  if (!known.class_ids.empty() && are_utf8(known.class_ids)) json["class_ids"] = known.class_ids;
  if (!known.column_means.empty()) {
    json["column_means"] = known.column_means;
    json["column_scales"] = known.column_scales;
  }
  if (known.of_bytes) json["of_bytes"] = *known.of_bytes;
  if (known.parts && known.parts->by_name())
    json["parts"] = {{"validation", known.parts->validation_names},
                     {"test", known.parts->test_names}};
  else if (known.parts)
    json["parts"] = {{"validation", known.parts->validation}, {"test", known.parts->test}};
  if (const auto digest = digest_of(config)) json["digest"] = digest_json(*digest);
  return json.size() == 1 ? "" : json.dump() + "\n";
}

void read_data_json(const Json& json, RunEncoding& known) {
  FRUGAL_CHECK(json.at("version") == kDataVersion, "expected version {}, got {}", kDataVersion,
               printable(json.at("version").dump(), 80));
  if (json.contains("class_ids"))
    known.class_ids = json.at("class_ids").get<std::vector<std::string>>();
  if (json.contains("column_means")) {
    known.column_means = finite_numbers(json, "column_means");
    known.column_scales = finite_numbers(json, "column_scales");
    FRUGAL_CHECK(known.column_means.size() == known.column_scales.size(),
                 "expected as many \"column_scales\" as \"column_means\", got {} and {}",
                 known.column_scales.size(), known.column_means.size());
  }
  if (json.contains("of_bytes")) known.of_bytes = json.at("of_bytes").get<bool>();
  if (const auto parts = json.find("parts"); parts != json.end()) {
    known.parts.emplace();
    const Json& test = parts->at("test");
    FRUGAL_CHECK(test.is_array() && !test.empty(), "expected samples to test on, got none");
    if (test.front().is_string()) {
      known.parts->test_names = test.get<std::vector<std::string>>();
      known.parts->validation_names = parts->at("validation").get<std::vector<std::string>>();
    } else {
      known.parts->test = indices_from(test);
      known.parts->validation = indices_from(parts->at("validation"));
    }
  }
  if (const auto digest = json.find("digest"); digest != json.end())
    known.digest = {digest->at("files").get<int64_t>(), digest->at("bytes").get<int64_t>(),
                    digest->at("sha256").get<std::string>()};
}

data::SplitIndices kept_split(const KeptParts& parts, int64_t count,
                              const std::function<std::string(int64_t)>& name) {
  data::SplitIndices split;
  const auto sort_in = [&](int64_t i, bool is_test, bool is_validation) {
    if (is_test) split.test.push_back(i);
    if (is_validation) split.validation.push_back(i);
    if (!is_test && !is_validation) split.train.push_back(i);
  };
  if (parts.by_name() && name) {
    const std::unordered_set<std::string> test(parts.test_names.begin(), parts.test_names.end()),
        validation(parts.validation_names.begin(), parts.validation_names.end());
    for (int64_t i = 0; i < count; ++i) {
      const std::string own = name(i);
      sort_in(i, test.contains(own), validation.contains(own));
    }
    return split;
  }
  const auto holds = [](const std::vector<int64_t>& all, int64_t i) {
    return std::binary_search(all.begin(), all.end(), i);
  };
  for (int64_t i = 0; i < count; ++i) sort_in(i, holds(parts.test, i), holds(parts.validation, i));
  return split;
}

KeptParts parts_of(const data::SplitIndices& split,
                   const std::function<std::string(int64_t)>& name) {
  KeptParts parts;
  const auto names_of = [&](const std::vector<int64_t>& indices) {
    std::vector<std::string> names;
    for (const int64_t i : indices) names.push_back(name(i));
    return names;
  };
  if (name) {
    parts.validation_names = names_of(split.validation);
    parts.test_names = names_of(split.test);
    if (are_utf8(parts.validation_names) && are_utf8(parts.test_names)) return parts;
    parts = {};
  }
  parts.validation = split.validation;
  parts.test = split.test;
  return parts;
}

}  // namespace frugal::apps
