#include "python/module/bindings.h"

PYBIND11_MODULE(_frugal, module) {
  using namespace frugal::python;
  module.doc() = "What the package frugal is made of. Programs use the package.";
  add_errors(module);
  add_blocks(module);
  add_tensors(module);
  add_packing(module);
  add_commands(module);
  add_model(module);
  add_networks(module);
  explain_arguments(module);
}
