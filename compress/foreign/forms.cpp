#include "python/module/packing.h"

#include <malloc.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "compress/policies/allocate.h"
#include "compress/policies/levels.h"
#include "core/parallel.h"
#include "core/random/philox.h"
#include "core/words/quoted.h"
#include "ops/dense/bitmask.h"
#include "python/module/bindings.h"
#include "python/module/bit_loops.h"

namespace frugal::python {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;

Tensor packed_bytes(int64_t bytes) {
  const CategoryScope scope(Category::packed);
  return Tensor::empty({bytes}, DType::u8);
}
Tensor unpacked(int64_t elements, DType dtype) {
  const CategoryScope scope(Category::workspace);
  return Tensor::empty({elements}, dtype);
}

void check_host(const Tensor& values) {
  FRUGAL_CHECK(values.defined() && values.device() == kCpu && values.is_contiguous(),
               "[pack] expected a contiguous tensor on the cpu, got {}", describe(values));
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
// Where element i of a contiguous tensor lies.
const char* at(const Tensor& values, int64_t i) {
  return static_cast<const char*>(values.raw()) + i * bytes_of(values.dtype());
}
char* at_mut(const Tensor& values, int64_t i) { return const_cast<char*>(at(values, i)); }
uint64_t memory_at(const Tensor& values, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, at(values, i), size_of(values.dtype()));
  return bits;
}
void set_memory(const Tensor& values, int64_t i, uint64_t bits) {
  std::memcpy(at_mut(values, i), &bits, size_of(values.dtype()));
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

// The bits of the positive values of [rows, columns], as ops/dense/bitmask.h lays them out.
// REQUIRES: a multiple of 8 rows.
Tensor positive_mask(const Tensor& values) {
  const int64_t columns = values.size(1), blocks = values.size(0) / 8;
  const CategoryScope scope(Category::workspace);
  Tensor mask = ops::empty_bitmask(values.shape(), kCpu);
  uint8_t* const to = mask.mut<uint8_t>();
  const uint64_t infinity = float_memory(values.dtype()).infinity;
  parallel_for(0, blocks, std::max<int64_t>(1, kGrain / (8 * columns)),
               [&](int64_t begin, int64_t end) {
                 positive_bits(at(values, begin * 8 * columns), bytes_of(values.dtype()), infinity,
                               {end - begin, columns}, to + begin * columns);
               });
  return mask;
}

// ---- groups

class Groups final : public Kept {
 public:
  // `tail`: the last values, as they are; undefined where there are none.
  Groups(std::unique_ptr<Packed> codes, Tensor tail, int64_t elements, DType dtype)
      : codes_(std::move(codes)), tail_(std::move(tail)), elements_(elements), dtype_(dtype) {}
  int64_t bytes() const override {
    const int64_t tail = tail_.defined() ? tail_.nbytes() : 0;
    return tail + (codes_ == nullptr
                       ? 0
                       : static_cast<const compress::Quantized&>(*codes_).payload().nbytes());
  }
  Tensor unpack() const override {
    if (!tail_.defined()) {
      const CategoryScope scope(Category::workspace);
      return codes_->unpack().view({elements_});
    }
    const Tensor all = unpacked(elements_, dtype_);
    const int64_t coded = elements_ - tail_.numel();
    if (codes_ != nullptr) {
      const auto& codes = static_cast<const compress::Quantized&>(*codes_);
      codes.unpack_into(all.slice(0, 0, coded).view(shape_of_codes()));
    }
    std::memcpy(static_cast<char*>(all.raw()) + coded * static_cast<int64_t>(size_of(dtype_)),
                tail_.raw(), static_cast<size_t>(tail_.nbytes()));
    return all;
  }
  // The class of a code tells the sign, and the value does not: without its dither, it may lie
  // beyond the class.
  Tensor unpack_positive() const override {
    FRUGAL_CHECK(codes_ == nullptr || codes_->carries_sign(),
                 "[unpack] expected codes that tell which values are positive");
    const Tensor all = unpacked(elements_, dtype_);
    const int64_t coded = elements_ - (tail_.defined() ? tail_.numel() : 0);
    const FloatMemory memory = float_memory(dtype_);
    if (codes_ != nullptr) {
      const Tensor mask = codes_->unpack_sign();
      const uint8_t* const bits = mask.data<uint8_t>();
      const int64_t columns = mask.size(1);
      parallel_for(0, mask.size(0), std::max<int64_t>(1, kGrain / (8 * columns)),
                   [&](int64_t begin, int64_t end) {
                     fill_by_bits(bits + begin * columns, bytes_of(dtype_), 0, memory.one,
                                  {end - begin, columns}, at_mut(all, begin * 8 * columns));
                   });
    }
    for (int64_t i = coded; i < elements_; ++i)
      set_memory(all, i, memory.is_positive(memory_at(tail_, i - coded)) ? memory.one : 0);
    return all;
  }

 private:
  Shape shape_of_codes() const {
    const auto& layout = static_cast<const compress::Quantized&>(*codes_).layout();
    const int64_t coded = elements_ - (tail_.defined() ? tail_.numel() : 0);
    return layout.shared ? Shape{coded} : Shape{coded / layout.cols, layout.cols};
  }
  std::unique_ptr<Packed> codes_;
  Tensor tail_;
  int64_t elements_;
  DType dtype_;
};

// ---- codes of whole bits

// Reads codes of `width` bits, the first one in the lowest bits of a byte.
template <class T, class F>
Tensor read_codes(const Tensor& codes, int64_t elements, int width, DType dtype,
                  const F& value_of) {
  const Tensor all = unpacked(elements, dtype);
  T* const to = static_cast<T*>(all.raw());
  const uint8_t* const from = codes.data<uint8_t>();
  const int64_t per_byte = 8 / width;
  const uint32_t mask = (1u << width) - 1;
  parallel_for(0, codes.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint32_t byte = from[i];
      const int64_t first = i * per_byte, last = std::min(first + per_byte, elements);
      for (int64_t k = first; k < last; ++k, byte >>= width) to[k] = value_of(k, byte & mask);
    }
  });
  return all;
}
Tensor codes_for(int64_t elements, int width) { return packed_bytes((elements * width + 7) / 8); }

