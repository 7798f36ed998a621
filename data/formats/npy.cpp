#include "data/formats/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>

#include "core/dtype_switch.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr size_t kMaxNpyHeader = size_t{1} << 20;

struct Header {
  std::string descr;
  bool fortran = false;
  Shape shape;
};

// The header is a Python dictionary of a string, a bool and a tuple of integers. Nothing else is
// accepted.
class HeaderParser {
 public:
  HeaderParser(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  Header parse() {
    Header header;
    bool seen[3] = {};
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      const size_t which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3 || seen[which]) fail();
      seen[which] = true;
      if (which == 0) header.descr = string();
      if (which == 1) header.fortran = boolean();
      if (which == 2) header.shape = shape();
      if (take('}')) break;
      expect(',');
    }
    space();
    if (at_ != text_.size() || !seen[0] || !seen[1] || !seen[2]) fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(
        fmt::format("[npy] expected a header with descr, fortran_order and shape in {}, got {}",
                    where_, in_quotes(text_)));
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail();
  }
  bool word(std::string_view value) {
    space();
    if (text_.substr(at_, value.size()) != value) return false;
    at_ += value.size();
    return true;
  }
  std::string string() {
    const bool one = take('\'');
    if (!one && !take('"')) fail();
    const size_t end = text_.find(one ? '\'' : '"', at_);
    if (end == std::string_view::npos) fail();
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    if (word("True")) return true;
    if (!word("False")) fail();
    return false;
  }
  Shape shape() {
    Shape value;
    expect('(');
    while (!take(')')) {
      space();
      int64_t extent = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0 || value.dim() == Shape::kMaxDim) fail();
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // Python 2 wrote long integers with an L
      value.push_back(extent);
      if (take(')')) break;
      expect(',');
    }
    return value;
  }

  const std::string& where_;
  std::string_view text_;
  size_t at_ = 0;
};

int64_t checked_bytes(const std::string& where, DType dtype, const Shape& shape) {
  auto bytes = static_cast<int64_t>(size_of(dtype));
  bool overflow = false, empty = false;
  for (const int64_t extent : shape) empty = empty || extent == 0;
  for (const int64_t extent : shape)
    overflow = __builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes) || overflow;
  FRUGAL_CHECK(!overflow && bytes <= INT64_MAX / 2, "[npy] the shape {} in {} overflows", shape,
               where);
  return empty ? 0 : bytes;
}

Tensor from_fortran(const Tensor& source, const Shape& shape) {
  const Tensor out = Tensor::empty(shape, source.dtype());
  const size_t item = size_of(source.dtype());
  const auto* in = static_cast<const uint8_t*>(source.raw());
  auto* to = static_cast<uint8_t*>(out.raw());
  Shape stride = shape, index = shape;
  int64_t step = 1;
  for (int axis = 0; axis < shape.dim(); ++axis) {
    stride[axis] = step;
    step *= shape[axis];
    index[axis] = 0;
  }
  int64_t from = 0;
  const int64_t count = shape.numel();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * item, in + static_cast<size_t>(from) * item, item);
    for (int axis = shape.dim() - 1; axis >= 0; --axis) {
      from += stride[axis];
      if (++index[axis] < shape[axis]) break;
      from -= stride[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return out;
}

Tensor finish(const std::string& where, Tensor tensor, const Shape& shape, bool fortran) {
  if (tensor.dtype() == DType::bool_) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
    for (int64_t i = 0; i < tensor.numel(); ++i)
      FRUGAL_CHECK(bytes[i] <= 1, "[npy] expected bools of 0 or 1 in {}, got {} at element {}",
                   where, bytes[i], i);
  }
  if (fortran && shape.dim() > 1 && tensor.numel() > 0) return from_fortran(tensor, shape);
  return tensor;
}

// Converts signed bytes, which are held as u8, to i32.
Tensor widened(const Tensor& bytes) {
  const Tensor out = Tensor::empty(bytes.shape(), DType::i32);
  std::transform(bytes.data<uint8_t>(), bytes.data<uint8_t>() + bytes.numel(), out.mut<int32_t>(),
                 [](uint8_t value) { return static_cast<int8_t>(value); });
  return out;
}

