// Exceptions of the library become those of the package, which frugal/_errors.py declares.
#include "apps/cli/signals.h"
#include "apps/config/keys/config_error.h"
#include "core/memory.h"
#include "python/module/bindings.h"
#include "train/trainer.h"

namespace frugal::python {
namespace {

py::object error_class(const char* name) {
  return py::module_::import("frugal._errors").attr(name);
}

void raise(const char* name, const char* text) { PyErr_SetString(error_class(name).ptr(), text); }

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OptionError& e) {
    const py::object type = error_class("ConfigError");
    const py::object value = type(e.what());
    value.attr("path") = e.path();
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const OutOfMemory& e) {
    raise("OutOfMemory", e.what());
  } catch (const train::NotFinite& e) {
    raise("NotFinite", e.what());
  } catch (const apps::Interrupted& e) {
    const py::object type = error_class("Interrupted");
    const py::object value = type(e.what());
    value.attr("signal") = e.number();
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const InternalError& e) {
    raise("InternalError", e.what());
  } catch (const Error& e) {
    raise("Error", e.what());
  }
}

}  // namespace

void add_errors(py::module_&) { py::register_exception_translator(translate); }

}  // namespace frugal::python
