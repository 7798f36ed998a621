#include "compress/foreign/forms.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "compress/foreign/bit_loops.h"
#include "compress/foreign/form_kernels.h"
#include "core/parallel.h"
#include "core/random/philox.h"
#include "ops/dense/bitmask.h"

namespace frugal::compress::foreign {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;

Tensor bytes_from(const Memory& memory, int64_t bytes, Device device, Category category) {
  if (!memory || bytes == 0) {
    const CategoryScope scope(category);
    return Tensor::empty({bytes}, DType::u8, device);
  }
  Tensor given = memory(bytes);
  FRUGAL_CHECK(given.defined() && given.dtype() == DType::u8 && given.device() == device &&
                   given.is_contiguous() && given.numel() == bytes,
               "[pack] expected {} contiguous bytes on {}, got {}", bytes, device.str(),
               given.defined() ? describe(given) : "an undefined tensor");
  return given;
}
Tensor codes_from(const Memory& memory, int64_t bytes, Device device) {
  return bytes_from(memory, bytes, device, Category::packed);
}

void check_values(const Tensor& values) {
  FRUGAL_CHECK(values.defined() && values.device() != kMeta && values.is_contiguous(),
               "[pack] expected a contiguous tensor with memory, got {}",
               values.defined() ? describe(values) : "an undefined one");
}

// ---- positive values

// Numbers of a floating dtype as the unsigned integers that they are in memory. The positive
// numbers are those above 0 and up to infinity, and NaN without its sign lies above infinity.
struct FloatMemory {
  uint64_t infinity, one;
  bool is_positive(uint64_t bits) const { return bits != 0 && bits <= infinity; }
};
FloatMemory float_memory(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0x7ff0000000000000, 0x3ff0000000000000};
    case DType::f32:
      return {0x7f800000, 0x3f800000};
    case DType::bf16:
      return {0x7f80, 0x3f80};
    case DType::f16:
      return {0x7c00, 0x3c00};
    default:
      throw Error(fmt::format("[pack] expected a floating dtype, got {}", name_of(dtype)));
  }
}
int bytes_of(DType dtype) { return static_cast<int>(size_of(dtype)); }
uint64_t word_at(const void* x, int size, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(x) + i * size, static_cast<size_t>(size));
  return bits;
}
void set_word(void* x, int size, int64_t i, uint64_t bits) {
  std::memcpy(static_cast<char*>(x) + i * size, &bits, static_cast<size_t>(size));
}
uint64_t word_at(const Tensor& values, int64_t i) {
  return word_at(values.raw(), bytes_of(values.dtype()), i);
}

// Calls f with a zero of the type of a floating tensor.
template <class F>
void with_floating(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64:
      return f(0.0);
    case DType::f32:
      return f(0.0f);
    case DType::bf16:
      return f(BFloat16());
    case DType::f16:
      return f(Float16());
    default:
      throw Error(fmt::format("[pack] expected a floating dtype, got {}", name_of(dtype)));
  }
}

// ---- bits

// Writes a bit for each element: whole(first element, blocks, bytes) those of blocks, and
// bit_of(memory of an element) those of the rest.
template <class Whole, class Bit>
void write_bits(const void* x, int size, const BitLayout& layout, uint8_t* to, const Whole& whole,
                const Bit& bit_of) {
  const int64_t cols = layout.cols, done = layout.whole_bytes();
  parallel_for(0, layout.blocks(), std::max<int64_t>(1, kGrain / (8 * cols)),
               [&](int64_t begin, int64_t end) {
                 whole(begin * 8 * cols, BitBlocks{end - begin, cols}, to + begin * cols);
               });
  for (int64_t i = done * 8; i < layout.elements; i += 8) {
    uint32_t byte = 0;
    for (int64_t k = 0; k < std::min<int64_t>(8, layout.elements - i); ++k)
      byte |= static_cast<uint32_t>(bit_of(word_at(x, size, i + k))) << k;
    to[done + (i - done * 8) / 8] = static_cast<uint8_t>(byte);
  }
}
const void* at(const void* x, int size, int64_t i) {
  return static_cast<const char*>(x) + i * size;
}

// The bits of one row of elements: blocks of 8 lanes, over which loops become vector code.
BitLayout bits_of(int64_t elements) { return {elements, 64}; }

