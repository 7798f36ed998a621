// How frugal.torch keeps tensors (compress/foreign/forms.h), and what it asks of policies.
#include <malloc.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "compress/foreign/forms.h"
#include "compress/policies/allocate.h"
#include "compress/policies/levels.h"
#include "core/cuda/cuda_device.h"
#include "core/parallel.h"
#include "core/words/quoted.h"
#include "python/module/bindings.h"

namespace frugal::python {
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

using compress::foreign::Kept;
using compress::foreign::Memory;

// Where tensors of CUDA are packed and unpacked: on a stream of another library (a cudaStream_t),
// in memory that its function gives.
struct Where {
  std::optional<uint64_t> stream;
  py::object allocate;  // bytes to what shared_tensor() takes; None: the engine's allocator

  Memory memory() const {
    if (allocate.is_none()) return {};
    return [this](int64_t bytes) {
      const py::gil_scoped_acquire lock;
      return shared_tensor(allocate(bytes));
    };
  }
  // While what it gives lives, work goes to the stream.
  std::shared_ptr<void> scope(Device device) const {
    if constexpr (kHasCuda)
      if (device.type == DeviceType::cuda && stream.has_value())
        return std::make_shared<cuda::StreamScope>(device.index,
                                                   reinterpret_cast<void*>(stream.value()));
    return nullptr;
  }
};

// PyTorch's matrix products may have threads of their own (OpenBLAS), beside which OpenMP's threads
// spin for a while after each loop. Packing is bound by memory, so half of the threads do it: on
// two cores none but the one that calls.
ThreadLimit half_of_the_threads() { return ThreadLimit(std::max(1, num_threads() / 2)); }

// What `f` makes of the tensor, computed without the interpreter's lock.
template <class F>
std::shared_ptr<Kept> without_lock(const py::object& object, const Where& where, const F& f) {
  const Tensor tensor = shared_tensor(object);
  const Memory memory = where.memory();
  const py::gil_scoped_release release;
  const ThreadLimit threads = half_of_the_threads();
  const auto scope = where.scope(tensor.device());
  return f(tensor, memory);
}

void unpack_into(const Kept& kept, const py::object& out, bool positive, const Where& where) {
  const Tensor tensor = shared_tensor(out);
  const Memory scratch = where.memory();
  const py::gil_scoped_release release;
  const ThreadLimit threads = half_of_the_threads();
  const auto scope = where.scope(tensor.device());
  positive ? kept.unpack_positive_into(tensor, scratch) : kept.unpack_into(tensor);
}
Tensor unpack(const Kept& kept, bool positive) {
  const py::gil_scoped_release release;
  const ThreadLimit threads = half_of_the_threads();
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
  using namespace compress::foreign;
  using Stream = std::optional<uint64_t>;
  py::class_<Kept, std::shared_ptr<Kept>>(module, "Kept")
      .def_property_readonly("nbytes", &Kept::bytes)
      .def("unpack", [](const Kept& kept) { return unpack(kept, false); })
      .def("unpack_positive", [](const Kept& kept) { return unpack(kept, true); })
      .def(
          "unpack_into",
          [](const Kept& kept, const py::object& out, bool positive, Stream stream,
             const py::object& allocate) {
            unpack_into(kept, out, positive, {stream, allocate});
          },
          "out"_a, "positive"_a = false, "on_stream"_a = py::none(), "allocate"_a = py::none());
  module.def(
      "keep_groups",
      [](const py::object& values, int bits, int64_t columns, bool positive, uint64_t seed,
         uint64_t step, uint64_t seq, Stream stream, const py::object& allocate,
         const py::object& scratch) {
        const Where other{stream, scratch};
        const Memory passing = other.memory();
        return without_lock(values, {stream, allocate},
                            [&](const Tensor& tensor, const Memory& memory) {
                              return keep_groups(tensor, {bits, columns, positive, seed, step, seq},
                                                 memory, passing);
                            });
      },
      "values"_a, "bits"_a, "columns"_a = 0, "positive"_a = false, "seed"_a = 0, "step"_a = 0,
      "seq"_a = 0, "on_stream"_a = py::none(), "allocate"_a = py::none(), "scratch"_a = py::none());
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
        throw OptionError("preset",
                          fmt::format("expected one of {}, got {}", known, in_quotes(name)));
      },
      "name"_a);
  module.def("give_back_freed", [] {
#ifdef __GLIBC__
    const py::gil_scoped_release unlocked;
    malloc_trim(0);
#endif
  });
  module.def(
      "keep_two_values",
      [](const py::object& values, Stream stream, const py::object& allocate) {
        return without_lock(values, {stream, allocate}, keep_two_values);
      },
      "values"_a, "on_stream"_a = py::none(), "allocate"_a = py::none());
  module.def(
      "keep_positive",
      [](const py::object& values, Stream stream, const py::object& allocate) {
        return without_lock(values, {stream, allocate}, keep_positive);
      },
      "values"_a, "on_stream"_a = py::none(), "allocate"_a = py::none());
  module.def(
      "keep_levels",
      [](const py::object& values, const std::vector<float>& levels, int width,
         const std::vector<float>& table, const std::string& dtype, uint64_t seed, uint64_t offset,
         Stream stream, const py::object& allocate) {
        const DType as = dtype_named(dtype);
        return without_lock(
            values, {stream, allocate}, [&](const Tensor& tensor, const Memory& memory) {
              return keep_levels(tensor, levels, width, table, as, {seed, offset}, memory);
            });
      },
      "values"_a, "levels"_a, "width"_a, "table"_a, "dtype"_a = "f32", "seed"_a = 0, "offset"_a = 0,
      "on_stream"_a = py::none(), "allocate"_a = py::none());
  module.def(
      "keep_windows",
      [](const py::object& indices, std::pair<int64_t, int64_t> plane,
         std::pair<int64_t, int64_t> out, std::pair<int64_t, int64_t> kernel,
         std::pair<int64_t, int64_t> stride, std::pair<int64_t, int64_t> padding,
         std::pair<int64_t, int64_t> dilation, Stream stream, const py::object& allocate) {
        const Windows windows = {plane.first,
                                 plane.second,
                                 out.first,
                                 out.second,
                                 {kernel.first, kernel.second},
                                 {stride.first, stride.second},
                                 {padding.first, padding.second},
                                 {dilation.first, dilation.second}};
        return without_lock(indices, {stream, allocate},
                            [&](const Tensor& tensor, const Memory& memory) {
                              return keep_windows(tensor, windows, memory);
                            });
      },
      "indices"_a, "plane"_a, "out"_a, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a,
      "on_stream"_a = py::none(), "allocate"_a = py::none());
}

}  // namespace frugal::python
