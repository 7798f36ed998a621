#include "ops/cuda/cudnn_graph.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_graph.h"
#include "core/log.h"
#include "core/memo.h"
#include "ops/autotune.h"
#include "ops/cuda/cudnn.h"
#include "ops/precision.h"

namespace frugal::ops::cudnn {
namespace {

constexpr int64_t kMostConfigs = 64;  // how many configurations one heuristic may give
constexpr int64_t kMostKnobs = 64;    // how many knobs one engine may have; the library knows fewer
constexpr size_t kTimedPlans = 6;     // the heuristics' order is good, so the best plan is among
                                      // the first
constexpr int kTimedRuns = 3;
constexpr size_t kMostPlans = 4096;

struct Plan {
  Descriptor descriptor;
  int64_t workspace;
  std::string tag;  // names the engine and its settings
};

Device here() {
  int index = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&index));
  return {DeviceType::cuda, index};
}

bool lacks_memory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

// Calls f(). If it found too little memory, calls it once more after the allocator gave back the
// memory that it keeps for later.
template <class F>
void call(const std::string& what, const F& f) {
  cudnnStatus_t status = f();
  if (lacks_memory(status)) {
    allocator(here()).trim();
    status = f();
  }
  check(status, what);
}

// What one device needs. Never destroyed: at the end of the process the driver may be gone already.
struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  int device = 0;
  std::string name;  // names the device and cuDNN's version; measured choices belong to it
  Memo<std::string, std::shared_ptr<Plan>> plans{kMostPlans};  // null: no engine
  // Plans whose kernels captured CUDA graphs run, so that these plans must stay.
  std::set<std::shared_ptr<Plan>> captured;
};

Library& library() {
  static auto* all = new std::map<int, Library>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&device));
  Library& one = (*all)[device];
  if (one.handle != nullptr) return one;
  call("cudnnCreate", [&] { return api().cudnnCreate(&one.handle); });
  check(api().cudnnSetStream(one.handle, cuda::stream()), "cudnnSetStream");
  cudaDeviceProp properties{};
  FRUGAL_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  one.device = device;
  one.name = fmt::format("{}, cuDNN {}", properties.name, api().cudnnGetVersion());
  return one;
}

Descriptor engine_of(const Descriptor& config) {
  return std::move(
      config.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine", 1)
          .at(0));
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& config) {
  return engine_of(config).values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}

bool has_tensor_cores(const Descriptor& config) {
  const auto notes = notes_of(config);
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
}

// Whether an engine keeps f32 as f32: it does not round inputs to half, and does not add in less
// than f32. With `exact` it also does not round inputs to tf32. Engines that use Winograd or FFT
// are not allowed: their sums lose bits of small numbers, and slices of a batch would differ from
// the whole. In our layout such engines are rare, and slower than tensor cores.
bool is_allowed(const Descriptor& config, bool exact) {
  const auto notes = notes_of(config);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return exact;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return deterministic();
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
      default:
        return false;
    }
  });
}

// A text such as "engine 12, 2=3, 5=1". It names the same kernel in every run of one version of the
// library.
std::string tag_of(const Descriptor& config) {
  std::string tag =
      fmt::format("engine {}", engine_of(config).value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  std::map<int, int64_t> knobs;
  for (const Descriptor& choice :
       config.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                          "knob choice", kMostKnobs))
    knobs[choice.value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
        choice.value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  for (const auto& [knob, value] : knobs) tag += fmt::format(", {}={}", knob, value);
  return tag;
}

// Tries one way after another. A way that the library does not support is skipped. A way that fails
// is skipped, too, if another one succeeds.
class Tries {
 public:
  template <class F>
  void operator()(const F& f) {
    try {
      f();
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Unsupported& e) {
      reason_ = e.what();
    } catch (const Error&) {
      if (!failure_) failure_ = std::current_exception();
    }
  }
  // Why no way succeeded.  Errors: the first failure.
  const std::string& reason() const {
    if (failure_) std::rethrow_exception(failure_);
    return reason_;
  }

 private:
  std::string reason_ = "no engine configuration is left";
  std::exception_ptr failure_;
};

// The configurations that the heuristics of these modes propose, the best first. gpu: another one
// than that of the graph's handle.
using Modes = std::initializer_list<cudnnBackendHeurMode_t>;
constexpr Modes kBothModes = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
std::vector<Descriptor> configs(const Descriptor& graph, bool exact, Tries& tries,
                                const Modes& modes = kBothModes, const Descriptor* gpu = nullptr) {
  std::vector<Descriptor> all;
  for (const cudnnBackendHeurMode_t mode : modes)
    tries([&] {
      Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
          .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
#if CUDNN_VERSION >= 90800
      if (gpu != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *gpu);
#endif
      heuristic.finalize();
      for (Descriptor& config :
           heuristic.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                 "engine configuration", kMostConfigs))
        if (is_allowed(config, exact)) all.push_back(std::move(config));
    });
  return all;
}