// ---- bits

// Bits of elements, in blocks: bit k of byte j of a block is element 64 k + j, so that loops over j
// become vector code. After the last whole block, element i is bit i % 8 of byte i / 8.
constexpr int64_t kLane = 64, kBlock = 8 * kLane;

// Writes a bit for each of the values: whole(first element, blocks, bytes) those of blocks, and
// bit_of(memory of an element) those of the rest.
template <class Whole, class Bit>
void write_bits(const Tensor& codes, const Tensor& values, const Whole& whole, const Bit& bit_of) {
  uint8_t* const to = codes.mut<uint8_t>();
  const int64_t elements = values.numel(), blocks = elements / kBlock;
  parallel_for(0, blocks, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    whole(begin * kBlock, BitBlocks{end - begin, kLane}, to + begin * kLane);
  });
  for (int64_t i = blocks * kBlock; i < elements; i += 8) {
    uint32_t byte = 0;
    for (int64_t k = 0; k < std::min<int64_t>(8, elements - i); ++k)
      byte |= static_cast<uint32_t>(bit_of(memory_at(values, i + k))) << k;
    to[blocks * kLane + (i - blocks * kBlock) / 8] = static_cast<uint8_t>(byte);
  }
}
// Fills `all` with `zeros` and `ones` by the bits of write_bits().
void read_bits(const Tensor& codes, const Tensor& all, uint64_t zeros, uint64_t ones) {
  const uint8_t* const from = codes.data<uint8_t>();
  const int64_t elements = all.numel(), blocks = elements / kBlock;
  parallel_for(0, blocks, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    fill_by_bits(from + begin * kLane, bytes_of(all.dtype()), zeros, ones, {end - begin, kLane},
                 at_mut(all, begin * kBlock));
  });
  for (int64_t i = blocks * kBlock; i < elements; ++i) {
    const int64_t rest = i - blocks * kBlock;
    set_memory(all, i, (from[blocks * kLane + rest / 8] >> (rest % 8) & 1) != 0 ? ones : zeros);
  }
}

// One bit for each element, and the values of both bits.
class Bits final : public Kept {
 public:
  // `first` and `second`: the values of the bits 0 and 1, as the dtype has them in memory.
  Bits(Tensor codes, int64_t elements, DType dtype, uint64_t first, uint64_t second, bool positive)
      : codes_(std::move(codes)),
        elements_(elements),
        dtype_(dtype),
        values_{first, second},
        positive_(positive) {}
  int64_t bytes() const override { return codes_.nbytes(); }
  Tensor unpack() const override {
    const Tensor all = unpacked(elements_, dtype_);
    read_bits(codes_, all, values_[0], values_[1]);
    return all;
  }
  Tensor unpack_positive() const override { return positive_ ? unpack() : Kept::unpack_positive(); }

