// What the files of the Python module share. The package `frugal` is written in Python around it.
#pragma once
#include <pybind11/pybind11.h>

#include "core/tensor.h"

namespace frugal::python {

namespace py = pybind11;

void add_blocks(py::module_& module);
void add_errors(py::module_& module);
void add_tensors(py::module_& module);
void add_packing(py::module_& module);
void add_commands(py::module_& module);
void add_model(py::module_& module);
void add_networks(py::module_& module);

// Makes the errors of all functions and classes that the module has say which argument is wrong.
void explain_arguments(py::module_& module);

// A tensor over the memory of a Tensor of ours, of a DLPack capsule, of an object with __dlpack__,
// or of a buffer that may be written. Nothing is copied.
// Errors: BufferError for memory that cannot be shared, saying why.
Tensor shared_tensor(const py::object& object);

}  // namespace frugal::python
