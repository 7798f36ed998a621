// What a training loop of Python is made of: variables, the networks of the zoo, losses,
// optimizers, policies, and ops whose functions are Python's.
#include <pybind11/stl.h>

#include <mutex>
#include <optional>
#include <set>
#include <type_traits>
#include <variant>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/operators.h"
#include "autograd/record.h"
#include "autograd/saved_tensor.h"
#include "compress/policies/choice.h"
#include "core/memory.h"
#include "models/registry.h"
#include "optim/optimizers.h"
#include "optim/registry.h"
#include "python/module/bindings.h"

namespace frugal::python {
namespace {

using by_name::Value;

// A dict, list, text or number of Python as the value of an option.
Value value_of(const py::handle& object) {
  if (object.is_none()) return {};
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (py::isinstance<py::int_>(object)) {
    int overflows = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflows);
    if (overflows != 0)
      throw py::value_error("[options] expected whole numbers of 64 bits, got " +
                            py::str(object).cast<std::string>());
    return number;
  }
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::isinstance<py::dict>(object)) {
    Value::Object named;
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object))
      named.emplace_back(py::str(key).cast<std::string>(), value_of(value));
    return named;
  }
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    Value::List list;
    for (const py::handle entry : object) list.push_back(value_of(entry));
    return list;
  }
  throw py::type_error(
      fmt::format("[options] expected a number, a text, a list or a dict, got {}",
                  py::str(py::type::handle_of(object).attr("__name__")).cast<std::string>()));
}
by_name::Options options_of(const py::dict& given) {
  by_name::Options all;
  for (const auto& [key, value] : given) all[py::str(key).cast<std::string>()] = value_of(value);
  return all;
}

// ---- variables

Variable variable_of(const py::object& object) {
  if (py::isinstance<Variable>(object)) return py::cast<Variable>(object);
  return Variable(shared_tensor(object));
}

template <class F>
auto without_lock(const F& f) {
  const py::gil_scoped_release release;
  return f();
}

// A number of Python or of another library, or an array without axes.
bool is_number(const py::object& object) {
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) return true;
  if (!py::hasattr(object, "__float__")) return false;
  return !py::hasattr(object, "shape") || py::len(object.attr("shape")) == 0;
}

// An operator with variables, numbers and arrays on either side. Arrays and numbers are constants.
template <class F>
void add_operator(py::class_<Variable>& variables, const std::string& name, const F& f) {
  const auto of = [f](const Variable& x, const py::object& other, bool reflected) -> py::object {
    const auto both = [&](const auto& y) {
      return py::cast(without_lock([&] { return reflected ? f(y, x) : f(x, y); }));
    };
    if (py::isinstance<Variable>(other)) return both(py::cast<Variable>(other));
    if constexpr (std::is_invocable_v<F, Variable, double>)
      if (is_number(other)) return both(py::cast<double>(other));
    if (!py::isinstance<Tensor>(other) && !py::hasattr(other, "__array__") &&
        !py::hasattr(other, "__dlpack__"))
      return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    return both(
        Variable(py::cast<Tensor>(py::module_::import("frugal._tensor").attr("tensor")(other))));
  };
  variables.def(("__" + name + "__").c_str(),
                [of](const Variable& x, const py::object& other) { return of(x, other, false); });
  variables.def(("__r" + name + "__").c_str(),
                [of](const Variable& x, const py::object& other) { return of(x, other, true); });
}

using Axes = std::variant<int, std::vector<int>>;

std::vector<int> list_of(const Axes& axes) {
  if (const int* one = std::get_if<int>(&axes)) return {*one};
  return std::get<std::vector<int>>(axes);
}

