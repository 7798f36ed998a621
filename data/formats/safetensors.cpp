#include "data/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using nlohmann::ordered_json;
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

std::optional<DType> dtype_of_name(const std::string& name) {
  static const std::map<std::string, DType> table = {
      {"F64", DType::f64}, {"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16},
      {"I64", DType::i64}, {"I32", DType::i32}, {"U8", DType::u8},     {"BOOL", DType::bool_}};
  const auto found = table.find(name);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

// The header. Its keys are in the file's order, and each occurs once.
ordered_json parse_header(const std::string& path, const std::string& text) {
  try {
    return parse_json<ordered_json>(text);
  } catch (const JsonError& error) {
    throw Error(fmt::format("[safetensors] invalid JSON in the header of {}: {}{}{}", path,
                            error.place(), error.place().empty() ? "" : ": ", error.what()));
  }
}

// A value of the header, for messages.
std::string shown(const ordered_json& value) { return printable(value.dump(), 200); }

// The value as a whole number in [0, 2^63); nothing for other values.
std::optional<int64_t> whole(const ordered_json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

SafetensorsInfo parse_info(const std::string& path, const std::string& name,
                           const ordered_json& value, int64_t data_bytes) {
  const auto field = [&](const char* key) -> const ordered_json& {
    FRUGAL_CHECK(value.is_object() && value.contains(key) && value.size() == 3,
                 "[safetensors] expected dtype, shape and data_offsets of {} in {}, got {}",
                 in_quotes(name), path, shown(value));
    return value.at(key);
  };
  const ordered_json &type = field("dtype"), &shape = field("shape"),
                     &offsets = field("data_offsets");
  SafetensorsInfo info;
  info.is_signed_byte = type == "I8";
  const auto dtype = info.is_signed_byte ? DType::u8
                     : type.is_string()  ? dtype_of_name(type.get<std::string>())
                                         : std::nullopt;
  FRUGAL_CHECK(dtype,
               "[safetensors] expected a dtype of F64 F32 BF16 F16 I64 I32 U8 BOOL for {} in "
               "{}, got {}",
               in_quotes(name), path, shown(type));
  info.dtype = *dtype;
  FRUGAL_CHECK(shape.is_array() && shape.size() <= Shape::kMaxDim,
               "[safetensors] expected a shape of at most {} extents for {} in {}, got {}",
               Shape::kMaxDim, in_quotes(name), path, shown(shape));
  auto bytes = static_cast<int64_t>(size_of(info.dtype));
  bool overflow = false;
  for (const ordered_json& extent : shape) {
    const auto number = whole(extent);
    FRUGAL_CHECK(number, "[safetensors] expected extents of at least 0 for {} in {}, got {}",
                 in_quotes(name), path, shown(shape));
    overflow = __builtin_mul_overflow(bytes, *number, &bytes) || overflow;
    info.shape.push_back(*number);
  }
  FRUGAL_CHECK(!overflow, "[safetensors] the shape of {} in {} overflows: {}", in_quotes(name),
               path, info.shape);
  const auto begin = offsets.is_array() && offsets.size() == 2 ? whole(offsets[0]) : std::nullopt;
  const auto end = begin ? whole(offsets[1]) : std::nullopt;
  FRUGAL_CHECK(begin && end && *begin <= *end && *end <= data_bytes,
               "[safetensors] expected data_offsets in [0, {}] for {} in {}, got {}; is the "
               "file truncated?",
               data_bytes, in_quotes(name), path, shown(offsets));
  info.begin = *begin;
  info.end = *end;
  FRUGAL_CHECK(info.end - info.begin == bytes,
               "[safetensors] expected {} bytes for {} {} {} in {}, got {}", bytes, in_quotes(name),
               info.shape, type.get<std::string>(), path, info.end - info.begin);
  return info;
}

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

// The tensor on the host. A tensor of another device is copied in the order of its memory: its axes
// are sorted by their strides, and get their order back after the copy.
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

// Writes pieces of about 1 MB, so that a strided tensor is never copied as a whole.
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
  std::vector<int64_t> at(static_cast<size_t>(tensor.dim() - 1),
                          0);  // the position in each outer axis
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

// Is this the beginning of what torch.save() writes: a zip archive, or before PyTorch 1.6 a pickle
// of protocol 2 or later whose first value is a long number, as no length of a header begins?
bool begins_as_pickle(const char (&first)[8]) {
  const std::string_view text(first, sizeof(first));
  const bool zip =
      text.starts_with("PK\x03\x04") && text.substr(4) != std::string_view("\0\0\0\0", 4);
  return zip || text.starts_with(std::string_view("\x80\x02\x8a\x0a", 4));
}

// How it becomes safetensors. Tensors that share memory are written once each.
constexpr const char* kConversion =
    "python3 -c 'import sys, torch, safetensors.torch as s; w = torch.load(sys.argv[1], "
    "map_location=\"cpu\", weights_only=True); w = w.get(\"state_dict\", w); "
    "s.save_file({k: v.clone().contiguous() for k, v in w.items() if hasattr(v, \"shape\")}, "
    "sys.argv[2])'";

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = open_file("safetensors", path);
  const int64_t size = file_size("safetensors", path);
  char first[8] = {};
  FRUGAL_CHECK(size >= 8 && std::fread(first, 1, 8, file.file_.get()) == 8,
               "[safetensors] expected at least 8 bytes in {}, got {}: the file is truncated", path,
               size);
  FRUGAL_CHECK(
      !begins_as_pickle(first),
      "[safetensors] expected safetensors, got a pickle of PyTorch in {}. A pickle may run "
      "any program when it is read, so it is not read here. This makes safetensors of "
      "it:\n  {} {} {}",
      path, kConversion, shell_word(path),
      shell_word(path.substr(0, path.rfind('.')) + ".safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, first, sizeof(length));
  FRUGAL_CHECK(length <= kMaxHeader && length <= static_cast<uint64_t>(size) - 8,
               "[safetensors] expected a header of at most {} bytes in {}, got a length of {}; is "
               "the file truncated or another format?",
               std::min<uint64_t>(kMaxHeader, static_cast<uint64_t>(size) - 8), path, length);
  std::string header(length, '\0');
  FRUGAL_CHECK(std::fread(header.data(), 1, header.size(), file.file_.get()) == header.size(),
               "[safetensors] cannot read the header of {}", path);
  file.data_begin_ = static_cast<int64_t>(length) + 8;
  file.parse(header, size - file.data_begin_);
  return file;
}

void SafetensorsFile::parse(const std::string& header, int64_t data_bytes) {
  const ordered_json root = parse_header(path_, header);
  FRUGAL_CHECK(root.is_object(), "[safetensors] expected an object as the header of {}, got {}",
               path_, root.type_name());
  if (root.contains(kMetadata)) {
    const ordered_json& entries = root.at(kMetadata);
    FRUGAL_CHECK(entries.is_object(),
                 "[safetensors] expected __metadata__ of strings in {}, got {}", path_,
                 entries.type_name());
    for (const auto& [key, value] : entries.items()) {
      FRUGAL_CHECK(value.is_string(),
                   "[safetensors] expected a string for __metadata__ {} in {}, got {}",
                   in_quotes(key), path_, value.type_name());
      metadata_[key] = value.get<std::string>();
    }
  }
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) continue;
    names_.push_back(name);
    infos_[name] = parse_info(path_, name, value, data_bytes);
  }
  std::vector<std::pair<int64_t, const std::string*>> order;
  for (const std::string& name : names_) order.emplace_back(infos_[name].begin, &name);
  // An empty tensor begins where the next one begins, so tensors of equal begin are sorted by end.
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.first, infos_[*a.second].end) < std::pair(b.first, infos_[*b.second].end);
  });
  int64_t at = 0;
  for (const auto& [begin, name] : order) {
    FRUGAL_CHECK(begin == at,
                 "[safetensors] expected {} to begin at offset {} of the data in {}, got {}: "
                 "tensors {}",
                 in_quotes(*name), at, path_, begin, begin < at ? "overlap" : "leave a gap");
    at = infos_[*name].end;
  }
  FRUGAL_CHECK(at == data_bytes,
               "[safetensors] expected {} bytes of data in {}, as the header says, got {}", at,
               path_, data_bytes);
}

const SafetensorsInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = infos_.find(name);
  FRUGAL_CHECK(found != infos_.end(), "[safetensors] expected a tensor {} in {}, got none",
               in_quotes(name), path_);
  return found->second;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  FRUGAL_CHECK(!info(name).is_signed_byte,
               "[safetensors] expected a dtype of F64 F32 BF16 F16 I64 I32 U8 BOOL for {} in {}, "
               "got I8, which only weights in 8 bits may have, beside their scales",
               in_quotes(name), path_);
  return read_bytes(name);
}

Tensor SafetensorsFile::read_signed_bytes(const std::string& name) const {
  FRUGAL_ASSERT(info(name).is_signed_byte);
  return read_bytes(name);
}

Tensor SafetensorsFile::read_bytes(const std::string& name) const {
  const SafetensorsInfo& entry = info(name);
  const Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
  const auto bytes = static_cast<size_t>(entry.end - entry.begin);
  if (bytes == 0) return tensor;
  const bool found = fseeko(file_.get(), data_begin_ + entry.begin, SEEK_SET) == 0;
  FRUGAL_CHECK(found && std::fread(tensor.raw(), 1, bytes, file_.get()) == bytes,
               "[safetensors] cannot read {} bytes of {} in {}: the file was cut", bytes,
               in_quotes(name), path_);
  if (entry.dtype == DType::bool_) {
    const auto* values = static_cast<const uint8_t*>(tensor.raw());
    FRUGAL_CHECK(std::all_of(values, values + bytes, [](uint8_t value) { return value <= 1; }),
                 "[safetensors] expected bytes 0 or 1 in BOOL {} of {}, got another",
                 in_quotes(name), path_);
  }
  return tensor;
}

std::vector<std::pair<std::string, Tensor>> SafetensorsFile::read_all() const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : names_) tensors.emplace_back(name, read(name));
  return tensors;
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const Metadata& metadata) {
  written_safetensors(path, tensors, metadata)->commit();
}

std::unique_ptr<AtomicFile> written_safetensors(
    const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
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
  // An ordered object would compare each new key with all others.
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
  auto file = std::make_unique<AtomicFile>(path);
  file->write(&length, sizeof(length));
  file->write(text.data(), text.size());
  for (size_t i : order) write_tensor(*file, on_host(tensors[i].first, tensors[i].second));
  return file;
}

}  // namespace frugal::data
