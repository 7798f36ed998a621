// The network of a run: what it says of arrays and files, and its weights.
#include <pybind11/stl.h>

#include <chrono>

#include "python/module/bindings.h"
#include "train/run/model.h"

namespace frugal::python {
namespace {

using train::Answer;
using train::Model;

py::object object_of(const Answer& answer) {
  if (!answer.error.empty()) throw Error(answer.error);
  if (!answer.values.empty()) return py::cast(answer.values);
  py::list guesses;
  for (const train::Guess& guess : answer.prediction)
    guesses.append(py::make_tuple(guess.index, guess.name, guess.probability));
  return guesses;
}

// Tells now and then whether Python has got a signal, such as Ctrl-C, that raises an exception.
class Signals {
 public:
  bool raised() {
    using std::chrono::steady_clock;
    if (steady_clock::now() < next_) return false;
    next_ = steady_clock::now() + std::chrono::milliseconds(10);
    const py::gil_scoped_acquire lock;
    return PyErr_CheckSignals() != 0;
  }

 private:
  std::chrono::steady_clock::time_point next_{};
};

// Answers come without the interpreter's lock, and become objects at the end.
template <class F>
py::list answers_of(const F& predict) {
  std::vector<Answer> answers;
  bool ended = false;
  {
    const py::gil_scoped_release release;
    Signals signals;
    predict([&](int64_t, const Answer& answer) {
      answers.push_back(answer);
      ended = signals.raised();
      return !ended;
    });
  }
  if (ended) throw py::error_already_set();
  py::list list;
  for (const Answer& answer : answers) list.append(object_of(answer));
  return list;
}

train::PredictOptions options_of(int64_t top, int64_t batch_size) {
  train::PredictOptions options;
  options.top = top;
  options.batch_size = batch_size;
  return options;
}

}  // namespace

void add_model(py::module_& module) {
  using namespace py::literals;
  py::class_<Model>(module, "Model")
      .def(
          "predict_arrays",
          [](const Model& model, const py::object& samples, int64_t top, int64_t batch_size) {
            const Tensor tensor = shared_tensor(samples);
            return answers_of([&](const auto& on_answer) {
              model.predict_arrays(tensor, options_of(top, batch_size), on_answer);
            });
          },
          "samples"_a, "top"_a, "batch_size"_a)
      .def(
          "predict_table",
          [](const Model& model, const std::string& file, int64_t top, int64_t batch_size) {
            return answers_of([&](const auto& on_answer) {
              model.predict_rows(model.rows_of(file), options_of(top, batch_size), on_answer);
            });
          },
          "file"_a, "top"_a, "batch_size"_a)
      .def_property_readonly(
          "reads_table", [](const Model& model) { return model.description().table != nullptr; })
      .def_property_readonly("class_count",
                             [](const Model& model) { return model.description().spec.classes; })
      .def_property_readonly("reads_text",
                             [](const Model& model) {
                               return model.description().spec.kind ==
                                      train::BatchSpec::Kind::sequences;
                             })
      .def(
          "predict_each",
          [](const Model& model, const std::vector<std::string>& inputs, int64_t top,
             int64_t batch_size) {
            return answers_of([&](const auto& on_answer) {
              model.predict_each(inputs, options_of(top, batch_size), on_answer);
            });
          },
          "inputs"_a, "top"_a, "batch_size"_a)
      .def_property_readonly("classes",
                             [](const Model& model) { return model.description().classes; })
      .def_property_readonly(
          "sample_shape",
          [](const Model& model) {
            const Shape& shape = model.description().spec.sample;
            return py::tuple(py::cast(std::vector<int64_t>(shape.begin(), shape.end())));
          })
      .def("weights", [](const Model& model) {
        py::dict weights;
        for (const auto& named : model.network().parameters())
          weights[py::str(named.name)] = named.parameter->value();
        return weights;
      });
  module.def(
      "load",
      [](const std::string& folder, const std::string& weights, const std::string& device) {
        const py::gil_scoped_release release;
        return train::load(folder, {weights, device});
      },
      "folder"_a, "weights"_a, "device"_a);
}

}  // namespace frugal::python
