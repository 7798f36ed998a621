#include "core/tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "core/cuda/cuda_memory.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "core/to_integer.h"

namespace frugal {
namespace {

std::atomic<uint64_t> next_storage_id{1};

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>)
    return static_cast<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>)
    return To(static_cast<float>(value));
  else if constexpr (kToInteger<To, From>)
    return to_integer<To>(value);
  else
    return static_cast<To>(value);
}

// Can a number of `dtype` equal `value`? A floating-point number may differ by rounding.
bool holds(DType dtype, double value) {
  switch (dtype) {
    case DType::i64:  // 2^63 is the first number beyond
      return value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63;
    case DType::i32:
      return value == std::trunc(value) && value >= -0x1p31 && value < 0x1p31;
    case DType::u8:
      return value == std::trunc(value) && value >= 0 && value < 256;
    case DType::bool_:
      return value == 0 || value == 1;
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      break;
  }
  return true;
}

// What tensors for `device` are filled with on the host first; on meta nothing is.
template <class F>
Tensor filled_on_host(const Shape& shape, DType dtype, Device device, F value_of) {
  Tensor host = Tensor::empty(shape, dtype, device == kMeta ? kMeta : kCpu);
  if (device == kMeta) return host;
  with_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = host.mut<T>();
    parallel_for(0, host.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = convert<T>(value_of(i));
    });
  });
  return to_device(host, device);
}

}  // namespace

Storage::Storage(int64_t bytes, Device device, Category category, bool grows)
    : block_(grows ? allocator(device).reserve(bytes, category)
                   : allocator(device).allocate(bytes, category)),
      bytes_(bytes),
      device_(device),
      id_(next_storage_id++) {
  if (device.type == DeviceType::meta) block_.data = nullptr;
}

Storage::~Storage() { allocator(device_).release(block_); }

void Storage::grow(int64_t bytes) { allocator(device_).grow(block_, bytes); }

Tensor Tensor::make(const Shape& shape, DType dtype, Device device, bool grows) {
  for (int64_t extent : shape)
    FRUGAL_CHECK(extent >= 0, "[tensor] expected extents of at least 0, got {}", shape);
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.strides_ = contiguous_strides(shape);
  tensor.dtype_ = dtype;
  tensor.storage_ =
      std::make_shared<Storage>(tensor.nbytes(), device, CategoryScope::current(), grows);
  return tensor;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  return make(shape, dtype, device, false);
}

Tensor Tensor::growing(const Shape& shape, DType dtype, Device device) {
  return make(shape, dtype, device, true);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  dispatch(device, [&](auto backend) {
    if (tensor.nbytes() == 0) return;
    if constexpr (std::is_same_v<decltype(backend), Cpu>)
      std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.nbytes()));
    else
      cuda::zero_bytes(tensor.raw(), tensor.nbytes());
  });
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  dispatch(device, [&](auto backend) {
    with_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      const T filled = convert<T>(value);
      if constexpr (std::is_same_v<decltype(backend), Cpu>)
        std::fill_n(tensor.mut<T>(), tensor.numel(), filled);
      else
        cuda::fill(tensor.raw(), tensor.numel(), &filled, sizeof(T));
    });
  });
  return tensor;
}

Tensor Tensor::ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

NestedList::NestedList(std::initializer_list<NestedList> items) {
  shape_.push_back(static_cast<int64_t>(items.size()));
  if (items.size() == 0) return;
  for (int64_t extent : items.begin()->shape_) shape_.push_back(extent);
  for (const NestedList& item : items) {
    FRUGAL_CHECK(item.shape_ == items.begin()->shape_,
                 "[tensor] expected lists of one shape, got {} and {} side by side",
                 items.begin()->shape_, item.shape_);
    values_.insert(values_.end(), item.values_.begin(), item.values_.end());
  }
}

Tensor Tensor::of(const NestedList& values, DType dtype, Device device) {
  for (const double value : values.values())
    FRUGAL_CHECK(holds(dtype, value), "[tensor] expected numbers that {} holds, got {}",
                 name_of(dtype), value);
  return filled_on_host(values.shape(), dtype, device,
                        [&](int64_t i) { return values.values()[static_cast<size_t>(i)]; });
}

