#include "data/formats/gguf.h"

#include <cstring>
#include <optional>
#include <set>
#include <span>

#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kGgufAlignment = 32;
constexpr uint64_t kMostGgufEntries = 1 << 20;
constexpr uint64_t kLongestGgufText = 1 << 20;

enum GgufValue : uint32_t {
  kGgufU8,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufText,
  kGgufList,
  kGgufU64,
  kGgufI64,
  kGgufF64
};
enum GgufTensor : uint32_t { kTensorF32 = 0, kTensorF16 = 1, kTensorBf16 = 30 };

class GgufReader {
 public:
  GgufReader(std::string path, std::vector<uint8_t> bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("[gguf] {}: {}", in_quotes(path_), what));
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, need(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text() {
    const auto size = take<uint64_t>();
    if (size > kLongestGgufText)
      fail(fmt::format("expected texts of at most {} bytes", kLongestGgufText));
    const auto* from = reinterpret_cast<const char*>(need(size));
    return {from, from + size};
  }
  // Nothing: a list, which is passed over.
  std::optional<Gguf::Value> value(uint32_t type) {
    switch (type) {
      case kGgufU8:
        return Gguf::Value(uint64_t{take<uint8_t>()});
      case kGgufI8:
        return Gguf::Value(static_cast<double>(take<int8_t>()));
      case kGgufU16:
        return Gguf::Value(uint64_t{take<uint16_t>()});
      case kGgufI16:
        return Gguf::Value(static_cast<double>(take<int16_t>()));
      case kGgufU32:
        return Gguf::Value(uint64_t{take<uint32_t>()});
      case kGgufI32:
        return Gguf::Value(static_cast<double>(take<int32_t>()));
      case kGgufF32:
        return Gguf::Value(static_cast<double>(take<float>()));
      case kGgufBool:
        return Gguf::Value(take<uint8_t>() != 0);
      case kGgufText:
        return Gguf::Value(text());
      case kGgufU64:
        return Gguf::Value(take<uint64_t>());
      case kGgufI64:
        return Gguf::Value(static_cast<double>(take<int64_t>()));
      case kGgufF64:
        return Gguf::Value(take<double>());
      case kGgufList: {
        const auto each = take<uint32_t>();
        const auto count = take<uint64_t>();
        if (each == kGgufList || count > bytes_.size()) fail("expected lists of plain values");
        for (uint64_t i = 0; i < count; ++i) value(each);
        return std::nullopt;
      }
      default:
        fail(fmt::format("expected a type of values below 13, got {}", type));
    }
  }
  const uint8_t* need(uint64_t count) {
    if (count > bytes_.size() - at_) fail("expected more bytes: the file was cut");
    const uint8_t* from = bytes_.data() + at_;
    at_ += count;
    return from;
  }
  uint64_t at() const { return at_; }
  void go_to(uint64_t at) {
    if (at > bytes_.size()) fail("expected more bytes: the file was cut");
    at_ = at;
  }

 private:
  std::string path_;
  std::vector<uint8_t> bytes_;
  uint64_t at_ = 0;
};

DType dtype_in_gguf(const GgufReader& reader, const std::string& name, uint32_t type) {
  switch (type) {
    case kTensorF32:
      return DType::f32;
    case kTensorF16:
      return DType::f16;
    case kTensorBf16:
      return DType::bf16;
    default:
      reader.fail(
          fmt::format("expected {} in f32, f16 or bf16, got type {}", in_quotes(name), type));
  }
}

uint64_t aligned_up(uint64_t at, uint64_t to) { return (at + to - 1) / to * to; }

class GgufWriter {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put_text(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void pad() { bytes_.resize(aligned_up(bytes_.size(), kGgufAlignment), '\0'); }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

void put_value(GgufWriter& out, const Gguf::Value& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    out.put<uint32_t>(kGgufU32);
    out.put(static_cast<uint32_t>(*number));
  } else if (const auto* real = std::get_if<double>(&value)) {
    out.put<uint32_t>(kGgufF32);
    out.put(static_cast<float>(*real));
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.put<uint32_t>(kGgufBool);
    out.put(static_cast<uint8_t>(*flag));
  } else {
    out.put<uint32_t>(kGgufText);
    out.put_text(std::get<std::string>(value));
  }
}

}  // namespace

const std::string& Gguf::text(const std::string& path, const std::string& key) const {
  const auto found = values.find(key);
  FRUGAL_CHECK(found != values.end() && std::holds_alternative<std::string>(found->second),
               "[gguf] {}: expected a text {}, got none", in_quotes(path), key);
  return std::get<std::string>(found->second);
}

double Gguf::number(const std::string& path, const std::string& key) const {
  const auto found = values.find(key);
  if (found != values.end()) {
    if (const auto* whole = std::get_if<uint64_t>(&found->second))
      return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&found->second)) return *real;
  }
  throw Error(fmt::format("[gguf] {}: expected a number {}, got none", in_quotes(path), key));
}

