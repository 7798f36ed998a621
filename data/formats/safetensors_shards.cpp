#include "data/formats/safetensors_shards.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/words/quoted.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kFile = ".safetensors";
constexpr const char* kIndex = ".safetensors.index.json";
constexpr int64_t kMaxIndex = 100'000'000;  // bytes

std::string listed_names(const std::vector<std::string>& names) {
  constexpr size_t kShownNames = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShownNames); ++i)
    text += (text.empty() ? "" : ", ") + printable(names[i]);
  return names.size() > kShownNames
             ? fmt::format("{} and {} more", text, names.size() - kShownNames)
             : text;
}

// The index, or the one file, of a folder.
std::string file_in(const std::string& folder) {
  std::vector<std::string> indices, files, others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kIndex))
      indices.push_back(name);
    else if (name.ends_with(kFile))
      files.push_back(name);
    else if (name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt"))
      others.push_back(name);
  }
  for (auto* names : {&indices, &files, &others}) std::sort(names->begin(), names->end());
  // Hugging Face's library reads the one file where both are there.
  if (indices.size() == 1) {
    const std::string whole =
        indices[0].substr(0, indices[0].size() - std::string_view(kIndex).size()) + kFile;
    if (std::binary_search(files.begin(), files.end(), whole)) return folder + "/" + whole;
  }
  const std::vector<std::string>& found = indices.empty() ? files : indices;
  // Opening it says how a pickle becomes safetensors.
  if (found.empty() && !others.empty()) return folder + "/" + others.front();
  FRUGAL_CHECK(found.size() == 1,
               "[safetensors] expected one *{} or *{} in the folder {}, got {}{}", kIndex, kFile,
               folder, found.size(), found.empty() ? "" : ": " + listed_names(found));
  return folder + "/" + found.front();
}

}  // namespace

SafetensorsShards SafetensorsShards::open(const std::string& path) {
  SafetensorsShards shards;
  shards.path_ = path;
  std::error_code none;
  try {
    if (fs::is_directory(path, none)) shards.path_ = file_in(path);
  } catch (const fs::filesystem_error& e) {
    throw Error(
        fmt::format("[safetensors] cannot read the folder {}: {}", path, e.code().message()));
  }
  if (shards.path_.ends_with(kIndex)) {
    shards.read_index(shards.path_);
    return shards;
  }
  shards.files_.push_back(SafetensorsFile::open(shards.path_));
  shards.names_ = shards.files_[0].names();
  for (const std::string& name : shards.names_) shards.file_of_[name] = 0;
  return shards;
}

void SafetensorsShards::read_index(const std::string& path) {
  FRUGAL_CHECK(file_size("safetensors", path) <= kMaxIndex,
               "[safetensors] expected an index of at most {} bytes, got {} with {}", kMaxIndex,
               path, file_size("safetensors", path));
  const std::vector<uint8_t> bytes = read_file("safetensors", path);
  ordered_json root;
  try {
    root = parse_json<ordered_json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& error) {
    throw Error(fmt::format("[safetensors] invalid JSON in {}: {}{}{}", path, error.place(),
                            error.place().empty() ? "" : ": ", error.what()));
  }
  FRUGAL_CHECK(root.is_object() && root.contains("weight_map") && root["weight_map"].is_object() &&
                   !root["weight_map"].empty(),
               "[safetensors] expected a weight_map of names and files in {}, got none", path);
  const fs::path folder = fs::path(path).parent_path();
  std::map<std::string, std::vector<std::string>> tensors;  // names of tensors by file
  std::vector<std::string> order;                           // the files in the order of the map
  for (const auto& [name, file] : root["weight_map"].items()) {
    FRUGAL_CHECK(file.is_string(), "[safetensors] expected the file of {} in {}, got {}",
                 in_quotes(name), path, file.type_name());
    const auto& text = file.get_ref<const std::string&>();
    FRUGAL_CHECK(!text.empty() && text != "." && text != ".." &&
                     text.find('/') == std::string::npos && text.find('\0') == std::string::npos,
                 "[safetensors] expected a file beside {} for {}, got {}", path, in_quotes(name),
                 in_quotes(text));
    if (!tensors.contains(text)) order.push_back(text);
    tensors[text].push_back(name);
  }
  std::vector<std::string> missing;
  for (const std::string& file : order)
    if (!is_file((folder / file).string())) missing.push_back(file);
  FRUGAL_CHECK(
      missing.empty(),
      "[safetensors] {} names {} files; {} of them {} not there: {}. Copy all files of the "
      "weights into one folder",
      path, order.size(), missing.size(), missing.size() == 1 ? "is" : "are",
      listed_names(missing));
  for (const std::string& file : order) {
    files_.push_back(SafetensorsFile::open((folder / file).string()));
    for (const std::string& name : tensors[file]) {
      FRUGAL_CHECK(files_.back().contains(name),
                   "[safetensors] expected {} in {}, as {} says, got none", in_quotes(name),
                   files_.back().path(), path);
      names_.push_back(name);
      file_of_[name] = files_.size() - 1;
    }
  }
}

std::vector<std::string> SafetensorsShards::files() const {
  std::vector<std::string> paths;
  for (const SafetensorsFile& file : files_) paths.push_back(file.path());
  return paths;
}

const SafetensorsInfo& SafetensorsShards::info(const std::string& name) const {
  return files_[file_of_.at(name)].info(name);
}

Tensor SafetensorsShards::read(const std::string& name) const {
  return files_[file_of_.at(name)].read(name);
}

Tensor SafetensorsShards::read_signed_bytes(const std::string& name) const {
  return files_[file_of_.at(name)].read_signed_bytes(name);
}

std::vector<std::pair<std::string, Tensor>> SafetensorsShards::read_all() const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : names_)
    tensors.emplace_back(name, files_[file_of_.at(name)].read(name));
  return tensors;
}

}  // namespace frugal::data
