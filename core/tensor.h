// Tensor: a strided view of a shared Storage. It knows nothing of gradients (see
// autograd/variable.h). Copying a Tensor copies the view, not the data. Images are NHWC, weights
// [K, R, S, C].
#pragma once
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/shape.h"

namespace frugal {

// Owns one block. `id` is never reused; `version` counts in-place writes.
class Storage {
 public:
  // `grows`: see Tensor::growing().  Errors: OutOfMemory
  Storage(int64_t bytes, Device device, Category category, bool grows = false);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return block_.data; }  // nullptr on `meta`
  int64_t bytes() const { return bytes_; }    // as asked for
  Device device() const { return device_; }
  Category category() const { return block_.category; }
  uint64_t id() const { return id_; }
  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }
  void grow(int64_t bytes);  // see Tensor::growing().  Errors: OutOfMemory

 private:
  Allocator::Block block_;
  int64_t bytes_;
  Device device_;
  uint64_t id_;
  uint64_t version_ = 0;
};

// A number, or a list of lists of one shape: {{1, 2}, {3, 4}}. For Tensor::of().
class NestedList {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> NestedList(T value)
      : values_{static_cast<double>(value)} {  // NOLINT: meant to be implicit
    FRUGAL_CHECK(!std::is_integral_v<T> || (values_[0] <= 0x1p53 && values_[0] >= -0x1p53),
                 "[tensor] expected whole numbers up to 2^53, got {}; Tensor::from takes all",
                 value);
  }
  NestedList(std::initializer_list<NestedList> items);  // Errors: items of different shapes

  const Shape& shape() const { return shape_; }
  const std::vector<double>& values() const { return values_; }  // in row-major order

 private:
  Shape shape_;
  std::vector<double> values_;
};

class Tensor {
 public:
  Tensor() = default;  // undefined

  // Factories allocate in CategoryScope::current(). `empty` is uninitialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
  // As empty(), but memory is taken and accounted as storage()->grow(bytes) asks for it. Nothing
  // beyond that may be touched. For a large tensor that is written from its beginning to its end
  // while what it is made of is freed.
  static Tensor growing(const Shape& shape, DType dtype, Device device);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
                     Device device = kCpu);
  static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);  // cpu, dtype_of<T>
  // From numbers in braces: of({{1, 2}, {3, 4}}) is [2, 2], of({1}) is [1], of(1) is [].
  // Errors: lists of different lengths; a number that `dtype` does not hold, as 0.5 in i64.
  static Tensor of(const NestedList& values, DType dtype = DType::f32, Device device = kCpu);
  // begin, begin + step, ... to before `end`.  Errors: a step of 0 or away from `end`.
  static Tensor arange(double begin, double end, double step = 1, DType dtype = DType::f32,
                       Device device = kCpu);
  // Uniform in [0, 1), and standard normal. Element i depends on the key and i alone, on every
  // device. Rng (core/rng.h) hands out keys.  Errors: a dtype that is not floating.
  static Tensor rand(const Shape& shape, RngKey key, DType dtype = DType::f32,
                     Device device = kCpu);
  static Tensor randn(const Shape& shape, RngKey key, DType dtype = DType::f32,
                      Device device = kCpu);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int64_t offset() const { return offset_; }         // in elements
  int dim() const { return shape_.dim(); }
  int64_t size(int axis) const;  // negative counts from the end
  int64_t numel() const { return shape_.numel(); }
  int64_t nbytes() const { return numel() * static_cast<int64_t>(size_of(dtype_)); }
  DType dtype() const { return dtype_; }
  Device device() const;
  bool is_contiguous() const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  // The first element. REQUIRES: T matches dtype(). `data` reads; `mut` writes (bump_version()
  // after an in-place change of a tensor that others may have saved).
  template <class T>
  const T* data() const {
    require(dtype_of<T>);
    return static_cast<const T*>(raw());
  }
  template <class T>
  T* mut() const {
    require(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  void* raw() const;  // nullptr on `meta`
  void bump_version() const { storage_->bump_version(); }

  // Views: no copy.
  Tensor view(const Shape& shape) const;  // REQUIRES: contiguous; one extent may be -1
  Tensor as_strided(const Shape& shape, const Shape& strides, int64_t offset) const;
  Tensor slice(int axis, int64_t begin, int64_t end) const;  // [begin, end) of one axis
  // Drops the axis. A negative index counts from the end.
  Tensor select(int axis, int64_t index) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor permute(const std::vector<int>& axes) const;
  Tensor transpose(int a, int b) const;

  // Reads one element or all, in row-major order, whatever the dtype, waiting for the device. For
  // tests, reports and scalars. T: double, float, int64_t, int32_t, uint8_t, bool.
  // Errors: undefined, `meta`.
  template <class T = double>
  T item(int64_t flat_index = 0) const;
  template <class T = double>
  std::vector<T> to_vector() const;

 private:
  static Tensor make(const Shape& shape, DType dtype, Device device, bool grows);
  void require(DType dtype) const;
  template <class T, class Stored>
  void read_into(std::vector<T>& values) const;
  std::shared_ptr<Storage> storage_;
  Shape shape_, strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::f32;
};

// `tensor` itself where it is on `device`, else a copy there, in CategoryScope::current(). From or
// to `meta`, values are left out.  Errors: to be copied, and not contiguous (ops/dense/copy.h makes
// it so).
Tensor to_device(const Tensor& tensor, Device device);

// "[2, 3] f32 on cpu"
std::string describe(const Tensor& tensor);

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  FRUGAL_CHECK(static_cast<int64_t>(values.size()) == shape.numel(),
               "[tensor] expected {} values for shape {}, got {}", shape.numel(), shape,
               values.size());
  Tensor tensor = empty(shape, dtype_of<T>, kCpu);
  T* out = tensor.mut<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return tensor;
}

}  // namespace frugal
