// Tensors, and how they cross without a copy: the buffer protocol, and DLPack.
#include <algorithm>

#include "core/memory/borrowed.h"
#include "python/module/bindings.h"
#include "python/module/dlpack.h"

namespace frugal::python {
namespace {

struct NamedType {
  DType dtype;
  dlpack::Type dlpack;
  const char* format;  // as buffers name it; null: they have no name for it
};
constexpr NamedType kTypes[] = {
    {DType::f64, {dlpack::floating, 64, 1}, "d"},
    {DType::f32, {dlpack::floating, 32, 1}, "f"},
    {DType::bf16, {dlpack::bfloat, 16, 1}, nullptr},
    {DType::f16, {dlpack::floating, 16, 1}, "e"},
    {DType::i64, {dlpack::integer, 64, 1}, "q"},
    {DType::i32, {dlpack::integer, 32, 1}, "i"},
    {DType::u8, {dlpack::unsigned_integer, 8, 1}, "B"},
    {DType::bool_, {dlpack::boolean, 8, 1}, "?"},
};

const NamedType& type_of(DType dtype) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes),
                       [&](const NamedType& type) { return type.dtype == dtype; });
}

// Lets go of what Python owns, from any thread. After the interpreter's end nothing is left to
// free.
template <class F>
void with_interpreter(const F& f) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire lock;
  f();
}

// ---- DLPack

void end_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, dlpack::kFresh)) return;  // somebody took it
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, dlpack::kFresh));
  managed->deleter(managed);
}

struct Exported {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  dlpack::Managed managed{};
};

py::capsule to_capsule(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == kMeta)
    throw py::buffer_error("[dlpack] expected a tensor with memory, got one on meta");
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor;
  exported->shape.assign(tensor.shape().begin(), tensor.shape().end());
  exported->strides.assign(tensor.strides().begin(), tensor.strides().end());
  const bool on_cuda = tensor.device().type == DeviceType::cuda;
  dlpack::Managed& managed = exported->managed;
  managed.view = {tensor.raw(),
                  {on_cuda ? dlpack::cuda : dlpack::cpu, tensor.device().index},
                  tensor.dim(),
                  type_of(tensor.dtype()).dlpack,
                  exported->shape.data(),
                  exported->strides.data(),
                  0};
  managed.context = exported.get();
  managed.deleter = [](dlpack::Managed* self) { delete static_cast<Exported*>(self->context); };
  return py::capsule(&exported.release()->managed, dlpack::kFresh, end_capsule);
}