using Read = std::function<size_t(void*, size_t)>;

struct Start {
  NpyInfo info;
  std::string descr;
  bool fortran = false, narrow = false;
  int64_t bytes = 0;  // bytes of the data behind the header
};

// The header of a file or entry of `total` bytes, and how many bytes follow it.
std::pair<Header, int64_t> read_header(const std::string& where, int64_t total, const Read& read) {
  uint8_t start[12];
  constexpr uint8_t kMagic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  FRUGAL_CHECK(read(start, 10) == 10 && std::equal(kMagic, kMagic + 6, start),
               "[npy] expected a NumPy array file, got other or truncated bytes in {}", where);
  FRUGAL_CHECK(start[6] >= 1 && start[6] <= 3,
               "[npy] expected version 1 to 3 of the format in {}, "
               "got {}.{}",
               where, start[6], start[7]);
  size_t length = static_cast<size_t>(start[8] | start[9] << 8);
  int64_t begin = 10;
  if (start[6] > 1) {
    FRUGAL_CHECK(read(start + 10, 2) == 2, "[npy] truncated header in {}", where);
    length |= static_cast<size_t>(start[10]) << 16 | static_cast<size_t>(start[11]) << 24;
    begin = 12;
  }
  FRUGAL_CHECK(length <= kMaxNpyHeader && static_cast<int64_t>(length) <= total - begin,
               "[npy] expected a header of at most {} bytes in {}, got a length of {}",
               std::min<int64_t>(kMaxNpyHeader, std::max<int64_t>(total - begin, 0)), where,
               length);
  std::string text(length, '\0');
  FRUGAL_CHECK(read(text.data(), length) == length, "[npy] truncated header in {}", where);
  return {HeaderParser(where, text).parse(), total - begin - static_cast<int64_t>(length)};
}

// A header that does not match `total` is refused before memory is taken.
Start read_start(const std::string& where, int64_t total, const Read& read) {
  const auto [header, rest] = read_header(where, total, read);
  FRUGAL_CHECK(header.descr.size() >= 2 && header.descr[0] != '>',
               "[npy] expected little-endian data in {}, got dtype {}", where,
               in_quotes(header.descr));
  const char order = header.descr[0];
  const std::string type =
      order == '<' || order == '|' || order == '=' ? header.descr.substr(1) : header.descr;
  const bool narrow = type == "i1";  // DType has no signed bytes
  const DType dtype = narrow ? DType::u8 : numpy_dtype(where, type);
  const int64_t bytes = checked_bytes(where, dtype, header.shape);
  FRUGAL_CHECK(bytes == rest, "[npy] expected {} bytes of data {} {} in {}, got {}", bytes,
               header.shape, header.descr, where, rest);
  return {{narrow ? DType::i32 : dtype, header.shape}, header.descr, header.fortran, narrow, bytes};
}

Tensor read_array(const std::string& where, int64_t total, const Read& read) {
  const auto [info, descr, fortran, narrow, bytes] = read_start(where, total, read);
  const CategoryScope category(Category::input);
  const Tensor tensor = Tensor::empty(info.shape, narrow ? DType::u8 : info.dtype);
  FRUGAL_CHECK(
      bytes == 0 || read(tensor.raw(), static_cast<size_t>(bytes)) == static_cast<size_t>(bytes),
      "[npy] cannot read {} bytes of data in {}", bytes, where);
  const Tensor done = finish(where, tensor, info.shape, fortran);
  return narrow ? widened(done) : done;
}

}  // namespace

DType numpy_dtype(const std::string& where, const std::string& name) {
  if (name == "f4") return DType::f32;
  if (name == "f8") return DType::f64;
  if (name == "i4") return DType::i32;
  if (name == "i8") return DType::i64;
  if (name == "u1") return DType::u8;
  FRUGAL_CHECK(name == "b1", "[npy] expected a dtype of f4 f8 i4 i8 u1 b1 in {}, got {}", where,
               in_quotes(name));
  return DType::bool_;
}