// One bit for each element, and the values of both bits.
class Bits final : public Kept {
 public:
  // `first` and `second`: the values of the bits 0 and 1, as the dtype has them in memory.
  // positive: the value is 1 where the packed value was positive, else 0.
  Bits(Tensor codes, const Tensor& values, uint64_t first, uint64_t second, bool positive)
      : Kept(values.numel(), values.dtype(), values.device()),
        codes_(std::move(codes)),
        values_{first, second},
        positive_(positive) {}
  int64_t bytes() const override { return codes_.nbytes(); }

 private:
  void read(const Tensor& out) const override {
    const BitReading job{codes_.data<uint8_t>(),
                         bits_of(elements()),
                         bytes_of(dtype()),
                         values_[0],
                         values_[1],
                         out.raw()};
    dispatch(device(), [&](auto backend) { read_bits_kernel(backend, job); });
  }
  void read_positive(const Tensor& out, const Memory& scratch) const override {
    positive_ ? read(out) : Kept::read_positive(out, scratch);
  }
  Tensor codes_;
  uint64_t values_[2];
  bool positive_;
};

// Is this the memory of a NaN?
bool is_nan_word(DType dtype, uint64_t bits) {
  if (!is_floating(dtype)) return false;
  const uint64_t sign = uint64_t{1} << (8 * bytes_of(dtype) - 1);
  return (bits & ~sign) > float_memory(dtype).infinity;
}

// ---- groups

class Groups final : public Kept {
 public:
  // `tail`: the bytes of the last values, as they are; undefined where there are none.
  Groups(std::unique_ptr<Packed> codes, Tensor tail, const Tensor& values)
      : Kept(values.numel(), values.dtype(), values.device()),
        codes_(std::move(codes)),
        tail_(std::move(tail)) {}
  int64_t bytes() const override {
    const int64_t tail = tail_.defined() ? tail_.nbytes() : 0;
    return tail + (codes_ == nullptr ? 0 : codes().payload().nbytes());
  }

 private:
  const Quantized& codes() const { return static_cast<const Quantized&>(*codes_); }
  int64_t in_tail() const { return tail_.defined() ? tail_.numel() / bytes_of(dtype()) : 0; }
  int64_t coded() const { return elements() - in_tail(); }
  Shape shape_of_codes() const {
    const GroupLayout& layout = codes().layout();
    return layout.shared ? Shape{coded()} : Shape{coded() / layout.cols, layout.cols};
  }
  void read(const Tensor& out) const override {
    if (codes_ != nullptr) codes().unpack_into(out.slice(0, 0, coded()).view(shape_of_codes()));
    if (tail_.defined())
      copy_bytes(out.slice(0, coded(), elements()).raw(), device(), tail_.raw(), device(),
                 tail_.nbytes());
  }
  // The class of a code tells the sign, and the value does not: without its dither, it may lie
  // beyond the class.
  void read_positive(const Tensor& out, const Memory& scratch) const override {
    FRUGAL_CHECK(codes_ == nullptr || codes_->carries_sign(),
                 "[unpack] expected codes that tell which values are positive");
    const FloatMemory memory = float_memory(dtype());
    const auto spread = [&](const Tensor& bits, const BitLayout& layout, void* to) {
      const BitReading job{bits.data<uint8_t>(), layout, bytes_of(dtype()), 0, memory.one, to};
      dispatch(device(), [&](auto backend) { read_bits_kernel(backend, job); });
    };
    if (codes_ != nullptr) {
      const BitLayout layout{coded(), codes().layout().cols};
      const Tensor mask = bytes_from(scratch, layout.bytes(), device(), Category::workspace);
      codes().unpack_sign_into(mask);
      spread(mask, layout, out.raw());
    }
    if (!tail_.defined()) return;
    const BitLayout layout{in_tail(), 1};
    const Tensor bits = bytes_from(scratch, layout.bytes(), device(), Category::workspace);
    const BitWriting job{tail_.raw(), bytes_of(dtype()), memory.infinity, layout,
                         bits.mut<uint8_t>()};
    dispatch(device(), [&](auto backend) { write_bits_kernel(backend, job); });
    spread(bits, layout, out.slice(0, coded(), elements()).raw());
  }

  std::unique_ptr<Packed> codes_;
  Tensor tail_;
};

// ---- codes of whole bits