void add_variables(py::module_& module) {
  using namespace py::literals;
  const auto one = [](Variable (*f)(const Variable&)) {
    return [f](const Variable& x) { return without_lock([&] { return f(x); }); };
  };
  py::class_<Variable> variables(
      module, "Variable",
      "A tensor that may take part in a graph. A copy is another handle of the same value.\n\n"
      "+, -, *, / and @ take variables, numbers and arrays, which are constants.");
  variables
      .def(py::init([](const py::object& array, bool requires_grad) {
             return Variable(shared_tensor(array), requires_grad);
           }),
           "array"_a, "requires_grad"_a = false)
      .def_property_readonly("value", &Variable::value, "Its numbers, a tensor.")
      .def_property_readonly("requires_grad", &Variable::requires_grad,
                             "Does backward() give it, or what it comes from, a gradient?")
      .def_property_readonly(
          "shape",
          [](const Variable& x) {
            return py::tuple(py::cast(std::vector<int64_t>(x.shape().begin(), x.shape().end())));
          },
          "How long each axis is.")
      .def_property_readonly(
          "grad",
          [](const Variable& x) -> py::object {
            if (!x.has_grad()) return py::none();
            return py::cast(x.grad());
          },
          "The sum of its gradients since zero_grad(), a tensor; None where there is none.")
      .def("zero_grad", &Variable::zero_grad, "Forgets the gradient.")
      .def(
          "item",
          [](const Variable& x) {
            if (x.value().numel() != 1)
              throw Error("[item] expected one number, got " + describe(x.value()));
            return x.value().item();
          },
          "Its only number.")
      .def("detach", &Variable::detach, "A variable of the same value that is a constant.")
      .def(
          "backward", [](const Variable& x) { without_lock([&] { backward(x); }); },
          "Adds the gradients of this number to all variables that it comes from.")
      .def("__repr__",
           [](const Variable& x) { return "<frugal.Variable " + describe(x.value()) + ">"; })
      .def("__neg__", one(&neg))
      .def("__pos__", [](const Variable& x) { return x; });
  variables.attr("__array_ufunc__") = py::none();  // NumPy leaves `array + variable` to __radd__
  add_operator(variables, "add", [](const auto& a, const auto& b) { return a + b; });
  add_operator(variables, "sub", [](const auto& a, const auto& b) { return a - b; });
  add_operator(variables, "mul", [](const auto& a, const auto& b) { return a * b; });
  add_operator(variables, "truediv", [](const auto& a, const auto& b) { return a / b; });
  add_operator(variables, "matmul",
               [](const Variable& a, const Variable& b) { return matmul(a, b); });
  module.def("relu", one(&relu), "x"_a, "max(x, 0) of each element.");
  module.def("tanh", one(&tanh), "x"_a, "The hyperbolic tangent of each element.");
  module.def("sigmoid", one(&sigmoid), "x"_a, "1 / (1 + exp(-x)) of each element.");
  module.def("silu", one(&silu), "x"_a, "x sigmoid(x) of each element.");
  module.def("exp", one(&exp), "x"_a, "e to the power of each element.");
  module.def("log", one(&log), "x"_a, "The natural logarithm of each element.");
  module.def(
      "gelu", [](const Variable& x) { return without_lock([&] { return gelu(x); }); }, "x"_a,
      "x times the share of a normal distribution below x, of each element.");
  module.def(
      "softmax", [](const Variable& x) { return without_lock([&] { return softmax(x); }); }, "x"_a,
      "exp(x) divided by its sum over the last axis.");
  module.def(
      "reshape",
      [](const Variable& x, const std::vector<int64_t>& shape) {
        Shape to;
        for (const int64_t extent : shape) to.push_back(extent);
        return reshape(x, to);
      },
      "x"_a, "shape"_a, "The elements in their order as another shape; one extent may be -1.");
  module.def(
      "sum", [](const Variable& x, const Axes& axes) { return sum(x, list_of(axes)); }, "x"_a,
      "axes"_a = std::vector<int>{},
      "The sum over these axes, which are gone then; without any, over all axes.");
  module.def(
      "mean", [](const Variable& x, const Axes& axes) { return mean(x, list_of(axes)); }, "x"_a,
      "axes"_a = std::vector<int>{},
      "The mean over these axes, which are gone then; without any, over all axes.");
  module.def(
      "cross_entropy",
      [](const Variable& logits, const py::object& target, double label_smoothing) {
        const Tensor classes = shared_tensor(target);
        CrossEntropyOptions options;
        options.label_smoothing = label_smoothing;
        return without_lock([&] { return cross_entropy(logits, classes, options); });
      },
      "logits"_a, "target"_a, "label_smoothing"_a = 0.0);
  module.def(
      "binary_cross_entropy",
      [](const Variable& logits, const py::object& target) {
        const Tensor answers = shared_tensor(target);
        return without_lock([&] { return binary_cross_entropy(logits, answers); });
      },
      "logits"_a, "target"_a);
  module.def(
      "mse_loss",
      [](const Variable& x, const py::object& target) {
        const Variable wanted = variable_of(target);
        return without_lock([&] { return mse_loss(x, wanted); });
      },
      "x"_a, "target"_a);
}