Tensor Tensor::arange(double begin, double end, double step, DType dtype, Device device) {
  const double count = std::ceil((end - begin) / step);
  FRUGAL_CHECK(step != 0 && count >= 0 && count < 0x1p53,
               "[arange] expected a step that leads from {} to {}, got {}", begin, end, step);
  FRUGAL_CHECK(count == 0 || (holds(dtype, begin) && holds(dtype, begin + step * (count - 1)) &&
                              (is_floating(dtype) || step == std::trunc(step))),
               "[arange] expected numbers that {} holds, got {} to {} by {}", name_of(dtype), begin,
               end, step);
  return filled_on_host({static_cast<int64_t>(count)}, dtype, device,
                        [&](int64_t i) { return begin + step * static_cast<double>(i); });
}

Tensor Tensor::rand(const Shape& shape, RngKey key, DType dtype, Device device) {
  FRUGAL_CHECK(is_floating(dtype), "[rand] expected a floating dtype, got {}", name_of(dtype));
  return filled_on_host(shape, dtype, device,
                        [&](int64_t i) { return uniform(key, static_cast<uint64_t>(i)); });
}

Tensor Tensor::randn(const Shape& shape, RngKey key, DType dtype, Device device) {
  FRUGAL_CHECK(is_floating(dtype), "[randn] expected a floating dtype, got {}", name_of(dtype));
  return filled_on_host(shape, dtype, device,
                        [&](int64_t i) { return normal(key, static_cast<uint64_t>(i)); });
}

int64_t Tensor::size(int axis) const { return shape_[normalize_axis("tensor", axis, dim())]; }

Device Tensor::device() const {
  FRUGAL_ASSERT(defined());
  return storage_->device();
}

bool Tensor::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t step = 1;
  for (int axis = dim() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != step) return false;
    step *= shape_[axis];
  }
  return true;
}

void* Tensor::raw() const {
  FRUGAL_ASSERT(defined());
  auto* bytes = static_cast<char*>(storage_->data());
  return bytes == nullptr ? nullptr : bytes + offset_ * static_cast<int64_t>(size_of(dtype_));
}

void Tensor::require(DType dtype) const {
  if (dtype != dtype_)
    throw InternalError(
        fmt::format("a kernel for {} was given {}", name_of(dtype), describe(*this)));
}

Tensor Tensor::view(const Shape& wanted) const {
  FRUGAL_CHECK(is_contiguous(), "[view] expected a contiguous tensor, got {} with strides {}",
               describe(*this), strides_);
  Shape shape = wanted;
  int inferred = -1;
  int64_t known = 1;
  for (int axis = 0; axis < shape.dim(); ++axis) {
    if (shape[axis] == -1 && inferred < 0) {
      inferred = axis;
    } else {
      FRUGAL_CHECK(shape[axis] >= 0,
                   "[view] expected extents of at least 0 and at most one of -1, got {}", wanted);
      known *= shape[axis];
    }
  }
  if (inferred >= 0) {
    FRUGAL_CHECK(known > 0,
                 "[view] expected extents that determine the one of -1, got {}, where any fits",
                 wanted);
    shape[inferred] = numel() / known;
  }
  FRUGAL_CHECK(shape.numel() == numel(), "[view] expected a shape of {} elements for {}, got {}",
               numel(), describe(*this), wanted);
  return as_strided(shape, contiguous_strides(shape), offset_);
}

Tensor Tensor::as_strided(const Shape& shape, const Shape& strides, int64_t offset) const {
  Tensor tensor = *this;
  tensor.shape_ = shape;
  tensor.strides_ = strides;
  tensor.offset_ = offset;
  return tensor;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end) const {
  axis = normalize_axis("slice", axis, dim());
  FRUGAL_CHECK(0 <= begin && begin <= end && end <= shape_[axis],
               "[slice] expected 0 <= begin <= end <= {} on axis {}, got [{}, {})", shape_[axis],
               axis, begin, end);
  Tensor tensor = *this;
  tensor.shape_[axis] = end - begin;
  if (end > begin) tensor.offset_ += begin * strides_[axis];
  return tensor;
}

Tensor Tensor::select(int axis, int64_t index) const {
  axis = normalize_axis("select", axis, dim());
  const int64_t extent = shape_[axis];
  FRUGAL_CHECK(index >= -extent && index < extent,
               "[select] expected an index in [{}, {}) on axis {}, got {}", -extent, extent, axis,
               index);
  if (index < 0) index += extent;
  const Tensor one = slice(axis, index, index + 1);
  Shape shape, strides;
  for (int a = 0; a < dim(); ++a) {
    if (a == axis) continue;
    shape.push_back(shape_[a]);
    strides.push_back(strides_[a]);
  }
  return one.as_strided(shape, strides, one.offset_);
}

