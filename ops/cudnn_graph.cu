#include "ops/cudnn_graph.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/cuda.h"
#include "core/log.h"
#include "ops/autotune.h"
#include "ops/precision.h"

namespace frugal::ops::cudnn {
namespace {

constexpr int64_t kMostConfigs = 64;  // of one heuristic
constexpr int64_t kMostKnobs = 64;    // of one engine; the library knows fewer
constexpr size_t kTimedPlans = 6;     // the heuristics' order is good: the best is among the first
constexpr int kTimedRuns = 3;

struct Plan {
  Descriptor descriptor;
  int64_t workspace;
  std::string tag;  // of its engine and the engine's settings
};

// What a device needs. Never destroyed: by then the driver may have gone.
struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  int device = 0;
  std::string name;  // of device and library, for measured choices
  std::unordered_map<std::string, std::optional<Plan>> plans;
};

Library& library() {
  static auto* all = new std::map<int, Library>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&device));
  Library& one = (*all)[device];
  if (one.handle != nullptr) return one;
  check(cudnnCreate(&one.handle), "cudnnCreate");
  check(cudnnSetStream(one.handle, cuda::stream()), "cudnnSetStream");
  cudaDeviceProp properties{};
  FRUGAL_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  one.device = device;
  one.name = fmt::format("{}, cuDNN {}", properties.name, cudnnGetVersion());
  return one;
}

Descriptor engine_of(const Descriptor& config) {
  return std::move(
      config.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine", 1)
          .at(0));
}

// f32 stays f32: no engine that rounds inputs to half, or adds in less than f32. Large Winograd
// tiles lose bits too; exact is what adds products of the inputs themselves.
bool is_allowed(const Descriptor& config, bool exact) {
  const auto notes = engine_of(config).values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        return exact;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return deterministic();
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
      default:
        return false;
    }
  });
}

// "engine 12, 2=3, 5=1": the same for the same kernel in every run of one version.
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

// What the heuristics propose, best first.
std::vector<Descriptor> configs(const Descriptor& graph, bool exact) {
  std::vector<Descriptor> all;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
    for (Descriptor& config :
         heuristic.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                               "engine configuration", kMostConfigs))
      if (is_allowed(config, exact)) all.push_back(std::move(config));
  }
  return all;
}

// Nothing where the engine turns out not to take the graph.
std::optional<Plan> plan_of(const Library& one, const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, one.handle)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  const auto workspace = plan.value<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return Plan{std::move(plan), workspace, tag_of(config)};
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
  check(cudnnBackendExecute(one.handle, plan.descriptor.get(), pack.get()), plan.tag);
}

float milliseconds(const Library& one, const Plan& plan, const std::vector<Binding>& bindings) {
  execute(one, plan, bindings);
  auto best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedRuns; ++i) {
    cuda::Event begin(true), end(true);
    begin.record(cuda::stream());
    execute(one, plan, bindings);
    end.record(cuda::stream());
    end.wait();
    best = std::min(best, end.milliseconds_since(begin));
  }
  return static_cast<float>(best);
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  FRUGAL_CUDA_CHECK(cudaStreamIsCapturing(cuda::stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

// The first plan within the limit, else that of the least workspace. Where choices are measured,
// the fastest of the first few.
std::optional<Plan> search(const Library& one, const std::string& key, bool exact, Graph built,
                           const std::vector<Binding>& bindings) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, one.handle)
      .set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, built.operations());
  if (graph.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  const std::string problem = one.name + ", " + key;
  const bool measures = autotune::enabled();
  const std::optional<std::string> known = measures ? autotune::find(problem) : std::nullopt;
  std::vector<Descriptor> candidates = configs(graph, exact);
  if (known) {
    const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Descriptor& c) { return tag_of(c) == *known; });
    if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
  }
  const size_t wanted = measures && !known && !capturing() ? kTimedPlans : 1;
  std::vector<Plan> plans;
  std::optional<Plan> smallest;
  for (const Descriptor& config : candidates) {
    std::optional<Plan> plan = plan_of(one, config);
    if (!plan) continue;
    if (plan->workspace <= convolution_workspace())
      plans.push_back(std::move(*plan));
    else if (!smallest || plan->workspace < smallest->workspace)
      smallest = std::move(plan);
    if (plans.size() == wanted) break;
  }
  if (plans.empty()) return smallest;
  if (wanted == 1) return std::move(plans.front());
  const Plan* best = nullptr;
  float least = 0;
  for (const Plan& plan : plans) {
    const float time = milliseconds(one, plan, bindings);
    if (best == nullptr || time < least) best = &plan, least = time;
  }
  autotune::remember(problem, best->tag);
  return std::move(*const_cast<Plan*>(best));
}

}  // namespace

void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[1024] = {};
  cudnnGetLastErrorString(words, sizeof(words));
  throw Error(fmt::format("[cudnn] {}: {} ({})", what, cudnnGetErrorString(status), words));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char* name) : name_(name) {
  cudnnBackendDescriptor_t made = nullptr;
  check(cudnnBackendCreateDescriptor(type, &made), name_);
  handle_.reset(made);
}

std::string Descriptor::where(cudnnBackendAttributeName_t attribute) const {
  return fmt::format("{}, attribute {}", name_, static_cast<int>(attribute));
}

Descriptor& Descriptor::put(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  check(cudnnBackendSetAttribute(get(), attribute, type, count, values), where(attribute));
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
  check(try_finalize(), name_);
  return *this;
}

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t attribute,
                                                cudnnBackendDescriptorType_t type, const char* name,
                                                int64_t most) const {
  // The library fills descriptors that the caller made.
  std::vector<Descriptor> out;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < most; ++i) handles.push_back(out.emplace_back(type, name).get());
  int64_t count = 0;
  check(cudnnBackendGetAttribute(get(), attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                 handles.data()),
        where(attribute));
  out.erase(out.begin() + static_cast<ptrdiff_t>(std::min(count, most)), out.end());
  return out;
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
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

bool run(const std::string& key, bool exact, const std::function<Graph()>& build,
         const std::vector<Binding>& bindings) {
  Library& one = library();
  const std::lock_guard lock(one.mutex);
  auto kept = one.plans.find(key);
  if (kept == one.plans.end())
    kept = one.plans.emplace(key, search(one, key, exact, build(), bindings)).first;
  if (!kept->second) return false;
  execute(one, *kept->second, bindings);
  return true;
}

}  // namespace frugal::ops::cudnn
