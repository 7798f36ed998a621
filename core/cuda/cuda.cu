#include "core/cuda/cuda.h"

#include <mutex>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_late_kernel.h"
#include "core/log.h"

namespace frugal::cuda {
namespace {

struct DeviceState {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
};

// Never destroyed: tensors of static storage duration may outlive every other static.
DeviceState& state_of(int index) {
  static auto* states = new std::vector<DeviceState>(static_cast<size_t>(device_count()));
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  DeviceState& state = states->at(static_cast<size_t>(index));
  if (state.stream == nullptr) {
    FRUGAL_CUDA_CHECK(cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking));
    FRUGAL_CUDA_CHECK(
        cudaDeviceGetAttribute(&state.multiprocessors, cudaDevAttrMultiProcessorCount, index));
  }
  return state;
}

// The stream of the living StreamScope of this thread. device -1: there is none.
struct Elsewhere {
  int device = -1;
  cudaStream_t stream = nullptr;
};
thread_local Elsewhere elsewhere;

std::string words_of(cudaError_t status, const char* call) {
  return fmt::format("[cuda] {}: {} ({}){}", call, cudaGetErrorString(status),
                     cudaGetErrorName(status), advice(status));
}

}  // namespace

const char* advice(int status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "; other processes may hold the GPU's memory (nvidia-smi), and a smaller batch or "
             "more "
             "compression takes less";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return "; the fault stays with this process, which must end; to find the kernel, run it "
             "under "
             "compute-sanitizer";
    default:
      return "";
  }
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it again
  throw Error(words_of(status, call));
}

void report(cudaError_t status, const char* call) noexcept {
  if (status == cudaSuccess) return;
  cudaGetLastError();
#ifndef FRUGAL_CUDA_EMULATOR
  if (status == cudaErrorCudartUnloading) return;
#endif
  try {
    log().error(words_of(status, call));
  } catch (...) {  // there is nobody to tell
  }
}

namespace {

// How many devices there are, and what CUDA says where it cannot tell.
struct Devices {
  int count = 0;
  cudaError_t status = cudaSuccess;
};
Devices devices() {
  Devices found;
  found.status = cudaGetDeviceCount(&found.count);
  if (found.status == cudaSuccess) return found;
  cudaGetLastError();
  found.count = 0;
  return found;
}

}  // namespace

int device_count() { return devices().count; }

std::string why_no_device() {
  const Devices found = devices();
  if (found.count > 0) return "";
  if (found.status == cudaSuccess || found.status == cudaErrorNoDevice)
    return "this machine has no CUDA device";
  return fmt::format("CUDA finds no device: {} ({})", cudaGetErrorString(found.status),
                     cudaGetErrorName(found.status));
}

std::string device_name(int index) {
  if (index < 0 || index >= device_count()) return "";
#ifdef FRUGAL_CUDA_EMULATOR
  return "an emulator";
#else
  cudaDeviceProp properties{};
  FRUGAL_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties.name;
#endif
}

void ask_for_shared(const void* kernel, size_t shared) {
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  cudaFuncAttributes own{};
  FRUGAL_CUDA_CHECK(cudaFuncGetAttributes(&own, kernel));
  const size_t all = own.sharedSizeBytes + shared;
  if (all <= kWithoutAsking) return;
  int most = 0;
  FRUGAL_CUDA_CHECK(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()));
  FRUGAL_CHECK(all <= static_cast<size_t>(most),
               "[cuda] expected a kernel of at most {} bytes of shared memory in a block, which is "
               "what the device has, got one of {}; please report it",
               most, all);
  FRUGAL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared)));
}

void use(Device device) {
  FRUGAL_ASSERT(device.type == DeviceType::cuda);
  const int count = device_count();
  FRUGAL_CHECK(count > 0, "[cuda] expected a GPU, but {}", why_no_device());
  FRUGAL_CHECK(device.index < count, "[cuda] expected a device of cuda:0 to cuda:{}, got {}",
               count - 1, device.str());
  FRUGAL_CUDA_CHECK(cudaSetDevice(device.index));
}

void make_current(int index) {
  if (current_device() != index) use({DeviceType::cuda, index});
}

cudaStream_t stream() {
  FRUGAL_CHECK(
      !renewing(),
      "[cuda] expected kernels that take what changes by with_late() (captured update), got "
      "other work");
  const int device = current_device();
  return device == elsewhere.device ? elsewhere.stream : state_of(device).stream;
}

StreamScope::StreamScope(int device, void* stream) : before_(current_device()) {
  FRUGAL_ASSERT(elsewhere.device == -1);
  make_current(device);
  elsewhere = {device, static_cast<cudaStream_t>(stream)};
}
StreamScope::~StreamScope() {
  elsewhere = {};
  FRUGAL_CUDA_REPORT(cudaSetDevice(before_));
}

int multiprocessors() { return state_of(current_device()).multiprocessors; }
void synchronize() { FRUGAL_CUDA_CHECK(cudaStreamSynchronize(stream())); }

Event::Event(bool timed) {
  FRUGAL_CUDA_CHECK(
      cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
Event::~Event() {
  if (event_ != nullptr) FRUGAL_CUDA_REPORT(cudaEventDestroy(event_));
}
void Event::record(cudaStream_t on) { FRUGAL_CUDA_CHECK(cudaEventRecord(event_, on)); }
void Event::hold(cudaStream_t waiting) const {
  FRUGAL_CUDA_CHECK(cudaStreamWaitEvent(waiting, event_, 0));
}
void Event::wait() const { FRUGAL_CUDA_CHECK(cudaEventSynchronize(event_)); }
bool Event::passed() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  FRUGAL_CUDA_CHECK(status);
  return true;
}
double Event::milliseconds_since(const Event& begin) const {
  float milliseconds = 0;
  FRUGAL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
  return milliseconds;
}

Stream::Stream() { FRUGAL_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
Stream::~Stream() { FRUGAL_CUDA_REPORT(cudaStreamDestroy(stream_)); }

}  // namespace frugal::cuda
