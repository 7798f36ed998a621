#include "data/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "core/quoted.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using json = nlohmann::ordered_json;
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

// Keys in the file's order, each once in its object.
json parse_header(const std::string& path, const std::string& text) {
  try {
    return parse_json<json>(text);
  } catch (const JsonError& error) {
    throw Error(fmt::format("[safetensors] invalid JSON in the header of {}: {}{}{}", path,
                            error.place(), error.place().empty() ? "" : ": ", error.what()));
  }
}

// A value of the header as messages show it.
std::string shown(const json& value) { return printable(value.dump(), 200); }

// A whole number in [0, 2^63); floats and negatives are none.
std::optional<int64_t> whole(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

SafetensorsInfo parse_info(const std::string& path, const std::string& name, const json& value,
                           int64_t data_bytes) {
  const auto field = [&](const char* key) -> const json& {
    FRUGAL_CHECK(value.is_object() && value.contains(key) && value.size() == 3,
                 "[safetensors] expected dtype, shape and data_offsets of {} in {}, got {}",
                 in_quotes(name), path, shown(value));
    return value.at(key);
  };
  const json &type = field("dtype"), &shape = field("shape"), &offsets = field("data_offsets");
  SafetensorsInfo info;
  const auto dtype = type.is_string() ? dtype_of_name(type.get<std::string>()) : std::nullopt;
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
  for (const json& extent : shape) {
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

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = open_file("safetensors", path);
  const int64_t size = file_size("safetensors", path);
  uint64_t length = 0;
  FRUGAL_CHECK(size >= 8 && std::fread(&length, 1, 8, file.file_.get()) == 8,
               "[safetensors] expected at least 8 bytes in {}, got {}: the file is truncated", path,
               size);
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
  const json root = parse_header(path_, header);
  FRUGAL_CHECK(root.is_object(), "[safetensors] expected an object as the header of {}, got {}",
               path_, root.type_name());
  if (root.contains(kMetadata)) {
    const json& entries = root.at(kMetadata);
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
  // An empty tensor begins where its successor does, so ties are ordered by the end.
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

}  // namespace frugal::data