// Errors: Unsupported, if the engine does not take the graph after all.
Plan plan_of(const Library& one, const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, one.handle)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
      .finalize();
  const auto workspace = plan.value<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return {std::move(plan), workspace, tag_of(config)};
}

void execute(const Library& one, const Plan& plan, const std::vector<Binding>& bindings) {
  CategoryScope scope(Category::workspace);
  const Tensor workspace =
      Tensor::empty({plan.workspace}, DType::u8, {DeviceType::cuda, one.device});
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.id);
    data.push_back(const_cast<void*>(binding.data));
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
      .set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace.raw()})
      .finalize();
  call(plan.tag,
       [&] { return api().cudnnBackendExecute(one.handle, plan.descriptor.get(), pack.get()); });
}

// The least of several times, or a single one that is far above `least`.
double milliseconds(const Library& one, const Plan& plan, const std::vector<Binding>& bindings,
                    double least) {
  execute(one, plan, bindings);
  auto best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedRuns && (i == 0 || best < 1.5 * least); ++i) {
    cuda::Event begin(true), end(true);
    begin.record(cuda::stream());
    execute(one, plan, bindings);
    end.record(cuda::stream());
    end.wait();
    best = std::min(best, end.milliseconds_since(begin));
  }
  return best;
}

// The fastest plan whose workspace fits into memory; null if none does.
Plan* fastest(const Library& one, std::vector<Plan>& plans, const std::vector<Binding>& bindings) {
  Plan* best = nullptr;
  auto least = std::numeric_limits<double>::infinity();
  for (Plan& plan : plans) {
    try {
      const double time = milliseconds(one, plan, bindings, least);
      if (time < least) best = &plan, least = time;
    } catch (const OutOfMemory&) {  // also not for one step
    }
  }
  return best;
}

// The first plan whose workspace is within the wish; if there is none, the plan with the smallest
// workspace. Where choices are measured, the fastest of the first few. Null if no
// engine takes the graph.
std::shared_ptr<Plan> search(const Library& one, const std::string& key, const Wish& wish,
                             const std::function<Graph()>& build,
                             const std::vector<Binding>& bindings) {
  const std::string problem = fmt::format("{}, {} within {}", one.name, key, wish.workspace);
  const bool measures = autotune::enabled();
  const std::optional<std::string> known = measures ? autotune::find(problem) : std::nullopt;
  const size_t wanted = measures && !known && !cuda::capturing() ? kTimedPlans : 1;
  std::vector<Plan> plans;
  std::optional<Plan> smallest;
  Tries tries;
  tries([&] {
    const Graph built = build();
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, one.handle)
        .set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, built.operations())
        .finalize();
    for (const cudnnBackendHeurMode_t mode : kBothModes) {
      std::vector<Descriptor> candidates = configs(graph, wish.exact, tries, {mode});
      if (known) {
        const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                         [&](const Descriptor& c) { return tag_of(c) == *known; });
        if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
      }
      // Engines without tensor cores are not timed beside one that has them. With them, and with
      // the fallback list, measuring a ResNet-50 did not end within a minute.
      if (wanted > 1 && !candidates.empty() && has_tensor_cores(candidates.front()))
        std::erase_if(candidates, [](const Descriptor& c) { return !has_tensor_cores(c); });
      for (const Descriptor& config : candidates) {
        tries([&] {
          Plan plan = plan_of(one, config);
          if (plan.workspace <= wish.workspace)
            plans.push_back(std::move(plan));
          else if (!smallest || plan.workspace < smallest->workspace)
            smallest = std::move(plan);
        });
        if (plans.size() == wanted) break;
      }
      if (!plans.empty()) break;
    }
  });
  if (plans.empty() && smallest) return std::make_shared<Plan>(std::move(*smallest));
  if (plans.empty()) {
    log().info("[cudnn] no engine takes {}: {}", key, tries.reason());
    return nullptr;
  }
  if (wanted == 1) return std::make_shared<Plan>(std::move(plans.front()));
  Plan* best = fastest(one, plans, bindings);
  log().debug("[cudnn] {}: {} plans measured, the first proposal {}", key, plans.size(),
              best == plans.data() ? "is taken" : "is not the fastest");
  if (best != nullptr) autotune::remember(problem, best->tag);
  return std::make_shared<Plan>(std::move(best != nullptr ? *best : plans.front()));
}

}  // namespace

const Functions& api() {
  static const auto* one = new Functions;
  return *one;
}
void open_library() { api(); }