// ---- ops of Python

// Nodes keep names as pointers.
const char* lasting(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

// An object of Python that any thread may let go of.
std::shared_ptr<py::object> held(const py::object& object) {
  return {new py::object(object), [](py::object* mine) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire lock;
            delete mine;
          }};
}

enum class Keeps : uint8_t { nothing, inputs, output };

Variable run_op(const std::string& name, const py::object& forward, const py::object& backward,
                const std::vector<Variable>& inputs, Keeps keeps, bool linear) {
  py::tuple arrays(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) arrays[i] = py::cast(inputs[i].value());
  const Tensor output = shared_tensor(forward(*arrays));
  std::vector<Save> saves;
  if (keeps == Keeps::output) {
    saves.push_back(linear ? save_output(output) : save_exact(output));
  } else if (keeps == Keeps::inputs) {
    for (const Variable& input : inputs)
      saves.push_back(linear ? save(input) : save_exact(input.value()));
  }
  const size_t slots = saves.size();
  std::vector<DType> dtypes;
  for (const Variable& input : inputs) dtypes.push_back(input.value().dtype());
  return record(
      lasting(name), inputs, output, saves,
      [call = held(backward), slots, shapes = inputs.size(), name, dtypes](const Backward& b) {
        const py::gil_scoped_acquire lock;
        py::tuple arguments(slots + 1);
        arguments[0] = py::cast(b.dy());
        for (size_t i = 0; i < slots; ++i)
          arguments[i + 1] = py::cast(b.saved(static_cast<int>(i)));
        const py::object found = (*call)(*arguments);
        Grads grads;
        const bool several = py::isinstance<py::tuple>(found);
        if ((several ? py::len(found) : 1) != shapes)
          throw Error(fmt::format("[op] expected {} gradients of its inputs, got {}", shapes,
                                  several ? py::len(found) : 1));
        for (size_t i = 0; i < shapes; ++i) {
          const py::object each =
              several ? py::object(py::reinterpret_borrow<py::tuple>(found)[i]) : found;
          if (each.is_none() || !b.needs(static_cast<int>(i))) {
            grads.push_back(Tensor());
            continue;
          }
          const Tensor gradient = shared_tensor(each);
          if (gradient.dtype() != dtypes[i])
            throw Error(fmt::format(
                "[op] {}: expected a gradient of {} for input {}, as the input has, got "
                "{}; array.astype() gives the other dtype",
                name, name_of(dtypes[i]), i, describe(gradient)));
          grads.push_back(gradient);
        }
        return grads;
      });
}

// ---- networks, optimizers, policies

struct Net {
  std::shared_ptr<Module> module;
  Rng rng;
  std::vector<std::string> extras;  // what a batch may have beside its input
};

// What the networks of a kind read of Context::extras.
std::vector<std::string> extras_of(const std::string& name, const models::Options& options) {
  using models::Family;
  const bool is_list = name == "sequential";
  switch (models::family_of(name, options)) {
    case Family::encoder:
      if (is_list || models::network(name).traits.lacks_token_types) return {"attention_mask"};
      return {"attention_mask", "token_type_ids"};
    case Family::decoder:
      if (is_list) return {"attention_mask"};
      return {"attention_mask", "position_ids"};
    case Family::graph:
      return {"edge_index", "edge_weight", "edge_norm", "x_row_ptr", "x_col", "x_value"};
    case Family::images:
    case Family::segmentation:
    case Family::detection:
      break;
  }
  return {};
}

// Packed tensors point to what their policy is made of. A graph may live longer than Python's
// policy, so policies wait here until nothing is packed any more. A loop may make a policy for each
// step and end it while the step's tensors are still packed. Therefore a new policy also frees
// those that need to wait no longer.
class Policies {
 public:
  static void end(std::unique_ptr<SavePolicy> policy) {
    const std::lock_guard lock(mutex_);
    free_unused();
    ended_.push_back(std::move(policy));
  }
  static void begin() {
    const std::lock_guard lock(mutex_);
    free_unused();
  }

