#include "core/tensor.h"

#include <algorithm>
#include <atomic>

#include "core/cuda_memory.h"
#include "core/dtype_switch.h"

namespace frugal {
namespace {

std::atomic<uint64_t> next_storage_id{1};

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

}  // namespace

Storage::Storage(int64_t bytes, Device device, Category category)
    : block_(allocator(device).allocate(bytes, category)),
      bytes_(bytes),
      device_(device),
      id_(next_storage_id++) {
  if (device.type == DeviceType::meta) block_.data = nullptr;
}

Storage::~Storage() { allocator(device_).release(block_); }

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  for (int64_t extent : shape)
    FRUGAL_CHECK(extent >= 0, "[tensor] expected extents of at least 0, got {}", shape);
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.strides_ = contiguous_strides(shape);
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<Storage>(tensor.nbytes(), device, CategoryScope::current());
  return tensor;
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
      const T filled = from_double<T>(value);
      if constexpr (std::is_same_v<decltype(backend), Cpu>)
        std::fill_n(tensor.mut<T>(), tensor.numel(), filled);
      else
        cuda::fill(tensor.raw(), tensor.numel(), &filled, sizeof(T));
    });
  });
  return tensor;
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

double Tensor::item(int64_t flat_index) const {
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
    using T = decltype(zero);
    T value{};
    copy_bytes(&value, kCpu, data<T>() + position, device(), sizeof(T));
    return as_double(value);
  });
}

std::vector<double> Tensor::to_vector() const {
  if (device().type == DeviceType::cuda && is_contiguous()) {
    const CategoryScope scope(Category::workspace);
    return to_device(*this, kCpu).to_vector();
  }
  std::vector<double> values(static_cast<size_t>(numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = item(static_cast<int64_t>(i));
  return values;
}

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