// Reads codes of `width` bits, the first one in the lowest bits of a byte.
template <class T, class F>
void read_codes(const uint8_t* from, int64_t elements, int width, T* to, const F& value_of) {
  const int64_t per_byte = 8 / width;
  const uint32_t mask = (1u << width) - 1;
  parallel_for(0, (elements * width + 7) / 8, kGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint32_t byte = from[i];
      const int64_t first = i * per_byte, last = std::min(first + per_byte, elements);
      for (int64_t k = first; k < last; ++k, byte >>= width) to[k] = value_of(byte & mask);
    }
  });
}
int64_t code_bytes(int64_t elements, int width) { return (elements * width + 7) / 8; }

class Levels final : public Kept {
 public:
  Levels(Tensor codes, int64_t elements, int width, const std::vector<float>& table, DType dtype)
      : Kept(elements, dtype, codes.device()), codes_(std::move(codes)) {
    job_.elements = elements;
    job_.width = width;
    job_.size = bytes_of(dtype);
    job_.codes = codes_.data<uint8_t>();
    job_.odd = job_.codes + code_bytes(elements, width);
    with_floating(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto word_of = [](T value) {
        uint64_t word = 0;
        std::memcpy(&word, &value, sizeof(T));
        return word;
      };
      for (size_t i = 0; i < table.size(); ++i) job_.table[i] = word_of(T(table[i]));
      job_.nan = word_of(T(std::nanf("")));
    });
  }
  int64_t bytes() const override { return codes_.nbytes(); }

 private:
  void read(const Tensor& out) const override {
    LevelReading job = job_;
    job.to = out.raw();
    dispatch(device(), [&](auto backend) { read_levels_kernel(backend, job); });
  }
  Tensor codes_;
  LevelReading job_;
};

// ---- windows

// The windows of the outputs, one after the other: the index at which each begins in its plane.
class Walk {
 public:
  Walk(const Places& places, int64_t output) : w_(places.w), origin_(places.origin(output)) {
    const int64_t in_plane = output % (w_.out_height * w_.out_width);
    row_ = in_plane / w_.out_width;
    column_ = in_plane % w_.out_width;
  }
  int64_t origin() const { return origin_; }
  void next() {
    origin_ += w_.stride[1];
    if (++column_ < w_.out_width) return;
    column_ = 0;
    if (++row_ == w_.out_height) row_ = 0;
    origin_ = (row_ * w_.stride[0] - w_.padding[0]) * w_.width - w_.padding[1];
  }

 private:
  const Windows& w_;
  int64_t row_ = 0, column_ = 0, origin_ = 0;
};

class KeptPlaces final : public Kept {
 public:
  KeptPlaces(Tensor codes, int64_t elements, int width, const Places& places)
      : Kept(elements, DType::i64, codes.device()),
        codes_(std::move(codes)),
        width_(width),
        places_(places) {}
  int64_t bytes() const override { return codes_.nbytes(); }

 private:
  void read(const Tensor& out) const override {
    const PlaceReading job{codes_.data<uint8_t>(), elements(), width_, places_, out.mut<int64_t>()};
    dispatch(device(), [&](auto backend) { read_places_kernel(backend, job); });
  }
  Tensor codes_;
  int width_;
  Places places_;
};

}  // namespace

// ---- kernels of the CPU

void write_bits_kernel(Cpu, const BitWriting& job) {
  write_bits(
      job.x, job.size, job.layout, job.to,
      [&](int64_t element, BitBlocks blocks, uint8_t* to) {
        positive_bits(at(job.x, job.size, element), job.size, job.most, blocks, to);
      },
      [&](uint64_t word) { return word != 0 && word <= job.most; });
}

void read_bits_kernel(Cpu, const BitReading& job) {
  const int64_t cols = job.layout.cols, done = job.layout.whole_bytes();
  parallel_for(0, job.layout.blocks(), std::max<int64_t>(1, kGrain / (8 * cols)),
               [&](int64_t begin, int64_t end) {
                 void* const to = static_cast<char*>(job.to) + begin * 8 * cols * job.size;
                 fill_by_bits(job.from + begin * cols, job.size, job.zeros, job.ones,
                              {end - begin, cols}, to);
               });
  for (int64_t i = done * 8; i < job.layout.elements; ++i) {
    const int64_t rest = i - done * 8;
    const bool set = (job.from[done + rest / 8] >> (rest % 8) & 1) != 0;
    set_word(job.to, job.size, i, set ? job.ones : job.zeros);
  }
}