 private:
  static void free_unused() {
    if (allocator(kCpu).report().of(Category::packed) == 0) ended_.clear();
  }
  static inline std::mutex mutex_;
  static inline std::vector<std::unique_ptr<SavePolicy>> ended_;
};

// The blocks of `with` that this thread has begun. Scopes end in the reverse order, but blocks of
// generators end in any order: a block that ends before one that began after it waits for that one.
// So the innermost block that is still open decides.
class Blocks {
 public:
  static void begin_policy(const void* owner, const std::shared_ptr<SavePolicy>& policy,
                           uint64_t step) {
    auto scope = std::make_unique<PolicyScope>(policy.get(), step);
    open().push_back({owner, false, policy, std::move(scope), nullptr});
  }
  static void begin_no_grad(const void* owner) {
    auto scope = std::make_unique<NoGrad>();
    open().push_back({owner, false, nullptr, nullptr, std::move(scope)});
  }
  static bool has(const void* owner) { return find(owner) != nullptr; }
  // Errors: this thread has not begun it, or it has ended.
  static void end(const void* owner, const char* what) {
    Block* block = find(owner);
    if (block == nullptr)
      throw Error(fmt::format(
          "[{}] expected the end of a block that this thread has begun and not ended", what));
    block->has_ended = true;
    while (!open().empty() && open().back().has_ended) open().pop_back();
  }
  // Python has dropped the owner.
  static void drop(const void* owner) {
    while (has(owner)) end(owner, "with");
  }

 private:
  struct Block {
    const void* owner;
    bool has_ended;
    std::shared_ptr<SavePolicy> policy;  // outlives its scope
    std::unique_ptr<PolicyScope> scope;
    std::unique_ptr<NoGrad> no_grad;
  };
  struct Stack : std::vector<Block> {
    ~Stack() {
      while (!empty()) pop_back();
    }
  };
  // It is made after the first scope, so what scopes write to ends later in a thread.
  static Stack& open() {
    thread_local Stack all;
    return all;
  }
  static Block* find(const void* owner) {  // the last one that is open
    for (auto block = open().rbegin(); block != open().rend(); ++block)
      if (block->owner == owner && !block->has_ended) return &*block;
    return nullptr;
  }
};

struct NoGradBlock {
  ~NoGradBlock() { Blocks::drop(this); }
};

struct Policy {
  explicit Policy(std::unique_ptr<SavePolicy> made)
      : policy(made.release(),
               [](SavePolicy* ended) { Policies::end(std::unique_ptr<SavePolicy>(ended)); }) {
    Policies::begin();
  }
  Policy(Policy&&) = default;
  Policy& operator=(Policy&&) = delete;
  ~Policy() { Blocks::drop(this); }
  std::shared_ptr<SavePolicy> policy;
  uint64_t step = 0;
};

compress::Choice choice_of(int bits, std::optional<int64_t> least) {
  compress::FixedPolicyOptions keep;
  if (least) keep.min_elements = *least;
  return compress::bits(bits, keep);
}

}  // namespace

