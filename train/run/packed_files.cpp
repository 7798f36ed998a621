#include "train/run/packed_files.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/integers.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "ops/dense/packed_matrix.h"
#include "ops/optimizer/blockwise.h"

namespace frugal::train {
namespace {

using StateJson = nlohmann::json;

constexpr std::string_view kQuantState = ".quant_state.bitsandbytes__";
constexpr std::string_view kMaxima = ".SCB";
constexpr int64_t kMostState = 1 << 16;  // bytes of a JSON text

// The weight to which a tensor with the JSON text belongs; empty: it is none.
std::string weight_of_state(const std::string& name) {
  const size_t at = name.rfind(kQuantState);
  return at == std::string::npos ? "" : name.substr(0, at);
}
std::string layer_of_maxima(const std::string& name) {
  return name.ends_with(kMaxima) ? name.substr(0, name.size() - kMaxima.size()) : "";
}

// Do both lists hold the same numbers? Their last bits depend on who computed them.
template <size_t Count>
bool is_map(const Tensor& values, const std::array<float, Count>& own) {
  const float* x = values.data<float>();
  for (size_t i = 0; i < Count; ++i)
    if (!(std::fabs(x[i] - own[i]) <= std::ldexp(std::fabs(own[i]), -21))) return false;
  return true;
}

}  // namespace

bool PackedFiles::has_packed(const data::SafetensorsShards& files) {
  return std::any_of(files.names().begin(), files.names().end(), [&](const std::string& name) {
    const std::string layer = layer_of_maxima(name);
    return !weight_of_state(name).empty() || (!layer.empty() && files.contains(layer + ".weight"));
  });
}

PackedFiles::PackedFiles(const data::SafetensorsShards& files) : files_(files) {
  std::map<std::string, std::string> of_4_bits;  // weights and their JSON texts
  std::set<std::string> of_8_bits, parts;
  for (const std::string& name : files.names()) {
    const std::string weight = weight_of_state(name), layer = layer_of_maxima(name);
    if (!weight.empty()) {
      if (!of_4_bits.emplace(weight, name).second)
        fail(name, "expected one quant_state for the weight, got two");
      parts.insert(name);
      for (const char* ending : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
        parts.insert(weight + ending);
    } else if (!layer.empty() && files.contains(layer + ".weight")) {
      of_8_bits.insert(layer + ".weight");
      parts.insert({name, layer + ".weight_format"});
    }
  }
  for (const std::string& name : files.names()) {
    if (parts.contains(name)) continue;
    if (const auto state = of_4_bits.find(name); state != of_4_bits.end())
      add_4_bits(name, state->second);
    else if (of_8_bits.contains(name))
      add_8_bits(name.substr(0, name.size() - std::string_view(".weight").size()));
    else
      take_as_is(name);
  }
  for (const auto& [weight, state] : of_4_bits)
    if (!files.contains(weight))
      fail(state, "expected the codes " + in_quotes(weight) + ", got none");
}

void PackedFiles::fail(const std::string& name, const std::string& message) const {
  throw Error(
      fmt::format("[weights] {}: {}: {}", in_quotes(path(), 300), in_quotes(name), message));
}

void PackedFiles::add(const std::string& name, DType dtype, const Shape& shape) {
  names_.push_back(name);
  data::SafetensorsInfo info;
  info.dtype = dtype;
  info.shape = shape;
  infos_[name] = info;
}

void PackedFiles::take_as_is(const std::string& name) {
  names_.push_back(name);
  infos_[name] = files_.info(name);
}

void PackedFiles::want(const std::string& name, DType dtype, const Shape& shape) const {
  if (!files_.contains(name)) fail(name, "expected this part of a packed weight, got none");
  const data::SafetensorsInfo& info = files_.info(name);
  if (info.dtype != dtype || info.shape != shape || info.is_signed_byte)
    fail(name, fmt::format("expected {} {}, got {} {}", name_of(dtype), shape,
                           info.is_signed_byte ? "i8" : name_of(info.dtype), info.shape));
}

void PackedFiles::add_4_bits(const std::string& name, const std::string& state) {
  const data::SafetensorsInfo& given = files_.info(state);
  if (given.dtype != DType::u8 || given.shape.dim() != 1 || given.shape[0] > kMostState)
    fail(state, fmt::format("expected a JSON text of at most {} bytes, got {} {}", kMostState,
                            name_of(given.dtype), given.shape));
  const Tensor bytes = files_.read(state);
  StateJson json;
  try {
    json = data::parse_json<StateJson>(std::string_view(
        reinterpret_cast<const char*>(bytes.data<uint8_t>()), static_cast<size_t>(bytes.numel())));
  } catch (const data::JsonError& error) {
    fail(state, fmt::format("expected JSON, got: {}", error.what()));
  }
  if (!json.is_object()) fail(state, "expected a JSON object");
  const auto entry = [&](const char* key) -> const StateJson& {
    const auto found = json.find(key);
    if (found == json.end()) fail(state, fmt::format("expected the entry {}, got none", key));
    return *found;
  };
  const auto refuse = [&](const char* key, const std::string& expected) {
    fail(state, fmt::format("{}: expected {}, got {}", key, expected,
                            printable(json.value(key, StateJson()).dump(), 80)));
  };
  const auto count = [&](const char* key) {
    const StateJson& value = entry(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 ||
        value.get<uint64_t>() > uint64_t{1} << 30)
      refuse(key, "a whole number from 1 to 2^30");
    return value.get<int64_t>();
  };
  for (const auto& [key, value] : json.items()) {
    const std::set<std::string> known = {"quant_type",   "blocksize",        "dtype",
                                         "shape",        "nested_blocksize", "nested_dtype",
                                         "nested_offset"};
    if (!known.contains(key))
      fail(state, fmt::format("expected no entry {}, as what it changes is not known here",
                              in_quotes(key)));
  }
  const std::string type = state.substr(name.size() + kQuantState.size());
  if (type != "nf4" && type != "fp4") fail(state, "expected the type nf4 or fp4");
  if (entry("quant_type") != type) refuse("quant_type", type);
  const StateJson& shape = entry("shape");
  const auto is_extent = [](const StateJson& extent) {
    return extent.is_number_unsigned() && extent.get<uint64_t>() >= 1 &&
           extent.get<uint64_t>() <= uint64_t{1} << 30;
  };
  if (!shape.is_array() || shape.size() != 2 || !is_extent(shape[0]) || !is_extent(shape[1]))
    refuse("shape", "the two extents of a matrix");
  Weight4 weight;
  weight.name = name;
  weight.rows = shape[0].get<int64_t>();
  weight.columns = shape[1].get<int64_t>();
  weight.block = count("blocksize");
  if (weight.block % 2 != 0) refuse("blocksize", "an even number");
  const int64_t n = weight.rows * weight.columns, blocks = ceil_div(n, weight.block);
  const bool nested = json.contains("nested_blocksize");
  want(name, DType::u8, {ceil_div(n, int64_t{2}), 1});
  want(name + ".quant_map", DType::f32, {16});
  want(name + ".absmax", nested ? DType::u8 : DType::f32, {blocks});
  bool equal = type == "nf4" && nested && weight.block == ops::kNf4Block &&
               is_map(files_.read(name + ".quant_map"), ops::nf4_values());
  if (nested) {
    weight.nested_block = count("nested_blocksize");
    if (json.contains("nested_dtype") && json["nested_dtype"] != "float32")
      refuse("nested_dtype", "float32");
    const StateJson& offset = entry("nested_offset");
    if (!offset.is_number() || !std::isfinite(offset.get<float>()))
      refuse("nested_offset", "a number");
    weight.offset = offset.get<float>();
    want(name + ".nested_quant_map", DType::f32, {256});
    want(name + ".nested_absmax", DType::f32, {ceil_div(blocks, weight.nested_block)});
    equal = equal && weight.nested_block == ops::kStateBlock &&
            is_map(files_.read(name + ".nested_quant_map"),
                   ops::state_map_values(ops::StateMap::with_sign));
  } else {
    for (const char* ending : {".nested_absmax", ".nested_quant_map"})
      if (files_.contains(name + ending))
        fail(name + ending, "expected no such part, as the quant_state has no nested_blocksize");
  }
  if (!equal) {
    add(name, DType::f32, {weight.rows, weight.columns});
    whole_[name] = weight;
    ++through_f32_;
    return;
  }
  take_as_is(name);
  take_as_is(name + ".absmax");
  take_as_is(name + ".nested_absmax");
  add(name + ".nested_offset", DType::f32, {1});
  offsets_[name + ".nested_offset"] = weight.offset;
  ++as_they_are_;
}

void PackedFiles::add_8_bits(const std::string& layer) {
  const std::string name = layer + ".weight", maxima = layer + std::string(kMaxima);
  const data::SafetensorsInfo& info = files_.info(name);
  if (!info.is_signed_byte || info.shape.dim() != 2)
    fail(name, fmt::format("expected a matrix of I8 beside {}, got {} {}", in_quotes(maxima),
                           name_of(info.dtype), info.shape));
  want(maxima, DType::f32, {info.shape[0]});
  if (const std::string format = layer + ".weight_format"; files_.contains(format)) {
    const data::SafetensorsInfo& own = files_.info(format);
    if (own.dtype != DType::u8 || own.shape.numel() != 1 ||
        files_.read(format).data<uint8_t>()[0] != 0)
      fail(format, "expected 0, which stands for rows in their order");
  }
  take_as_is(name);
  add(name + ".absmax", DType::f32, {info.shape[0]});
  maxima_[name + ".absmax"] = maxima;
  ++as_they_are_;
}

Tensor PackedFiles::read(const std::string& name) const {
  if (const auto weight = whole_.find(name); weight != whole_.end())
    return unpacked(weight->second);
  if (const auto offset = offsets_.find(name); offset != offsets_.end())
    return Tensor::from(std::vector<float>{offset->second}, {1});
  if (const auto maxima = maxima_.find(name); maxima != maxima_.end()) {
    const Tensor scales = files_.read(maxima->second);  // an own tensor: it may be written
    for (int64_t i = 0; i < scales.numel(); ++i) scales.mut<float>()[i] /= 127;
    return scales;
  }
  return files_.info(name).is_signed_byte ? files_.read_signed_bytes(name) : files_.read(name);
}

Tensor PackedFiles::unpacked(const Weight4& w) const {
  const Tensor codes = files_.read(w.name), map = files_.read(w.name + ".quant_map"),
               scales = files_.read(w.name + ".absmax");
  Tensor nested, nested_map;
  if (w.nested_block > 0) {
    nested = files_.read(w.name + ".nested_absmax");
    nested_map = files_.read(w.name + ".nested_quant_map");
  }
  const auto scale_of = [&](int64_t block) {
    if (w.nested_block == 0) return scales.data<float>()[block];
    return nested_map.data<float>()[scales.data<uint8_t>()[block]] *
               nested.data<float>()[block / w.nested_block] +
           w.offset;
  };
  const Tensor whole = Tensor::empty({w.rows, w.columns}, DType::f32);
  const uint8_t* bytes = codes.data<uint8_t>();
  auto* to = whole.mut<float>();
  float scale = 0;
  for (int64_t i = 0; i < whole.numel(); ++i) {
    if (i % w.block == 0) scale = scale_of(i / w.block);
    const int code = i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15;
    to[i] = map.data<float>()[code] * scale;
  }
  return whole;
}

std::string PackedFiles::describe() const {
  std::string text;
  if (as_they_are_ > 0)
    text = fmt::format("with their bytes as bitsandbytes has packed them: {}",
                       with_noun(as_they_are_, "weight"));
  if (through_f32_ > 0)
    text += fmt::format(
        "{}read as f32, because bitsandbytes has packed them otherwise than in nf4 with double "
        "quantization: {}",
        text.empty() ? "" : "; ", with_noun(through_f32_, "weight"));
  return text;
}

}  // namespace frugal::train