 private:
  Tensor codes_;
  int64_t elements_;
  DType dtype_;
  uint64_t values_[2];
  bool positive_;  // is the value 1 where the packed value was positive, else 0?
};

// Is this the memory of a NaN?
bool is_nan(DType dtype, uint64_t bits) {
  if (!is_floating(dtype)) return false;
  const uint64_t sign = uint64_t{1} << (8 * bytes_of(dtype) - 1);
  return (bits & ~sign) > float_memory(dtype).infinity;
}

// ---- levels

class Levels final : public Kept {
 public:
  Levels(Tensor codes, int64_t elements, int width, std::vector<float> table, DType dtype)
      : codes_(std::move(codes)),
        elements_(elements),
        width_(width),
        table_(std::move(table)),
        dtype_(dtype) {}
  int64_t bytes() const override { return codes_.nbytes(); }
  Tensor unpack() const override {
    Tensor all;
    with_floating(dtype_, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> table;
      for (const float value : table_) table.push_back(T(value));
      all = read_codes<T>(codes_, elements_, width_, dtype_,
                          [&](int64_t, uint32_t code) { return table[code]; });
    });
    return all;
  }

 private:
  Tensor codes_;
  int64_t elements_;
  int width_;
  std::vector<float> table_;
  DType dtype_;
};

// ---- windows

// The windows of the outputs, one after the other: the index at which each begins in its plane.
class Walk {
 public:
  Walk(const Windows& windows, int64_t output) : w_(windows) {
    const int64_t in_plane = output % (w_.out_height * w_.out_width);
    row_ = in_plane / w_.out_width;
    column_ = in_plane % w_.out_width;
    origin_ = begin_of_row() + column_ * w_.stride[1];
  }
  int64_t origin() const { return origin_; }
  void next() {
    origin_ += w_.stride[1];
    if (++column_ < w_.out_width) return;
    column_ = 0;
    if (++row_ == w_.out_height) row_ = 0;
    origin_ = begin_of_row();
  }

 private:
  int64_t begin_of_row() const {
    return (row_ * w_.stride[0] - w_.padding[0]) * w_.width - w_.padding[1];
  }
  const Windows& w_;
  int64_t row_ = 0, column_ = 0, origin_ = 0;
};

// How far a place lies behind the beginning of its window.
int64_t distance_of(const Windows& w, int64_t place) {
  return place / w.kernel[1] * w.dilation[0] * w.width + place % w.kernel[1] * w.dilation[1];
}

class Places final : public Kept {
 public:
  Places(Tensor codes, int64_t elements, int width, const Windows& windows)
      : codes_(std::move(codes)), elements_(elements), width_(width), windows_(windows) {}
  int64_t bytes() const override { return codes_.nbytes(); }
  Tensor unpack() const override {
    const Windows& w = windows_;
    int64_t distances[256] = {};  // from where a window begins to each of its places
    for (int64_t place = 0; place < w.kernel[0] * w.kernel[1]; ++place)
      distances[place] = distance_of(w, place);
    const Tensor all = unpacked(elements_, DType::i64);
    int64_t* const to = all.mut<int64_t>();
    const uint8_t* const from = codes_.data<uint8_t>();
    const int64_t per_byte = 8 / width_;
    const uint32_t mask = (1u << width_) - 1;
    parallel_for(0, codes_.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
      Walk walk(w, begin * per_byte);
      for (int64_t i = begin; i < end; ++i) {
        uint32_t byte = from[i];
        const int64_t first = i * per_byte, last = std::min(first + per_byte, elements_);
        for (int64_t k = first; k < last; ++k, byte >>= width_, walk.next())
          to[k] = walk.origin() + distances[byte & mask];
      }
    });
    return all;
  }

 private:
  Tensor codes_;
  int64_t elements_;
  int width_;
  Windows windows_;
};

}  // namespace

Tensor Kept::unpack_positive() const {
  throw Error("[unpack] expected codes that tell which values are positive");
}

