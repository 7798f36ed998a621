#include "apps/config/set_up_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "apps/config/keys/config_error.h"
#include "apps/config/keys/value_named.h"
#include "core/cuda/cuda_memory.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "distributed/communicator.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/cudnn.h"

namespace frugal::apps {

std::vector<by_name::Option<RunConfig>> RunConfig::list() {
  namespace range = by_name::range;
  using S = RunConfig;
  const by_name::ReadWhen<S> cuda_alone{
      "device cuda", {"device"}, [](const S& s) { return s.on_cuda(); }};
  const by_name::ReadWhen<S> cuda{"device cuda, and meta in its place", {"device"}, [](const S& s) {
                                    return s.on_cuda() || s.device == "meta";
                                  }};
  return {{{"precision", range::choice("f32, tf32, bf16, bf16_in_f32"),
            "tf32: CUDA's matrix products and convolutions round f32 operands to 10 bits; bf16: "
            "activations are bf16, parameters f32; bf16_in_f32: as bf16, for a CPU that does not "
            "multiply bf16: it computes in f32."},
           &S::precision},
          {by_name::without_effect({"cuda_graphs", range::flag(),
                                    "Capture a step of each shape once and rerun it (CUDA)."}),
           &S::cuda_graphs, cuda_alone},
          {{"deterministic", range::flag(),
            "Convolutions and attention on CUDA give equal bits in every run; false: cuDNN may add "
            "in any order, which can be faster."},
           &S::deterministic,
           cuda},
          {{"workspace_limit", range::bytes(),
            "The most bytes of workspace of a convolution, product or attention on CUDA, where "
            "there "
            "is a way that takes less (\"512 MiB\"); a budget of the peak allows a sixteenth of it "
            "at most."},
           &S::workspace_limit,
           cuda},
          {by_name::without_effect(
               {"threads", range::integer(0, 4096), "Threads to compute with; 0: one per core."}),
           &S::threads},
          {by_name::without_effect(
               {"memory_limit", range::bytes(),
                "Fail beyond so many bytes of tensors (\"2 GiB\"); 0: no limit. On CUDA "
                "the parts of a language model's logits follow it."}),
           &S::memory_limit}};
}

namespace {

// Ranks of one machine take its GPUs in turn, unless the configuration names one.
Device device_of(const RunConfig& config) {
  Device device = Device::parse(config.device);
  if constexpr (kHasCuda)
    if (config.device == "cuda")
      device.index = distributed::launch().rank_on_host % std::max(cuda::device_count(), 1);
  return device;
}

// Errors: no such GPU, or no library that ops on it need.
[[maybe_unused]] void set_up_cuda(Device device) {  // in CUDA builds
  const int count = cuda::device_count();
  if (count == 0) throw ConfigError("device", "expected cpu, since " + cuda::why_no_device());
  if (device.index >= count)
    throw ConfigError(
        "device", fmt::format("expected cuda:0 to cuda:{}, got {}; CUDA_VISIBLE_DEVICES names the "
                              "GPUs that a process sees, which it counts from 0",
                              count - 1, device.str()));
  try {
    ops::cublas::open_library();
    ops::cudnn::open_library();
  } catch (const Error& e) {
    throw ConfigError("device",
                      fmt::format("expected cpu, since a library is missing: {}", e.what()));
  }
  cuda::make_current(device.index);
}

// Ranks that mpirun bound to cores of their own, or that OMP_NUM_THREADS limits, have fewer.
bool has_all_cores() {
  return std::getenv("OMP_NUM_THREADS") == nullptr &&
         num_threads() == static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

void check_precision(const RunConfig& config, Device device) {
  if (device == kCpu && config.precision == "tf32")
    throw ConfigError("precision", "expected f32, bf16 or bf16_in_f32 on the cpu, got tf32");
  if (device == kCpu && config.precision == "bf16" && !ops::processor_multiplies_bf16())
    throw ConfigError("precision",
                      "expected f32 or bf16_in_f32, since oneDNN does not multiply bf16 here "
                      "(x86-64 with AVX-512 BF16 does, where nothing limits the instructions that "
                      "oneDNN takes); bf16_in_f32 has the same tensors and computes in f32, got "
                      "bf16");
  if (device.type == DeviceType::cuda && config.precision == "bf16_in_f32")
    throw ConfigError("precision", "expected f32, tf32 or bf16 on cuda, got bf16_in_f32");
}

}  // namespace

void set_up_threads(const RunConfig& config) {
  if (config.threads > 0)
    set_num_threads(static_cast<int>(config.threads));
  else if (const int ranks = distributed::launch().on_host; ranks > 1 && has_all_cores())
    set_num_threads(std::max(num_threads() / ranks, 1));
}

void set_up_products(const RunConfig& config) {
  using ops::MatmulPrecision;
  ops::set_matmul_precision(
      value_named<MatmulPrecision>(config.precision, {{"f32", MatmulPrecision::f32},
                                                      {"tf32", MatmulPrecision::tf32},
                                                      {"bf16", MatmulPrecision::tf32},
                                                      {"bf16_in_f32", MatmulPrecision::f32}}));
  ops::set_bf16_products(config.precision != "bf16_in_f32");
}

Device set_up_computing_device(const RunConfig& config, const char* doing) {
  const Device device = set_up_device(config);
  if (device.type == DeviceType::meta)
    throw ConfigError("device",
                      fmt::format("expected cpu{}: nothing can be {} on meta. `frugal bench step "
                                  "CONFIG --set device=meta` counts the memory of a step, `frugal "
                                  "plan CONFIG` plans for a memory_budget",
                                  kHasCuda ? " or cuda" : "", doing));
  return device;
}

int64_t gpu_memory(const RunConfig& config) {
  if (!config.on_cuda()) return 0;
  if (config.memory_limit > 0) return config.memory_limit;
  if constexpr (kHasCuda) return cuda::total_memory(device_of(config).index);
  return 0;
}

std::string gpu_name(const RunConfig& config) {
  if (!config.on_cuda()) return "";
  if constexpr (kHasCuda) return cuda::device_name(device_of(config).index);
  return "";
}

Device set_up_device(const RunConfig& config) {
  const Device device = device_of(config);
  if (device.type == DeviceType::cuda && !kHasCuda)
    throw ConfigError("device", "this frugal was built without CUDA; expected cpu");
  if constexpr (kHasCuda)
    if (device.type == DeviceType::cuda) set_up_cuda(device);
  check_precision(config, device);
  if (device.type != DeviceType::cuda && config.cuda_graphs)
    throw ConfigError("cuda_graphs", "expected false without CUDA");
  set_up_products(config);
  ops::set_deterministic(config.deterministic);
  ops::set_convolution_workspace(config.workspace_limit);
  set_up_threads(config);
  allocator(device).set_limit(config.memory_limit);
  return device;
}

SettingsScope::SettingsScope()
    : threads_(num_threads()),
      log_(log().level()),
      products_(ops::matmul_precision()),
      bf16_products_(ops::bf16_products()),
      deterministic_(ops::deterministic()),
      workspace_(ops::convolution_workspace()),
      memory_(allocator(kCpu).report().limit) {}

SettingsScope::~SettingsScope() {
  set_num_threads(threads_);
  log().set_level(static_cast<spdlog::level::level_enum>(log_));
  ops::set_matmul_precision(products_);
  ops::set_bf16_products(bf16_products_);
  ops::set_deterministic(deterministic_);
  ops::set_convolution_workspace(workspace_);
  allocator(kCpu).set_limit(memory_);
}

}  // namespace frugal::apps