Tensor Tensor::permute(const std::vector<int>& axes) const {
  FRUGAL_CHECK(static_cast<int>(axes.size()) == dim(), "[permute] expected {} axes, got {}", dim(),
               axes.size());
  Shape shape, strides;
  uint32_t seen = 0;
  for (int axis : axes) {
    axis = normalize_axis("permute", axis, dim());
    FRUGAL_CHECK((seen >> axis & 1u) == 0, "[permute] expected each axis once, got {} twice", axis);
    seen |= 1u << axis;
    shape.push_back(shape_[axis]);
    strides.push_back(strides_[axis]);
  }
  return as_strided(shape, strides, offset_);
}

Tensor Tensor::transpose(int a, int b) const {
  std::vector<int> axes(static_cast<size_t>(dim()));
  for (int axis = 0; axis < dim(); ++axis) axes[static_cast<size_t>(axis)] = axis;
  std::swap(axes[static_cast<size_t>(normalize_axis("transpose", a, dim()))],
            axes[static_cast<size_t>(normalize_axis("transpose", b, dim()))]);
  return permute(axes);
}

template <class T>
T Tensor::item(int64_t flat_index) const {
  FRUGAL_CHECK(defined() && device().type != DeviceType::meta,
               "[item] expected a tensor that has values, got {}", describe(*this));
  FRUGAL_CHECK(flat_index >= 0 && flat_index < numel(),
               "[item] expected an index in [0, {}), got {}", numel(), flat_index);
  int64_t position = 0;
  for (int axis = dim() - 1; axis >= 0; --axis) {
    position += flat_index % shape_[axis] * strides_[axis];
    flat_index /= shape_[axis];
  }
  return with_dtype(dtype_, [&](auto zero) {
    using Stored = decltype(zero);
    Stored value{};
    copy_bytes(&value, kCpu, data<Stored>() + position, device(), sizeof(Stored));
    return convert<T>(value);
  });
}

template <class T, class Stored>
void Tensor::read_into(std::vector<T>& values) const {
  const Stored* const from = data<Stored>();
  std::array<int64_t, Shape::kMaxDim> at{};
  int64_t position = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = convert<T>(from[position]);
    for (int axis = dim() - 1; axis >= 0; --axis) {
      int64_t& index = at[static_cast<size_t>(axis)];
      position += strides_[axis];
      if (++index < shape_[axis]) break;
      position -= index * strides_[axis];
      index = 0;
    }
  }
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  FRUGAL_CHECK(defined() && device().type != DeviceType::meta,
               "[to_vector] expected a tensor that has values, got {}", describe(*this));
  std::vector<T> values(static_cast<size_t>(numel()));
  if (device() == kCpu) {
    with_dtype(dtype_, [&](auto zero) { read_into<T, decltype(zero)>(values); });
  } else if (is_contiguous()) {
    const CategoryScope scope(Category::workspace);
    return to_device(*this, kCpu).to_vector<T>();
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = item<T>(static_cast<int64_t>(i));
  }
  return values;
}

#define FRUGAL_READ(T)                       \
  template T Tensor::item<T>(int64_t) const; \
  template std::vector<T> Tensor::to_vector<T>() const;
FRUGAL_READ(double)
FRUGAL_READ(float)
FRUGAL_READ(int64_t)
FRUGAL_READ(int32_t)
FRUGAL_READ(uint8_t)
FRUGAL_READ(bool)
#undef FRUGAL_READ

Tensor to_device(const Tensor& tensor, Device device) {
  if (tensor.device() == device) return tensor;
  FRUGAL_CHECK(tensor.is_contiguous(), "[to_device] expected a contiguous tensor, got strides {}",
               tensor.strides());
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device);
  if (device.type != DeviceType::meta && tensor.device().type != DeviceType::meta)
    copy_bytes(copy.raw(), device, tensor.raw(), tensor.device(), tensor.nbytes());
  return copy;
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("{} {} on {}", tensor.shape(), name_of(tensor.dtype()), tensor.device().str());
}

}  // namespace frugal