bool write_levels_kernel(Cpu, const LevelWriting& job) {
  const float low = job.levels[0];
  const float scale = static_cast<float>(job.last()) / (job.levels[job.last()] - low);
  std::atomic<bool> finite = true;
  // Eight values draw 16 bits each from one call.
  parallel_for(0, (job.elements + 7) / 8, kGrain / 8, [&](int64_t begin, int64_t end) {
    bool all = true;
    for (int64_t block = begin; block < end; ++block) {
      const Words words = philox_words(job.key, static_cast<uint64_t>(block));
      const int count = static_cast<int>(std::min<int64_t>(8, job.elements - block * 8));
      uint64_t packed = 0;
      for (int k = 0; k < count; ++k) {
        const float x = job.x[block * 8 + k];
        all = all && std::isfinite(x);
        const uint64_t code = job.code(std::isfinite(x) ? x : low, k, words.w, job.levels, scale);
        packed |= code << (k * job.width);
      }
      for (int byte = 0; byte < (count * job.width + 7) / 8; ++byte)
        job.codes[block * job.width + byte] = static_cast<uint8_t>(packed >> (8 * byte));
    }
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void read_levels_kernel(Cpu, const LevelReading& job) {
  const auto read_as = [&](auto zero) {
    using Word = decltype(zero);
    Word table[256];
    std::transform(job.table, job.table + 256, table,
                   [](uint64_t word) { return static_cast<Word>(word); });
    read_codes(job.codes, job.elements, job.width, static_cast<Word*>(job.to),
               [&](uint32_t code) { return table[code]; });
  };
  if (job.size == 2) return read_as(uint16_t{0});
  if (job.size == 4) return read_as(uint32_t{0});
  read_as(uint64_t{0});
}

bool write_places_kernel(Cpu, const PlaceWriting& job) {
  const Places& places = job.places;
  const int64_t count = places.w.kernel[0] * places.w.kernel[1];
  std::vector<int16_t> place_at(static_cast<size_t>(places.distance(count - 1)) + 1, -1);
  for (int64_t place = 0; place < count; ++place)
    place_at[static_cast<size_t>(places.distance(place))] = static_cast<int16_t>(place);
  const int64_t per_byte = 8 / job.width;
  std::atomic<bool> fits = true;
  parallel_for(0, code_bytes(job.elements, job.width), kGrain / 8, [&](int64_t begin, int64_t end) {
    bool all = true;
    Walk walk(places, begin * per_byte);
    for (int64_t i = begin; i < end; ++i) {
      uint32_t byte = 0;
      const int64_t first = i * per_byte, last = std::min(first + per_byte, job.elements);
      for (int64_t k = first; k < last; ++k, walk.next()) {
        const auto distance = static_cast<size_t>(job.x[k] - walk.origin());  // below 0: very large
        const int place = distance < place_at.size() ? place_at[distance] : -1;
        all = all && place >= 0;
        byte |= static_cast<uint32_t>(std::max(place, 0)) << ((k - first) * job.width);
      }
      job.codes[i] = static_cast<uint8_t>(byte);
    }
    if (!all) fits.store(false, std::memory_order_relaxed);
  });
  return fits;
}

void read_places_kernel(Cpu, const PlaceReading& job) {
  int64_t distances[256] = {};  // from where a window begins to each of its places
  for (int64_t place = 0; place < job.places.w.kernel[0] * job.places.w.kernel[1]; ++place)
    distances[place] = job.places.distance(place);
  const int64_t per_byte = 8 / job.width;
  const uint32_t mask = (1u << job.width) - 1;
  parallel_for(0, code_bytes(job.elements, job.width), kGrain / 8, [&](int64_t begin, int64_t end) {
    Walk walk(job.places, begin * per_byte);
    for (int64_t i = begin; i < end; ++i) {
      uint32_t byte = job.codes[i];
      const int64_t first = i * per_byte, last = std::min(first + per_byte, job.elements);
      for (int64_t k = first; k < last; ++k, byte >>= job.width, walk.next())
        job.to[k] = walk.origin() + distances[byte & mask];
    }
  });
}

// ---- what is kept

void Kept::check(const Tensor& out) const {
  FRUGAL_CHECK(out.defined() && out.dtype() == dtype_ && out.device() == device_ &&
                   out.is_contiguous() && out.numel() == elements_,
               "[unpack] expected {} contiguous {} on {} to unpack into, got {}", elements_,
               name_of(dtype_), device_.str(),
               out.defined() ? describe(out) : "an undefined tensor");
}
Tensor Kept::unpack() const {
  const CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty({elements_}, dtype_, device_);
  read(out);
  return out;
}
Tensor Kept::unpack_positive() const {
  const CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty({elements_}, dtype_, device_);
  read_positive(out, {});
  return out;
}
void Kept::unpack_into(const Tensor& out) const {
  check(out);
  read(out.view({elements_}));
}
void Kept::unpack_positive_into(const Tensor& out, const Memory& scratch) const {
  check(out);
  read_positive(out.view({elements_}), scratch);
}
void Kept::read_positive(const Tensor&, const Memory&) const {
  throw Error("[unpack] expected codes that tell which values are positive");
}

std::unique_ptr<Kept> keep_groups(const Tensor& values, const GroupOptions& options,
                                  const Memory& memory, const Memory& scratch) {
  check_values(values);
  const int64_t elements = values.numel(), columns = options.columns;
  const Device device = values.device();
  const Tensor flat = values.view({elements});
  QuantizeOptions quantize;
  quantize.bits = options.bits;
  quantize.rounding = Rounding::dithered;
  quantize.seed = options.seed;
  quantize.axis = columns == 0 ? GroupAxis::row : GroupAxis::column;
  const Quantizer codec(quantize);
  SaveInfo info;
  info.op = "frugal.torch";
  info.step = options.step;
  info.seq = options.seq;
  if (!options.positive) {
    FRUGAL_CHECK(columns == 0 || elements % columns == 0,
                 "[pack] expected columns that divide {} values, got {}", elements, columns);
    const Tensor rows = columns == 0 ? flat : flat.view({elements / columns, columns});
    const Tensor payload = codes_from(memory, codec.packed_bytes(rows.shape()), device);
    std::unique_ptr<Packed> codes = codec.pack_into(payload, rows, info);
    if (device == kCpu && codec.nonfinite_groups() > 0) return nullptr;
    return std::make_unique<Groups>(std::move(codes), Tensor(), values);
  }
  FRUGAL_CHECK(
      columns > 0 && options.bits >= 2,
      "[pack] expected columns and 2 bits or more for codes that tell signs, got {} and {}",
      columns, options.bits);
  const int64_t coded = elements / (8 * columns) * (8 * columns);
  Tensor tail;
  if (coded < elements) {
    const Tensor rest = flat.slice(0, coded, elements);
    tail = codes_from(memory, rest.nbytes(), device);
    copy_bytes(tail.raw(), device, rest.raw(), device, rest.nbytes());
  }
  std::unique_ptr<Packed> codes;
  if (coded > 0) {
    const Tensor rows = flat.slice(0, 0, coded).view({coded / columns, columns});
    const BitLayout layout{coded, columns};
    const Tensor mask = bytes_from(scratch, layout.bytes(), device, Category::workspace);
    const BitWriting job{rows.raw(), bytes_of(values.dtype()),
                         float_memory(values.dtype()).infinity, layout, mask.mut<uint8_t>()};
    dispatch(device, [&](auto backend) { write_bits_kernel(backend, job); });
    const Sign sign{mask, 0};
    info.sign = &sign;
    const Tensor payload = codes_from(memory, codec.packed_bytes(rows.shape(), true), device);
    codes = codec.pack_into(payload, rows, info);
    if (device == kCpu && codec.nonfinite_groups() > 0) return nullptr;
  }
  return std::make_unique<Groups>(std::move(codes), std::move(tail), values);
}

std::unique_ptr<Kept> keep_two_values(const Tensor& values, const Memory& memory) {
  check_values(values);
  const int64_t elements = values.numel();
  const int size = bytes_of(values.dtype());
  const BitLayout layout = bits_of(elements);
  if (elements == 0) return nullptr;
  if (values.device() != kCpu) {
    if (values.dtype() != DType::bool_) return nullptr;
    const Tensor codes = codes_from(memory, layout.bytes(), values.device());
    const BitWriting job{values.raw(), size, 0xff, layout, codes.mut<uint8_t>()};
    dispatch(values.device(), [&](auto backend) { write_bits_kernel(backend, job); });
    return std::make_unique<Bits>(codes, values, 0, 1, false);
  }
  const uint64_t first = word_at(values, 0);
  int64_t other = 0;
  while (other < elements && word_at(values, other) == first) ++other;
  const uint64_t second = other < elements ? word_at(values, other) : first;
  // Most tensors of other kinds have a third value soon.
  for (int64_t i = other; i < std::min<int64_t>(other + 256, elements); ++i)
    if (word_at(values, i) != first && word_at(values, i) != second) return nullptr;
  if (is_nan_word(values.dtype(), first) || is_nan_word(values.dtype(), second)) return nullptr;
  const Tensor codes = codes_from(memory, layout.bytes(), kCpu);
  std::atomic<bool> two = true;
  write_bits(
      values.raw(), size, layout, codes.mut<uint8_t>(),
      [&](int64_t element, BitBlocks blocks, uint8_t* to) {
        if (!differing_bits(at(values.raw(), size, element), size, first, second, blocks, to))
          two.store(false, std::memory_order_relaxed);
      },
      [&](uint64_t word) {
        if (word != first && word != second) two.store(false, std::memory_order_relaxed);
        return word != first;
      });
  if (!two) return nullptr;
  return std::make_unique<Bits>(codes, values, first, second, false);
}

std::unique_ptr<Kept> keep_positive(const Tensor& values, const Memory& memory) {
  check_values(values);
  const FloatMemory floats = float_memory(values.dtype());
  const BitLayout layout = bits_of(values.numel());
  const Tensor codes = codes_from(memory, layout.bytes(), values.device());
  const BitWriting job{values.raw(), bytes_of(values.dtype()), floats.infinity, layout,
                       codes.mut<uint8_t>()};
  dispatch(values.device(), [&](auto backend) { write_bits_kernel(backend, job); });
  return std::make_unique<Bits>(codes, values, 0, floats.one, true);
}

std::unique_ptr<Kept> keep_levels(const Tensor& values, const std::vector<float>& levels, int width,
                                  const std::vector<float>& table, DType dtype, RngKey key,
                                  const Memory& memory) {
  check_values(values);
  FRUGAL_CHECK(width == 1 || width == 2 || width == 4 || width == 8,
               "[pack] expected 1, 2, 4 or 8 bits for levels, got {}", width);
  LevelWriting job;
  job.width = width;
  FRUGAL_CHECK(levels.size() == table.size() && static_cast<int>(levels.size()) == job.last() + 1 &&
                   std::is_sorted(levels.begin(), levels.end()) && levels.front() < levels.back(),
               "[pack] expected {} levels that rise, and a value for each, got {} and {}",
               job.last() + 1, levels.size(), table.size());
  job.x = values.data<float>();
  job.elements = values.numel();
  job.key = key;
  std::copy(levels.begin(), levels.end(), job.levels);
  const int64_t bytes = code_bytes(job.elements, width);
  const bool here = values.device() == kCpu;
  const int64_t odd = here ? 0 : (job.elements + kOddBlock - 1) / kOddBlock;
  const Tensor codes = codes_from(memory, bytes + odd, values.device());
  job.codes = codes.mut<uint8_t>();
  job.odd = job.codes + bytes;
  bool finite = true;
  dispatch(values.device(), [&](auto backend) { finite = write_levels_kernel(backend, job); });
  if (!finite) return nullptr;
  return std::make_unique<Levels>(codes, job.elements, width, table, dtype);
}

std::unique_ptr<Kept> keep_windows(const Tensor& indices, const Windows& w, const Memory& memory) {
  check_values(indices);
  const int64_t places = w.kernel[0] * w.kernel[1], elements = indices.numel();
  if (indices.dtype() != DType::i64 || places < 1 || places > 256) return nullptr;
  if (elements % std::max<int64_t>(1, w.out_height * w.out_width) != 0) return nullptr;
  // Windows as wide as this have two places at one distance.
  if ((w.kernel[1] - 1) * w.dilation[1] >= w.width) return nullptr;
  const int width = places <= 2 ? 1 : places <= 4 ? 2 : places <= 16 ? 4 : 8;
  const Tensor codes = codes_from(memory, code_bytes(elements, width), indices.device());
  const PlaceWriting job{indices.data<int64_t>(), elements, width, {w}, codes.mut<uint8_t>()};
  bool fits = true;
  dispatch(indices.device(), [&](auto backend) { fits = write_places_kernel(backend, job); });
  if (!fits) return nullptr;
  return std::make_unique<KeptPlaces>(codes, elements, width, Places{w});
}

}  // namespace frugal::compress::foreign