Tensor numpy_tensor(const std::string& where, DType dtype, const Shape& shape, bool fortran,
                    std::span<const uint8_t> bytes) {
  const int64_t expected = checked_bytes(where, dtype, shape);
  FRUGAL_CHECK(expected == static_cast<int64_t>(bytes.size()),
               "[npy] expected {} bytes of data {} {} in {}, got {}", expected, shape,
               name_of(dtype), where, bytes.size());
  const CategoryScope category(Category::input);
  const Tensor tensor = Tensor::empty(shape, dtype);
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return finish(where, tensor, shape, fortran);
}

Tensor read_npy(const std::string& path) {
  const FileHandle file = open_file("npy", path);
  return read_array(path, file_size("npy", path),
                    [&](void* out, size_t count) { return std::fread(out, 1, count, file.get()); });
}

NpzFile NpzFile::open(const std::string& path) {
  NpzFile file;
  file.zip_ = ZipFile::open("npz", path);
  return file;
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip_.entries())
    if (entry.name.ends_with(".npy")) names.push_back(entry.name.substr(0, entry.name.size() - 4));
  return names;
}

const ZipEntry& NpzFile::entry(const std::string& name) const {
  const ZipEntry* entry = zip_.find(name + ".npy");
  FRUGAL_CHECK(entry != nullptr, "[npz] expected an array {} in {}, got {}", in_quotes(name),
               path(), printable(fmt::format("{}", fmt::join(names(), " ")), 300));
  return *entry;
}

NpyInfo NpzFile::info(const std::string& name) const {
  const ZipEntry& of = entry(name);
  ZipReader reader(zip_, of);
  return read_start(where(of), of.size,
                    [&](void* out, size_t count) { return reader.read(out, count); })
      .info;
}

Tensor NpzFile::read(const std::string& name) const {
  const ZipEntry& of = entry(name);
  ZipReader reader(zip_, of);
  Tensor tensor = read_array(where(of), of.size,
                             [&](void* out, size_t count) { return reader.read(out, count); });
  reader.finish();
  return tensor;
}

std::string NpzFile::text(const std::string& name) const {
  constexpr int64_t kMost = 4096;
  const ZipEntry& of = entry(name);
  ZipReader reader(zip_, of);
  const Read read = [&](void* out, size_t count) { return reader.read(out, count); };
  const auto [header, rest] = read_header(where(of), of.size, read);
  FRUGAL_CHECK(
      header.descr == fmt::format("|S{}", rest) && header.shape.dim() == 0 && rest <= kMost,
      "[npz] expected a text of at most {} bytes in {}, got {} {}", kMost, where(of), header.shape,
      in_quotes(header.descr));
  std::string text(static_cast<size_t>(rest), '\0');
  FRUGAL_CHECK(read(text.data(), text.size()) == text.size(), "[npz] cannot read the text in {}",
               where(of));
  reader.finish();
  return text;
}

std::string NpzFile::where(const ZipEntry& entry) const {
  return path() + ", entry " + printable(entry.name);
}

Tensor to_i64(const std::string& where, const Tensor& tensor) {
  FRUGAL_CHECK(!is_floating(tensor.dtype()), "[npy] expected integers in {}, got {}", where,
               describe(tensor));
  if (tensor.dtype() == DType::i64) return tensor;
  const CategoryScope category(Category::input);
  const Tensor out = Tensor::empty(tensor.shape(), DType::i64);
  int64_t* to = out.mut<int64_t>();
  with_dtype(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      std::transform(tensor.data<T>(), tensor.data<T>() + tensor.numel(), to,
                     [](T value) { return static_cast<int64_t>(value); });
  });
  return out;
}

Tensor to_f32(const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return tensor;
  const CategoryScope category(Category::input);
  const Tensor out = Tensor::empty(tensor.shape());
  float* to = out.mut<float>();
  with_dtype(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::transform(tensor.data<T>(), tensor.data<T>() + tensor.numel(), to,
                   [](T value) { return static_cast<float>(value); });
  });
  return out;
}

}  // namespace frugal::data
