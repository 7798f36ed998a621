#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/safetensors.h"

namespace frugal::data {
namespace {

using nlohmann::ordered_json;

const char* name_in_file(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::u8:
      return "U8";
    case DType::bool_:
      return "BOOL";
  }
  throw InternalError("unknown dtype");
}

// The tensor on the host. Of another device, its bytes come as they lie there: axes are put in the
// order of their strides, and back after the copy.
Tensor on_host(const std::string& name, const Tensor& tensor) {
  if (tensor.device() == kCpu) return tensor;
  std::vector<int> axes(static_cast<size_t>(tensor.dim()));
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return tensor.strides()[a] > tensor.strides()[b]; });
  const Tensor plain = tensor.permute(axes);
  FRUGAL_CHECK(
      plain.is_contiguous(),
      "[safetensors] expected a permutation of a contiguous tensor for \"{}\", got {} with "
      "strides {}",
      name, describe(tensor), tensor.strides());
  std::vector<int> back(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) back[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return to_device(plain, kCpu).permute(back);
}

// In pieces of about 1 MB, so that a strided tensor needs no second copy of itself.
void write_tensor(AtomicFile& file, const Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const auto* base = static_cast<const char*>(tensor.raw());
  if (tensor.is_contiguous()) {
    file.write(base, static_cast<size_t>(tensor.nbytes()));
    return;
  }
  const auto width = static_cast<int64_t>(size_of(tensor.dtype()));
  const int64_t inner = tensor.size(-1), step = tensor.strides().back() * width;
  std::vector<char> piece;
  std::vector<int64_t> at(static_cast<size_t>(tensor.dim() - 1), 0);  // outer position, by axis
  for (int64_t row = 0; row < tensor.numel() / inner; ++row) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis)
      offset += at[axis] * tensor.strides()[static_cast<int>(axis)];
    const char* from = base + offset * width;
    for (int64_t i = 0; i < inner; ++i)
      piece.insert(piece.end(), from + i * step, from + i * step + width);
    if (piece.size() >= size_t{1} << 20) {
      file.write(piece.data(), piece.size());
      piece.clear();
    }
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < tensor.shape()[static_cast<int>(axis)]) break;
      at[axis] = 0;
    }
  }
  file.write(piece.data(), piece.size());
}

}  // namespace

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const Metadata& metadata) {
  std::set<std::string> seen;
  for (const auto& [name, tensor] : tensors) {
    FRUGAL_CHECK(seen.insert(name).second, "[safetensors] expected each name once, got {} twice",
                 in_quotes(name));
    FRUGAL_CHECK(name != "__metadata__", "[safetensors] expected another name than __metadata__");
    FRUGAL_CHECK(tensor.defined() && tensor.device().type != DeviceType::meta,
                 "[safetensors] expected a tensor on cpu or cuda for {}, got {}", in_quotes(name),
                 describe(tensor));
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  std::vector<int64_t> begin(tensors.size());
  int64_t at = 0;
  for (size_t i : order) {
    begin[i] = at;
    at += tensors[i].second.nbytes();
  }
  // An object whose keys keep their order would look through all of them at each new one.
  std::string text = "{";
  const auto add = [&](const std::string& key, const ordered_json& value) {
    if (text.size() > 1) text += ',';
    text += ordered_json(key).dump() + ":" + value.dump();
  };
  try {
    if (!metadata.empty()) add("__metadata__", metadata);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, tensor] = tensors[i];
      ordered_json shape = ordered_json::array();
      for (int64_t extent : tensor.shape()) shape.push_back(extent);
      add(name, {{"dtype", name_in_file(tensor.dtype())},
                 {"shape", shape},
                 {"data_offsets", {begin[i], begin[i] + tensor.nbytes()}}});
    }
    text += '}';
  } catch (const ordered_json::exception& error) {
    throw Error(fmt::format("[safetensors] expected names and metadata in UTF-8 for {}, got: {}",
                            path, error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin aligned
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (size_t i : order) write_tensor(file, on_host(tensors[i].first, tensors[i].second));
  file.commit();
}

}  // namespace frugal::data