std::unique_ptr<Kept> keep_groups(const Tensor& values, const GroupOptions& options) {
  check_host(values);
  const int64_t elements = values.numel(), columns = options.columns;
  const Tensor flat = values.view({elements});
  compress::QuantizeOptions quantize;
  quantize.bits = options.bits;
  quantize.rounding = compress::Rounding::dithered;
  quantize.seed = options.seed;
  quantize.axis = columns == 0 ? compress::GroupAxis::row : compress::GroupAxis::column;
  SaveInfo info;
  info.op = "frugal.torch";
  info.step = options.step;
  info.seq = options.seq;
  if (!options.positive) {
    FRUGAL_CHECK(columns == 0 || elements % columns == 0,
                 "[pack] expected columns that divide {} values, got {}", elements, columns);
    const compress::Quantizer codec(quantize);
    return std::make_unique<Groups>(
        codec.pack(columns == 0 ? flat : flat.view({elements / columns, columns}), info), Tensor(),
        elements, values.dtype());
  }
  FRUGAL_CHECK(
      columns > 0 && options.bits >= 2,
      "[pack] expected columns and 2 bits or more for codes that tell signs, got {} and {}",
      columns, options.bits);
  const int64_t coded = elements / (8 * columns) * (8 * columns);
  Tensor tail;
  if (coded < elements) {
    const Tensor rest = flat.slice(0, coded, elements);
    const CategoryScope scope(Category::packed);
    tail = Tensor::empty({elements - coded}, values.dtype());
    std::memcpy(tail.raw(), rest.raw(), static_cast<size_t>(rest.nbytes()));
  }
  std::unique_ptr<Packed> codes;
  if (coded > 0) {
    const Tensor rows = flat.slice(0, 0, coded).view({coded / columns, columns});
    const Sign sign{positive_mask(rows), 0};
    info.sign = &sign;
    codes = compress::Quantizer(quantize).pack(rows, info);
  }
  return std::make_unique<Groups>(std::move(codes), std::move(tail), elements, values.dtype());
}

std::unique_ptr<Kept> keep_two_values(const Tensor& values) {
  check_host(values);
  const int64_t elements = values.numel();
  if (elements == 0) return nullptr;
  const uint64_t first = memory_at(values, 0);
  int64_t other = 0;
  while (other < elements && memory_at(values, other) == first) ++other;
  const uint64_t second = other < elements ? memory_at(values, other) : first;
  // Most tensors of other kinds have a third value soon.
  for (int64_t i = other; i < std::min<int64_t>(other + 256, elements); ++i)
    if (memory_at(values, i) != first && memory_at(values, i) != second) return nullptr;
  if (is_nan(values.dtype(), first) || is_nan(values.dtype(), second)) return nullptr;
  const Tensor codes = codes_for(elements, 1);
  std::atomic<bool> two = true;
  write_bits(
      codes, values,
      [&](int64_t element, BitBlocks blocks, uint8_t* to) {
        if (!differing_bits(at(values, element), bytes_of(values.dtype()), first, second, blocks,
                            to))
          two.store(false, std::memory_order_relaxed);
      },
      [&](uint64_t bits) {
        if (bits != first && bits != second) two.store(false, std::memory_order_relaxed);
        return bits != first;
      });
  if (!two) return nullptr;
  return std::make_unique<Bits>(codes, elements, values.dtype(), first, second, false);
}

std::unique_ptr<Kept> keep_positive(const Tensor& values) {
  check_host(values);
  const Tensor codes = codes_for(values.numel(), 1);
  const FloatMemory memory = float_memory(values.dtype());
  write_bits(
      codes, values,
      [&](int64_t element, BitBlocks blocks, uint8_t* to) {
        positive_bits(at(values, element), bytes_of(values.dtype()), memory.infinity, blocks, to);
      },
      [&](uint64_t bits) { return memory.is_positive(bits); });
  return std::make_unique<Bits>(codes, values.numel(), values.dtype(), 0, memory.one, true);
}