// Errors: what says why the capsule cannot be taken; then it is not.
Tensor from_capsule(const py::capsule& capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), dlpack::kFresh))
    throw py::buffer_error("[dlpack] expected a capsule that nobody took yet");
  auto* managed =
      static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kFresh));
  const dlpack::View& view = managed->view;
  Device device = kCpu;
  if (view.place.kind == dlpack::cuda)
    device = {DeviceType::cuda, view.place.index};
  else if (view.place.kind != dlpack::cpu)
    throw py::buffer_error(fmt::format(
        "[dlpack] expected memory of the CPU or of CUDA, got device kind {}", view.place.kind));
  if (device.type == DeviceType::cuda && !kHasCuda) throw py::buffer_error(kWithoutCuda);
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NamedType& known) {
    return known.dlpack.code == view.type.code && known.dlpack.bits == view.type.bits &&
           view.type.lanes == 1;
  });
  if (type == std::end(kTypes))
    throw py::buffer_error(
        fmt::format("[dlpack] expected f64, f32, bf16, f16, i64, i32, u8 or bool, got type code {} "
                    "of {} bits",
                    view.type.code, view.type.bits));
  if (view.axes > Shape::kMaxDim)
    throw py::buffer_error(
        fmt::format("[dlpack] expected at most {} axes, got {}", Shape::kMaxDim, view.axes));
  Shape shape, strides;
  for (int axis = 0; axis < view.axes; ++axis) shape.push_back(view.shape[axis]);
  strides = contiguous_strides(shape);
  if (view.strides != nullptr)
    for (int axis = 0; axis < view.axes; ++axis) {
      if (view.strides[axis] < 0)
        throw py::buffer_error("[dlpack] expected strides of at least 0, got a negative one");
      strides[axis] = view.strides[axis];
    }
  char* const data = static_cast<char*>(view.data) + view.byte_offset;
  PyCapsule_SetName(capsule.ptr(), dlpack::kTaken);
  const std::shared_ptr<void> owner(managed, [](dlpack::Managed* taken) {
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
  return borrow(view.data == nullptr ? nullptr : data, shape, strides, type->dtype, device, owner);
}

// ---- buffers

// The tensor of a buffer, or the reason why it cannot be shared.
Tensor from_buffer(const py::object& object) {
  auto* buffer = new Py_buffer();
  if (PyObject_GetBuffer(object.ptr(), buffer, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) !=
      0) {
    delete buffer;
    throw py::error_already_set();
  }
  const std::shared_ptr<void> owner(buffer, [](Py_buffer* held) {
    with_interpreter([&] { PyBuffer_Release(held); });
    delete held;
  });
  std::string format = buffer->format == nullptr ? "B" : buffer->format;
  if (format.size() == 2 && (format[0] == '@' || format[0] == '=' || format[0] == '<'))
    format.erase(0, 1);
  if (format == "l") format = "q";  // both have 8 bytes on the systems that the library serves
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NamedType& known) {
    return known.format != nullptr && format == known.format;
  });
  if (type == std::end(kTypes) || static_cast<size_t>(buffer->itemsize) != size_of(type->dtype))
    throw py::buffer_error(
        fmt::format("[tensor] expected elements of f64, f32, f16, i64, i32, u8 or bool, got those "
                    "of the format {}",
                    format));
  if (buffer->ndim > Shape::kMaxDim)
    throw py::buffer_error(
        fmt::format("[tensor] expected at most {} axes, got {}", Shape::kMaxDim, buffer->ndim));
  Shape shape, strides;
  for (int axis = 0; axis < buffer->ndim; ++axis) {
    shape.push_back(buffer->shape[axis]);
    if (buffer->strides[axis] % buffer->itemsize != 0 || buffer->strides[axis] < 0)
      throw py::buffer_error("[tensor] expected strides of whole elements, and none below 0");
    strides.push_back(buffer->strides[axis] / buffer->itemsize);
  }
  if (reinterpret_cast<uintptr_t>(buffer->buf) % static_cast<size_t>(buffer->itemsize) != 0)
    throw py::buffer_error("[tensor] expected elements at multiples of their size in memory");
  return borrow(buffer->buf, shape, strides, type->dtype, kCpu, owner);
}

struct Lent {  // what a buffer of ours points to
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
};

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  try {
    const Tensor& tensor = py::cast<const Tensor&>(py::handle(object));
    if (!tensor.defined() || tensor.device() != kCpu)
      throw Error("[tensor] expected a tensor on the cpu; numbers of other devices have no buffer");
    const NamedType& type = type_of(tensor.dtype());
    if (type.format == nullptr)
      throw Error("[tensor] expected a dtype that buffers have, got bf16; DLPack has it");
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !tensor.is_contiguous())
      throw Error("[tensor] expected a contiguous tensor for a buffer without strides");
    auto lent = std::make_unique<Lent>();
    lent->tensor = tensor;
    const auto size = static_cast<Py_ssize_t>(size_of(tensor.dtype()));
    for (int axis = 0; axis < tensor.dim(); ++axis) {
      lent->shape.push_back(tensor.shape()[axis]);
      lent->strides.push_back(tensor.strides()[axis] * size);
    }
    static char nothing[8] = {};  // the address of a tensor without elements
    view->buf = tensor.raw() == nullptr ? nothing : tensor.raw();
    view->len = tensor.nbytes();
    view->itemsize = size;
    view->readonly = 0;
    view->ndim = tensor.dim();
    view->format =
        (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? const_cast<char*>(type.format) : nullptr;
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? lent->shape.data() : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? lent->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = lent.release();
    view->obj = object;
    Py_INCREF(object);
    return 0;
  } catch (const std::exception& e) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Lent*>(view->internal); }

