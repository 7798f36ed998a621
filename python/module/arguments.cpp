// Arguments of a wrong kind: pybind11 prints all signatures and all arguments. Here it says which
// argument it is, what was expected and what came; frugal/_arguments.py finds the words.
#include "python/module/bindings.h"

namespace frugal::python {
namespace {

PyCFunctionWithKeywords of_pybind = nullptr;  // what runs every function of the module

// Puts a clear message in the place of a TypeError of pybind11. Any other error stays.
void explain(PyObject* args, PyObject* kwargs) {
  py::error_already_set error;
  try {
    const py::object named =
        kwargs == nullptr ? py::dict() : py::reinterpret_borrow<py::object>(kwargs);
    const py::object text = py::module_::import("frugal._arguments")
                                .attr("explained")(py::str(error.value()), py::handle(args), named);
    if (!text.is_none()) return PyErr_SetObject(PyExc_TypeError, text.ptr());
  } catch (py::error_already_set&) {  // then the first one says more
  }
  error.restore();
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* const result = of_pybind(self, args, kwargs);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) explain(args, kwargs);
  return result;
}

void explain_function(py::handle function) {
  if (PyInstanceMethod_Check(function.ptr()))
    function = PyInstanceMethod_GET_FUNCTION(function.ptr());
  if (!PyCFunction_Check(function.ptr())) return;
  PyMethodDef* const definition = reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml;
  const auto own =
      reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(definition->ml_meth));
  if (own == call) return;
  if (of_pybind == nullptr) of_pybind = own;
  if (own == of_pybind)
    definition->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
}

}  // namespace

void explain_arguments(py::module_& module) {
  for (const auto& [name, one] : py::cast<py::dict>(module.attr("__dict__"))) {
    if (!PyType_Check(one.ptr())) {
      explain_function(one);
      continue;
    }
    for (const py::handle key : py::list(one.attr("__dict__")))
      explain_function(one.attr("__dict__")[key]);
  }
}

}  // namespace frugal::python