Gguf read_gguf(const std::string& path) {
  GgufReader in(path, read_file("gguf", path));
  if (in.take<uint32_t>() != kGgufMagic) in.fail("expected a GGUF file, got other bytes");
  const auto version = in.take<uint32_t>();
  if (version != 2 && version != 3)
    in.fail(fmt::format("expected version 2 or 3, got {}", version));
  const auto tensors = in.take<uint64_t>(), entries = in.take<uint64_t>();
  if (tensors > kMostGgufEntries || entries > kMostGgufEntries)
    in.fail(fmt::format("expected at most {} tensors and values, got {} and {}", kMostGgufEntries,
                        tensors, entries));
  Gguf file;
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string key = in.text();
    if (auto value = in.value(in.take<uint32_t>()); value)
      if (!file.values.emplace(key, std::move(*value)).second)
        in.fail(fmt::format("expected {} once", in_quotes(key)));
  }
  struct Info {
    std::string name;
    Shape shape;
    DType dtype;
    uint64_t offset;
  };
  std::vector<Info> infos;
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    Info info;
    info.name = in.text();
    if (!names.insert(info.name).second)
      in.fail(fmt::format("expected {} once", in_quotes(info.name)));
    const auto axes = in.take<uint32_t>();
    if (axes < 1 || axes > 4)
      in.fail(fmt::format("expected {} with 1 to 4 axes, got {}", in_quotes(info.name), axes));
    std::vector<int64_t> extents;
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < axes; ++axis) {
      const auto extent = in.take<uint64_t>();
      if (extent == 0 || extent > uint64_t{1} << 40 || elements > (uint64_t{1} << 40) / extent)
        in.fail(fmt::format("expected extents of {} that fit into memory", in_quotes(info.name)));
      elements *= extent;
      extents.insert(extents.begin(), static_cast<int64_t>(extent));
    }
    info.shape = Shape(std::span<const int64_t>(extents));
    info.dtype = dtype_in_gguf(in, info.name, in.take<uint32_t>());
    info.offset = in.take<uint64_t>();
    infos.push_back(std::move(info));
  }
  uint64_t alignment = kGgufAlignment;
  if (file.values.contains("general.alignment"))
    alignment = static_cast<uint64_t>(file.number(path, "general.alignment"));
  if (alignment == 0 || alignment > 1 << 20) in.fail("expected a usual general.alignment");
  const uint64_t data = aligned_up(in.at(), alignment);
  for (const Info& info : infos) {
    const auto bytes = static_cast<uint64_t>(info.shape.numel()) * size_of(info.dtype);
    if (info.offset > uint64_t{1} << 50) in.fail("expected more bytes: the file was cut");
    in.go_to(data + info.offset);
    const uint8_t* from = in.need(bytes);
    Tensor tensor = Tensor::empty(info.shape, info.dtype);
    std::memcpy(tensor.raw(), from, bytes);
    file.tensors.emplace_back(info.name, std::move(tensor));
  }
  return file;
}

void write_gguf(const std::string& path, const Gguf& file) {
  GgufWriter out;
  out.put(kGgufMagic);
  out.put<uint32_t>(3);
  out.put(static_cast<uint64_t>(file.tensors.size()));
  out.put(static_cast<uint64_t>(file.values.size()));
  for (const auto& [key, value] : file.values) {
    out.put_text(key);
    put_value(out, value);
  }
  uint64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    FRUGAL_CHECK(tensor.dtype() == DType::f32 && tensor.device() == kCpu,
                 "[gguf] expected {} in f32 on the cpu, got {}", in_quotes(name), describe(tensor));
    out.put_text(name);
    out.put(static_cast<uint32_t>(tensor.dim()));
    for (int axis = tensor.dim() - 1; axis >= 0; --axis)
      out.put(static_cast<uint64_t>(tensor.size(axis)));
    out.put<uint32_t>(kTensorF32);
    out.put(offset);
    offset = aligned_up(offset + static_cast<uint64_t>(tensor.nbytes()), kGgufAlignment);
  }
  for (const auto& [name, tensor] : file.tensors) {
    out.pad();
    FRUGAL_CHECK(tensor.is_contiguous(), "[gguf] expected {} contiguous", in_quotes(name));
    out.bytes().append(static_cast<const char*>(tensor.raw()),
                       static_cast<size_t>(tensor.nbytes()));
  }
  out.pad();
  atomic_write(path, out.bytes());
}

}  // namespace frugal::data