std::unique_ptr<Kept> keep_levels(const Tensor& values, const std::vector<float>& levels, int width,
                                  std::vector<float> table, DType dtype, RngKey key) {
  check_host(values);
  FRUGAL_CHECK(width == 1 || width == 2 || width == 4 || width == 8,
               "[pack] expected 1, 2, 4 or 8 bits for levels, got {}", width);
  const int last = (1 << width) - 1;
  FRUGAL_CHECK(levels.size() == table.size() && static_cast<int>(levels.size()) == last + 1 &&
                   std::is_sorted(levels.begin(), levels.end()) && levels.front() < levels.back(),
               "[pack] expected {} levels that rise, and a value for each, got {} and {}", last + 1,
               levels.size(), table.size());
  const int64_t elements = values.numel();
  const float* const from = values.data<float>();
  const Tensor codes = codes_for(elements, width);
  uint8_t* const to = codes.mut<uint8_t>();
  const float scale = static_cast<float>(last) / (levels.back() - levels.front());
  // Levels that lie evenly need no search after this guess.
  const auto below = [&](float x) {
    int i = std::clamp(static_cast<int>((x - levels.front()) * scale), 0, last - 1);
    while (i > 0 && x < levels[static_cast<size_t>(i)]) --i;
    while (i < last - 1 && x >= levels[static_cast<size_t>(i + 1)]) ++i;
    return i;
  };
  std::atomic<bool> finite = true;
  // Eight values draw 16 bits each from one call.
  parallel_for(0, (elements + 7) / 8, kGrain / 8, [&](int64_t begin, int64_t end) {
    bool all = true;
    for (int64_t block = begin; block < end; ++block) {
      const Words words = philox_words(key, static_cast<uint64_t>(block));
      const int count = static_cast<int>(std::min<int64_t>(8, elements - block * 8));
      uint64_t packed = 0;
      for (int k = 0; k < count; ++k) {
        float x = from[block * 8 + k];
        all = all && std::isfinite(x);
        x = std::isfinite(x) ? std::clamp(x, levels.front(), levels.back()) : levels.front();
        const int i = below(x);
        const float lower = levels[static_cast<size_t>(i)],
                    upper = levels[static_cast<size_t>(i + 1)];
        const uint32_t draw = words.w[k / 2] >> (k % 2 * 16) & 0xffff;
        const float u = (static_cast<float>(draw) + 0.5f) * 0x1p-16f;
        const int code = i + ((x - lower) > u * (upper - lower) ? 1 : 0);
        packed |= static_cast<uint64_t>(code) << (k * width);
      }
      for (int byte = 0; byte < (count * width + 7) / 8; ++byte)
        to[block * width + byte] = static_cast<uint8_t>(packed >> (8 * byte));
    }
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite) return nullptr;
  return std::make_unique<Levels>(codes, elements, width, std::move(table), dtype);
}

std::unique_ptr<Kept> keep_windows(const Tensor& indices, const Windows& w) {
  check_host(indices);
  const int64_t places = w.kernel[0] * w.kernel[1];
  if (indices.dtype() != DType::i64 || places < 1 || places > 256) return nullptr;
  if (indices.numel() % std::max<int64_t>(1, w.out_height * w.out_width) != 0) return nullptr;
  const int width = places <= 2 ? 1 : places <= 4 ? 2 : places <= 16 ? 4 : 8;
  const int64_t elements = indices.numel();
  const Tensor codes = codes_for(elements, width);
  const int64_t* const from = indices.data<int64_t>();
  std::atomic<bool> fits = true;
  // Windows as wide as this have two places at one distance.
  if ((w.kernel[1] - 1) * w.dilation[1] >= w.width) return nullptr;
  std::vector<int16_t> place_at(static_cast<size_t>(distance_of(w, places - 1)) + 1, -1);
  for (int64_t place = 0; place < places; ++place)
    place_at[static_cast<size_t>(distance_of(w, place))] = static_cast<int16_t>(place);
  const int64_t per_byte = 8 / width;
  uint8_t* const to = codes.mut<uint8_t>();
  parallel_for(0, codes.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    bool all = true;
    Walk walk(w, begin * per_byte);
    for (int64_t i = begin; i < end; ++i) {
      uint32_t byte = 0;
      const int64_t first = i * per_byte, last = std::min(first + per_byte, elements);
      for (int64_t k = first; k < last; ++k, walk.next()) {
        const auto distance = static_cast<size_t>(from[k] - walk.origin());  // below 0: very large
        const int place = distance < place_at.size() ? place_at[distance] : -1;
        all = all && place >= 0;
        byte |= static_cast<uint32_t>(std::max(place, 0)) << ((k - first) * width);
      }
      to[i] = static_cast<uint8_t>(byte);
    }
    if (!all) fits.store(false, std::memory_order_relaxed);
  });
  if (!fits) return nullptr;
  return std::make_unique<Places>(codes, elements, width, w);
}

// ---- Python

