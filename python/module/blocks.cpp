// Blocks of Python (`with`) that an interrupt cannot leave half entered or half left. Handlers of
// signals run between bytecodes of Python and may raise there. What is done here is no bytecode.
#include <exception>

#include "python/module/bindings.h"

namespace frugal::python {
namespace {

// A function of C++ as a method: a class that has it for an attribute passes its objects.
template <class F>
py::object as_method(const F& f) {
  const py::cpp_function function(f);
  return py::reinterpret_steal<py::object>(PyInstanceMethod_New(function.ptr()));
}

// Calls end(self) until it comes to its end, and then raises the first exception. An interrupt may
// come at each of its bytecodes, and what it does a second time has no effect.
void call_to_its_end(const py::object& end, const py::object& self) {
  constexpr int kMost = 100;  // an error that is no interrupt may stay
  std::exception_ptr first;
  for (int i = 0; i < kMost; ++i) {
    try {
      end(self);
      break;
    } catch (const py::error_already_set&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace

void add_blocks(py::module_& module) {
  using namespace py::literals;
  // The methods __enter__ and __exit__ of a class. check(self) comes first. Then begin(self) gives
  // the result of the block. If begin(self) raises, end(self) is called. end(self) may be called at
  // any moment, and more than once.
  module.def(
      "block",
      [](const py::object& check, const py::object& begin, const py::object& end) {
        const auto enter = [check, begin, end](const py::object& self) {
          check(self);
          try {
            return py::object(begin(self));
          } catch (const py::error_already_set&) {
            const std::exception_ptr why = std::current_exception();
            try {
              call_to_its_end(end, self);
            } catch (const py::error_already_set&) {  // `why` came first
            }
            std::rethrow_exception(why);
          }
        };
        const auto exit = [end](const py::object& self, const py::args&) {
          call_to_its_end(end, self);
        };
        return py::make_tuple(as_method(enter), as_method(exit));
      },
      "check"_a, "begin"_a, "end"_a);
  // do_noted() calls a function of C++ and sets an attribute of `owner` to True. undo_noted() calls
  // one only if the attribute is set, and clears it. No interrupt comes between the two steps.
  module.def(
      "do_noted",
      [](const py::object& owner, const std::string& attribute, const py::object& function,
         const py::args& arguments) {
        function(*arguments);
        owner.attr(attribute.c_str()) = true;
      },
      "owner"_a, "attribute"_a, "function"_a);
  module.def(
      "undo_noted",
      [](const py::object& owner, const std::string& attribute, const py::object& function) {
        if (!py::cast<bool>(owner.attr(attribute.c_str()))) return;
        function();
        owner.attr(attribute.c_str()) = false;
      },
      "owner"_a, "attribute"_a, "function"_a);
}

}  // namespace frugal::python
