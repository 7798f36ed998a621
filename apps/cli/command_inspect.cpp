#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/json.h"
#include "core/quoted.h"
#include "data/formats/safetensors.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

constexpr size_t kMetadataShown = 4096;  // bytes; a run's state holds its configuration there

}  // namespace

void inspect_command(const std::string& path, bool json) {
  const auto file = data::SafetensorsFile::open(path);
  Json tensors = Json::array(), metadata = Json::object();
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  int64_t bytes = 0, elements = 0;
  for (const std::string& name : file.names()) {
    const data::SafetensorsInfo& info = file.info(name);
    const std::string dtype(name_of(info.dtype));
    bytes += info.end - info.begin;
    elements += info.shape.numel();
    tensors.push_back({{"name", name},
                       {"dtype", dtype},
                       {"shape", std::vector<int64_t>(info.shape.begin(), info.shape.end())},
                       {"bytes", info.end - info.begin}});
    rows.push_back(
        {printable(name), dtype, info.shape.str(), std::to_string(info.end - info.begin)});
  }
  // [] would look through all keys at each new one.
  auto& entries = metadata.get_ref<Json::object_t&>();
  for (const auto& [key, value] : file.metadata()) entries.emplace_back(key, value);
  if (json) {
    const Json document = {{"file", path},
                           {"tensors", tensors},
                           {"metadata", metadata},
                           {"total_bytes", bytes},
                           {"total_elements", elements}};
    // Escaped, so that no name reaches a terminal as it is.
    std::printf("%s\n", document.dump(2, ' ', true).c_str());
    return;
  }
  std::printf("%s", table(rows).c_str());
  std::printf("%zu tensors, %lld elements, %s\n", file.names().size(),
              static_cast<long long>(elements), readable_bytes(bytes).c_str());
  for (const auto& [key, value] : file.metadata())
    std::printf("metadata %s: %s\n", printable(key).c_str(),
                printable(value, kMetadataShown).c_str());
}

}  // namespace frugal::apps