py::tuple tuple_of(const Shape& shape) {
  py::tuple result(static_cast<size_t>(shape.dim()));
  for (int axis = 0; axis < shape.dim(); ++axis) result[static_cast<size_t>(axis)] = shape[axis];
  return result;
}

}  // namespace

Tensor shared_tensor(const py::object& object) {
  if (py::isinstance<Tensor>(object)) return py::cast<Tensor>(object);
  if (PyCapsule_CheckExact(object.ptr())) return from_capsule(object);
  if (PyObject_CheckBuffer(object.ptr())) return from_buffer(object);
  // PyTorch's DLPack leaves out the negative bit, with which the imaginary part of a conjugate is
  // negated when it is read.
  if (py::hasattr(object, "is_neg") && py::cast<bool>(object.attr("is_neg")()))
    throw py::buffer_error(
        "[tensor] expected numbers as the memory has them, got a tensor of PyTorch with the "
        "negative bit; resolve_neg() makes a copy without it");
  if (py::hasattr(object, "__dlpack__")) return from_capsule(object.attr("__dlpack__")());
  throw py::type_error(fmt::format("[tensor] expected an array with a buffer or __dlpack__, got {}",
                                   Py_TYPE(object.ptr())->tp_name));
}

void add_tensors(py::module_& module) {
  const auto buffers = py::custom_type_setup([](PyHeapTypeObject* type) {
    type->as_buffer.bf_getbuffer = get_buffer;
    type->as_buffer.bf_releasebuffer = release_buffer;
    type->ht_type.tp_as_buffer = &type->as_buffer;
  });
  py::class_<Tensor>(module, "Tensor", buffers,
                     "Numbers of one dtype on one device.\n\n"
                     "Arrays of other libraries share its memory: `numpy.asarray(tensor)`, "
                     "`torch.from_dlpack(tensor)`,\n"
                     "`memoryview(tensor)`. `frugal.tensor()` and `frugal.from_dlpack()` make "
                     "tensors of arrays.")
      .def_property_readonly(
          "shape", [](const Tensor& t) { return tuple_of(t.shape()); }, "How long each axis is.")
      .def_property_readonly(
          "strides", [](const Tensor& t) { return tuple_of(t.strides()); },
          "How many elements lie between two that follow each other on an axis.")
      .def_property_readonly(
          "dtype", [](const Tensor& t) { return std::string(name_of(t.dtype())); },
          "The kind of its numbers: f64, f32, bf16, f16, i64, i32, u8 or bool.")
      .def_property_readonly(
          "device", [](const Tensor& t) { return t.device().str(); },
          "Where its memory is: cpu, or cuda:0.")
      .def_property_readonly("ndim", &Tensor::dim, "How many axes it has.")
      .def_property_readonly("size", &Tensor::numel, "How many elements it has.")
      .def_property_readonly("nbytes", &Tensor::nbytes, "The bytes that its elements take.")
      .def("__len__",
           [](const Tensor& t) {
             if (t.dim() == 0) throw py::type_error("a tensor without axes has no length");
             return t.shape()[0];
           })
      .def("__repr__", [](const Tensor& t) { return "<frugal.Tensor " + describe(t) + ">"; })
      .def("__dlpack__", [](const Tensor& t, const py::kwargs&) { return to_capsule(t); })
      .def("__dlpack_device__", [](const Tensor& t) {
        const bool on_cuda = t.device().type == DeviceType::cuda;
        return py::make_tuple(static_cast<int>(on_cuda ? dlpack::cuda : dlpack::cpu),
                              t.device().index);
      });
  module.def("shared_tensor", &shared_tensor);
}

}  // namespace frugal::python