namespace {

// The widths from `least` to 8 bits of tensors of so many elements, by which the sum of the
// variances of gradients is least and the codes take at most `bits`. Empty: the least widths take
// more.
std::vector<int> allocate_widths(const std::vector<int64_t>& elements,
                                 const std::vector<double>& sensitivities,
                                 const std::vector<int>& least, int64_t bits) {
  constexpr int kMost = 8;
  FRUGAL_CHECK(elements.size() == sensitivities.size() && elements.size() == least.size(),
               "[widths] expected a sensitivity and a least width for each of {} tensors",
               elements.size());
  std::vector<std::vector<compress::Option>> items;
  for (size_t i = 0; i < elements.size(); ++i) {
    std::vector<compress::Option>& options = items.emplace_back();
    for (int width = std::min(least[i], kMost); width <= kMost; ++width)
      options.push_back({sensitivities[i] * compress::step_variance(width), elements[i] * width});
  }
  const compress::Allocation found = compress::allocate(items, bits);
  if (!found.feasible) return {};
  std::vector<int> widths;
  for (size_t i = 0; i < elements.size(); ++i)
    widths.push_back(std::min(least[i], kMost) + found.choice[i]);
  return widths;
}

// What `f` makes of the tensor, computed without the interpreter's lock.
template <class F>
std::shared_ptr<Kept> without_lock(const py::object& object, const F& f) {
  const Tensor tensor = shared_tensor(object);
  const py::gil_scoped_release release;
  return f(tensor);
}

Tensor unpack_without_lock(const Kept& kept, bool positive) {
  const py::gil_scoped_release release;
  return positive ? kept.unpack_positive() : kept.unpack();
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  throw Error(fmt::format("[pack] expected f64, f32, bf16 or f16, got {}", name));
}

}  // namespace

void add_packing(py::module_& module) {
  using namespace py::literals;
  py::class_<Kept, std::shared_ptr<Kept>>(module, "Kept")
      .def_property_readonly("nbytes", &Kept::bytes)
      .def("unpack", [](const Kept& kept) { return unpack_without_lock(kept, false); })
      .def("unpack_positive", [](const Kept& kept) { return unpack_without_lock(kept, true); });
  module.def(
      "keep_groups",
      [](const py::object& values, int bits, int64_t columns, bool positive, uint64_t seed,
         uint64_t step, uint64_t seq) {
        return without_lock(values, [&](const Tensor& tensor) {
          return keep_groups(tensor, {bits, columns, positive, seed, step, seq});
        });
      },
      "values"_a, "bits"_a, "columns"_a = 0, "positive"_a = false, "seed"_a = 0, "step"_a = 0,
      "seq"_a = 0);
  module.def("allocate_widths", &allocate_widths, "elements"_a, "sensitivities"_a, "least"_a,
             "bits"_a);
  module.def(
      "preset",
      [](const std::string& name) {
        std::string known;
        for (const compress::Named& each : compress::presets()) {
          if (each.of != compress::Named::preset) continue;
          if (each.name == name) return std::pair(each.choice.bits(), each.choice.is_adaptive());
          known += (known.empty() ? "" : ", ") + std::string(each.name);
        }
        throw Error(
            fmt::format("[compress] expected a preset of {}, got {}", known, in_quotes(name)));
      },
      "name"_a);
  module.def("give_back_freed", [] {
#ifdef __GLIBC__
    const py::gil_scoped_release unlocked;
    malloc_trim(0);
#endif
  });
  module.def("keep_two_values",
             [](const py::object& values) { return without_lock(values, keep_two_values); });
  module.def("keep_positive",
             [](const py::object& values) { return without_lock(values, keep_positive); });
  module.def(
      "keep_levels",
      [](const py::object& values, const std::vector<float>& levels, int width,
         std::vector<float> table, const std::string& dtype, uint64_t seed, uint64_t offset) {
        const DType as = dtype_named(dtype);
        return without_lock(values, [&](const Tensor& tensor) {
          return keep_levels(tensor, levels, width, std::move(table), as, {seed, offset});
        });
      },
      "values"_a, "levels"_a, "width"_a, "table"_a, "dtype"_a = "f32", "seed"_a = 0,
      "offset"_a = 0);
  module.def(
      "keep_windows",
      [](const py::object& indices, std::pair<int64_t, int64_t> plane,
         std::pair<int64_t, int64_t> out, std::pair<int64_t, int64_t> kernel,
         std::pair<int64_t, int64_t> stride, std::pair<int64_t, int64_t> padding,
         std::pair<int64_t, int64_t> dilation) {
        const Windows windows = {plane.first,
                                 plane.second,
                                 out.first,
                                 out.second,
                                 {kernel.first, kernel.second},
                                 {stride.first, stride.second},
                                 {padding.first, padding.second},
                                 {dilation.first, dilation.second}};
        return without_lock(indices,
                            [&](const Tensor& tensor) { return keep_windows(tensor, windows); });
      },
      "indices"_a, "plane"_a, "out"_a, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a);
}

}  // namespace frugal::python