void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[1024] = {};
  api().cudnnGetLastErrorString(words, sizeof(words));
  const std::string text =
      fmt::format("[cudnn] {}: {} ({})", what, api().cudnnGetErrorString(status), words);
  constexpr int kFamily = 1000;  // statuses come in families of so many; the rest of the number
                                 // gives the reason
  if (status / kFamily == CUDNN_STATUS_NOT_SUPPORTED / kFamily) throw Unsupported(text);
  if (!lacks_memory(status)) throw Error(text);
  const MemoryReport memory = allocator(here()).report();
  throw OutOfMemory(fmt::format("out of memory: {}\n{}", text, memory.str()), memory);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char* name) : name_(name) {
  cudnnBackendDescriptor_t made = nullptr;
  check(api().cudnnBackendCreateDescriptor(type, &made), name_);
  handle_.reset(made);
}

std::string Descriptor::where(cudnnBackendAttributeName_t attribute) const {
  return fmt::format("{}, attribute {}", name_, static_cast<int>(attribute));
}

Descriptor& Descriptor::put(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  check(api().cudnnBackendSetAttribute(get(), attribute, type, count, values), where(attribute));
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t attribute, const Descriptor& value) {
  return set_descriptors(attribute, {value.get()});
}
Descriptor& Descriptor::set_descriptors(cudnnBackendAttributeName_t attribute,
                                        const std::vector<cudnnBackendDescriptor_t>& values) {
  return put(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(values.size()),
             values.data());
}
Descriptor& Descriptor::set_pointers(cudnnBackendAttributeName_t attribute,
                                     const std::vector<void*>& values) {
  return put(attribute, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()), values.data());
}

Descriptor& Descriptor::finalize() {
  call(name_, [&] { return api().cudnnBackendFinalize(get()); });
  return *this;
}

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t attribute,
                                                cudnnBackendDescriptorType_t type, const char* name,
                                                int64_t most) const {
  // The library writes into descriptors that the caller has made.
  std::vector<Descriptor> out;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < most; ++i) handles.push_back(out.emplace_back(type, name).get());
  int64_t count = 0;
  check(api().cudnnBackendGetAttribute(get(), attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                                       &count, handles.data()),
        where(attribute));
  out.erase(out.begin() + static_cast<ptrdiff_t>(std::min(count, most)), out.end());
  return out;
}

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDNN_DATA_BFLOAT16;
  FRUGAL_ASSERT(dtype == DType::f32);
  return CUDNN_DATA_FLOAT;
}

Descriptor& Graph::part(cudnnBackendDescriptorType_t type, const char* name) {
  return parts_.emplace_back(type, name);
}

const Descriptor& Graph::tensor(const Operand& x) {
  return part(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor")
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, x.id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, x.type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, x.alignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, x.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, x.strides)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, x.is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, x.is_by_value)
      .finalize();
}

void Graph::add(Descriptor& operation) { operations_.push_back(operation.finalize().get()); }

void Graph::pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                      const Descriptor& y) {
  Descriptor& how = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise")
                        .set(CUDNN_ATTR_POINTWISE_MODE, mode)
                        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
                        .finalize();
  Descriptor& operation = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation")
                              .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
                              .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                              .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  add(operation);
}

bool run(const std::string& key, const Wish& wish, const std::function<Graph()>& build,
         const std::vector<Binding>& bindings) {
  Library& one = library();
  const std::lock_guard lock(one.mutex);
  const std::string kept = fmt::format("{} within {}", key, wish.workspace);
  const std::shared_ptr<Plan>* known = one.plans.find(kept);
  std::shared_ptr<Plan> plan =
      known != nullptr ? *known : one.plans.put(kept, search(one, key, wish, build, bindings));
  if (plan == nullptr) return false;
  try {
    execute(one, *plan, bindings);
  } catch (const OutOfMemory&) {
    const std::shared_ptr<Plan> least = search(one, key, {wish.exact, 0}, build, bindings);
    if (least == nullptr || least->workspace >= plan->workspace) throw;
    plan = one.plans.put(kept, least);
    execute(one, *plan, bindings);
  }
  if (cuda::capturing()) one.captured.insert(plan);
  return true;
}

#if CUDNN_VERSION >= 90800
std::string engine_elsewhere(const Graph& graph, bool exact, const std::string& properties) {
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "properties of a GPU");
  check(api().cudnnBackendSetAttribute(gpu.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, static_cast<int64_t>(properties.size()),
                                       properties.data()),
        "properties of a GPU");
  gpu.finalize();
  std::string name;
  Tries tries;
  tries([&] {
    Descriptor whole(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    whole.set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.operations()).finalize();
    for (const Descriptor& config : configs(whole, exact, tries, kBothModes, &gpu)) {
      tries([&] {
        Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        const cudnnStatus_t status = api().cudnnBackendFinalize(plan.get());
        if (status != CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER) check(status, "plan");
        name = tag_of(config);
      });
      if (!name.empty()) return;
    }
  });
  if (name.empty()) throw Unsupported(tries.reason());
  return name;
}
#endif

}  // namespace frugal::ops::cudnn
