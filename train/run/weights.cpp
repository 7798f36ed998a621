#include "train/run/weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <type_traits>

#include "core/dtype_switch.h"
#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "train/run/packed_files.h"

namespace frugal::train {

void check_finite(const std::string& path, const std::string& name, const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return;
  with_dtype(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* values = tensor.data<T>();
    constexpr int64_t kChunk = 4096;  // without a way out of the loop, it is vectorized
    for (int64_t begin = 0; begin < tensor.numel(); begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, tensor.numel());
      bool finite = true;
      for (int64_t i = begin; i < end; ++i)
        finite = finite & std::isfinite(static_cast<float>(values[i]));
      if (finite) continue;
      const T* bad = std::find_if(values + begin, values + end, [](T value) {
        return !std::isfinite(static_cast<float>(value));
      });
      double value = 0;
      if constexpr (std::is_same_v<T, double>)
        value = *bad;
      else
        value = static_cast<double>(static_cast<float>(*bad));
      FRUGAL_CHECK(false,
                   "[weights] expected finite values in f32's range in {}, got {} at element {} of "
                   "{}",
                   path, value, bad - values, in_quotes(name));
    }
  });
}

namespace {

namespace fs = std::filesystem;

template <class File>
models::StateNotes load_from(Module& module, const File& file,
                             const models::StateOptions& options) {
  models::NamedTensors described;  // wrong files are found before their values are read
  for (const std::string& name : file.names()) {
    const data::SafetensorsInfo& info = file.info(name);
    described.emplace_back(name, Tensor::empty(info.shape, info.dtype, kMeta));
  }
  const models::StateNotes notes =
      models::check_state_dict(module, described, file.path(), options);
  const auto read = [&](const std::string& name) {
    Tensor tensor = file.read(name);
    check_finite(file.path(), name, tensor);
    return tensor;
  };
  // Only values tell whether an ignored matrix is the copy of another one, which must be equal.
  const bool by_values =
      std::any_of(notes.ignored.begin(), notes.ignored.end(),
                  [&](const std::string& name) { return file.info(name).shape.dim() == 2; });
  if (!notes.as_given || by_values) {
    models::NamedTensors state;
    for (const std::string& name : file.names()) state.emplace_back(name, read(name));
    return models::load_state_dict(module, state, file.path(), options);
  }
  std::map<uint64_t, std::string> name_of;
  for (const auto& [name, tensor] : described) name_of[tensor.storage()->id()] = name;
  return models::load_state_dict(module, described, file.path(), options, [&](const Tensor& x) {
    return read(name_of.at(x.storage()->id()));
  });
}

// A line for each name, of ten at the most.
std::string lines_of(const std::vector<std::string>& names) {
  constexpr const char* kLine = "\n    ";
  return kLine + some_of(names, 10, kLine);
}

}  // namespace

data::SafetensorsShards open_weights(const std::string& path) {
  std::error_code none;
  const fs::path checkpoints = fs::path(path) / "checkpoint";
  if (!fs::is_directory(checkpoints, none)) return data::SafetensorsShards::open(path);
  for (const char* name : {"best.safetensors", "last_average.safetensors", "last.safetensors"})
    if (const fs::path file = checkpoints / name; fs::exists(file, none))
      return data::SafetensorsShards::open(file.string());
  throw Error(fmt::format("[weights] expected a checkpoint of the run in {}, got none yet", path));
}

models::StateNotes load_weights(Module& module, const data::SafetensorsShards& weights,
                                const models::StateOptions& options) {
  if (!PackedFiles::has_packed(weights)) return load_from(module, weights, options);
  const PackedFiles packed(weights);
  log().info("[weights] {}", packed.describe());
  return load_from(module, packed, options);
}

models::NamedTensors read_weights(const data::SafetensorsShards& weights) {
  if (!PackedFiles::has_packed(weights)) return weights.read_all();
  const PackedFiles packed(weights);
  models::NamedTensors all;
  for (const std::string& name : packed.names()) all.emplace_back(name, packed.read(name));
  return all;
}

models::NamedTensors described_weights(const data::SafetensorsShards& weights) {
  models::NamedTensors all;
  const auto add = [&](const auto& files) {
    for (const std::string& name : files.names()) {
      const data::SafetensorsInfo& info = files.info(name);
      all.emplace_back(name, Tensor::empty(info.shape, info.dtype, kMeta));
    }
  };
  if (PackedFiles::has_packed(weights))
    add(PackedFiles(weights));
  else
    add(weights);
  return all;
}

models::StateNotes load_weights(Module& module, const data::SafetensorsFile& file,
                                const models::StateOptions& options) {
  return load_from(module, file, options);
}

std::string describe(const data::SafetensorsShards& weights, const models::StateNotes& notes) {
  std::string text = fmt::format("weights of {}", weights.path());
  if (!notes.reset.empty()) {
    text +=
        fmt::format("\n  the last layer starts anew, with {}{} ({}):{}",
                    with_noun(notes.classes, "class", "classes"),
                    notes.classes_of_file > 0 ? fmt::format(" instead of {}", notes.classes_of_file)
                                              : std::string(),
                    notes.reset.size(), lines_of(notes.reset));
  }
  std::vector<std::string> left_out;  // under other names than what starts anew
  for (const std::string& name : notes.left_out)
    if (std::find(notes.reset.begin(), notes.reset.end(), name) == notes.reset.end())
      left_out.push_back(name);
  if (!left_out.empty())
    text += fmt::format("\n  not taken, as they belong to the file's last layer ({}):{}",
                        left_out.size(), lines_of(left_out));
  if (!notes.resized.empty()) {
    std::vector<std::string> changes;
    for (const auto& [name, from, to] : notes.resized)
      changes.push_back(fmt::format("{}: from {} x {} to {} x {}", name, from, from, to, to));
    text += fmt::format(
        "\n  positions interpolated to another grid, as the weights are for another "
        "picture size or window ({}):{}",
        changes.size(), lines_of(changes));
  }
  if (!notes.ignored.empty())
    text += fmt::format("\n  ignored, as no result depends on them ({}):{}", notes.ignored.size(),
                        lines_of(notes.ignored));
  if (!notes.uncounted.empty())
    text += fmt::format("\n  missing, and no result depends on them ({}):{}",
                        notes.uncounted.size(), lines_of(notes.uncounted));
  return text;
}

}  // namespace frugal::train