void add_networks(py::module_& module) {
  using namespace py::literals;
  add_variables(module);
  module.def(
      "run_op",
      [](const std::string& name, const py::object& forward, const py::object& backward,
         const std::vector<Variable>& inputs, const std::string& keeps, bool linear) {
        return run_op(name, forward, backward, inputs,
                      keeps == "inputs"   ? Keeps::inputs
                      : keeps == "output" ? Keeps::output
                                          : Keeps::nothing,
                      linear);
      },
      "name"_a, "forward"_a, "backward"_a, "inputs"_a, "keeps"_a, "linear"_a);
  py::class_<Net>(module, "Network")
      .def(
          "forward",
          [](Net& net, const Variable& x, bool training, const py::dict& extras) {
            Context context;
            context.training = training;
            context.rng = &net.rng;
            for (const auto& [name, array] : extras)
              context.extras.emplace_back(py::str(name).cast<std::string>(),
                                          shared_tensor(py::reinterpret_borrow<py::object>(array)));
            return without_lock([&] { return net.module->forward(x, context); });
          },
          "x"_a, "training"_a, "extras"_a)
      .def_readonly("extras", &Net::extras)
      .def("parameters",
           [](Net& net) {
             py::dict all;
             for (const auto& each : net.module->parameters())
               all[py::str(each.name)] = *each.parameter;
             return all;
           })
      .def("buffers",
           [](Net& net) {
             py::dict all;
             for (const auto& each : net.module->buffers()) all[py::str(each.name)] = *each.buffer;
             return all;
           })
      .def("zero_grad", [](Net& net) { net.module->zero_grad(); });
  module.def("networks", [] {
    std::vector<std::string> names;
    for (const models::Network& each : models::networks()) names.push_back(each.name);
    return names;
  });
  module.def(
      "make_network",
      [](const std::string& name, const py::dict& given, uint64_t seed) {
        models::Init init{Rng(seed)};
        const models::Options options = options_of(given);
        return Net{models::make(name, options, init), Rng(seed + 1), extras_of(name, options)};
      },
      "name"_a, "options"_a, "seed"_a);
  py::class_<Optimizer, std::unique_ptr<Optimizer>>(
      module, "Optimizer", "Updates parameters by their gradients; optimizer() makes one.")
      .def(
          "step", [](Optimizer& self, double lr) { without_lock([&] { self.step(lr); }); }, "lr"_a,
          "Updates the parameters by their gradients, with the learning rate `lr`.")
      .def("zero_grad", &Optimizer::zero_grad, "Forgets the gradients of the parameters.")
      .def(
          "state",
          [](const Optimizer& self) {
            py::dict all;
            for (const auto& [name, tensor] : self.state()) all[py::str(name)] = tensor;
            return all;
          },
          "What it keeps from step to step, such as momenta, as tensors by name.");
  module.def("optimizers", [] {
    std::vector<std::string> names;
    for (const optim::Kind& each : optim::kinds()) names.push_back(each.name);
    return names;
  });
  module.def(
      "make_optimizer",
      [](const std::string& name, const py::dict& parameters, const py::dict& given,
         double weight_decay, bool no_decay_norms) {
        NamedVariables all;
        for (const auto& [key, variable] : parameters) {
          if (!py::isinstance<Variable>(variable))
            throw py::type_error(
                fmt::format("[optimizer] expected variables by name as parameters, got {} for {}",
                            Py_TYPE(variable.ptr())->tp_name, py::str(key).cast<std::string>()));
          all.emplace_back(py::str(key).cast<std::string>(), variable.cast<Variable>());
        }
        return optim::make(name, optim::decay_groups(all, weight_decay, !no_decay_norms),
                           options_of(given));
      },
      "name"_a, "parameters"_a, "options"_a, "weight_decay"_a, "no_decay_norms"_a);
  py::class_<Policy>(module, "Policy", "How activations are kept in a block; policy() makes one.")
      .def(py::init([](int bits, std::optional<int64_t> least, uint64_t seed) {
             return Policy(compress::make_policy(choice_of(bits, least), kCpu, seed));
           }),
           "bits"_a, "min_elements"_a, "seed"_a)
      .def(
          "__enter__",
          [](Policy& self) -> Policy& {
            if (Blocks::has(&self))
              throw Error("[policy] expected a policy that is not entered already");
            Blocks::begin_policy(&self, self.policy, ++self.step);
            return self;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](Policy& self, const py::args&) { Blocks::end(&self, "policy"); });
  py::class_<NoGradBlock>(module, "no_grad",
                          "A block in which nothing is kept for a backward pass: `with "
                          "frugal.no_grad(): y = network(x)`.")
      .def(py::init<>())
      .def("__enter__", [](NoGradBlock& self) { Blocks::begin_no_grad(&self); })
      .def("__exit__", [](NoGradBlock& self, const py::args&) { Blocks::end(&self, "no_grad"); });
  module.def("memory_bytes", [] {
    const MemoryReport report = allocator(kCpu).report();
    py::dict bytes;
    for (const Category category :
         {Category::parameter, Category::gradient, Category::optimizer, Category::activation,
          Category::packed, Category::workspace, Category::input})
      bytes[py::str(std::string(name_of(category)))] = report.of(category);
    return bytes;
  });
}

}  // namespace frugal::python
