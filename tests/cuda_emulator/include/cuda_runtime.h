// CUDA's runtime on the CPU, as far as Frugal uses it: kernels compiled as C++ run thread by
// thread, so that every CUDA file is tested where there is no GPU. Blocks run one after another,
// the threads of a block as fibers that change at barriers and warp exchanges.
//
// What it finds: wrong results, barriers that not all threads reach, and by the environment:
// FRUGAL_EMULATOR=guard (the default): the host touching device memory faults; =fence: a kernel
// touching what lies beyond its tensor faults, and fresh memory reads as NaN;
// FRUGAL_EMULATOR_SEED=n: threads run in another order, so that a missing barrier shows. Freeing
// memory while work is captured ends the process. What it cannot find: races between blocks, and
// anything that depends on time.
//
// There are two devices, or as many as FRUGAL_EMULATOR_DEVICES says, which share one memory.
// Streams do their work at once. What NCCL's stand-in queues runs in a thread of the stream, so it
// ends later than the call that queued it, as on a GPU. FRUGAL_EMULATOR_STREAMS=late, or
// set_late(): so does all work, and what is queued on a stream beside the compute stream begins
// some milliseconds late. Then work that lacks an event between two streams, or a host that does
// not wait, meets wrong bytes. Not thread-safe: one host thread uses it at
// a time. Other threads may ask events.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define FRUGAL_CUDA_EMULATOR
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct EmulatedStream;
using cudaStream_t = EmulatedStream*;

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulator {

// Kernels, copies and the libraries' stand-ins may touch device memory while one lives.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
};
void* dynamic_shared();
bool fenced();
void block_barrier();
void warp_barrier(unsigned mask);
// The 16 bytes at which lane `lane` of this thread's warp hands its value to the others; the two
// turns alternate, so one barrier between writing and reading is enough.
void* exchange_slot(int lane);
void next_turn();
bool takes_part(int lane);  // lane `lane` of this thread's warp is there, and has not ended
int lane();

// Runs `work` now, or on the stream's thread if streams are late, or when the graph that is being
// captured is launched. Null is a stream of its own.
void submit(cudaStream_t stream, std::function<void()> work);
void set_late(bool on);
// Hold up the compute stream, if streams are late: for so long, or until the function that is
// returned is called.
void stall(int milliseconds);
std::function<void()> hold();
// Queues `work` on a stream, whose thread runs it. What is queued on the stream later, and streams
// that wait for events recorded there, come after it.
void enqueue(cudaStream_t stream, std::function<void()> work);
void run_grid(dim3 grid, dim3 block, size_t shared, const std::function<void()>& kernel);

template <class T>
T exchange(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  std::memcpy(exchange_slot(lane()), &value, sizeof(T));
  warp_barrier(mask);
  T other;
  std::memcpy(&other, exchange_slot(from), sizeof(T));
  next_turn();
  return other;
}

}  // namespace emulator

// ---- device intrinsics
inline void __syncthreads() { emulator::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::warp_barrier(mask); }
inline void __threadfence() {}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int base = emulator::lane() / width * width;
  return emulator::exchange(mask, value, base + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  (void)width;
  return emulator::exchange(mask, value, emulator::lane() ^ bits);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
  const int here = emulator::lane(), from = here % width + by < width ? here + by : here;
  return emulator::exchange(mask, value, from);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
  const int here = emulator::lane(), from = here % width >= by ? here - by : here;
  return emulator::exchange(mask, value, from);
}
unsigned __ballot_sync(unsigned mask, int predicate);
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fadd_rz(float a, float b) {  // REQUIRES: the sum is exact in a double
  const double sum = double{a} + double{b};
  const auto near = static_cast<float>(sum);
  return std::abs(double{near}) > std::abs(sum) ? std::nextafter(near, 0.0f) : near;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<unsigned>(bytes >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
  return out;
}
inline float __saturatef(float a) { return a < 0 ? 0 : a > 1 ? 1 : a; }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
T atomicAdd(T* p, T value) {
  const T before = *p;
  *p = before + value;
  return before;
}
template <class T>
T atomicMax(T* p, T value) {
  const T before = *p;
  if (value > before) *p = value;
  return before;
}
template <class T>
T atomicMin(T* p, T value) {
  const T before = *p;
  if (value < before) *p = value;
  return before;
}
template <class T>
T atomicOr(T* p, T value) {
  const T before = *p;
  *p = before | value;
  return before;
}
template <class T>
T atomicCAS(T* p, T expected, T value) {
  const T before = *p;
  if (before == expected) *p = value;
  return before;
}
template <class T>
T atomicExch(T* p, T value) {
  const T before = *p;
  *p = value;
  return before;
}

// ---- the runtime
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
};
struct EmulatedEvent;
struct EmulatedGraph;
using cudaEvent_t = EmulatedEvent*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrL2CacheSize = 38
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0,
                          cudaEventDisableTiming = 2, cudaHostAllocDefault = 0;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

const char* cudaGetErrorString(cudaError_t status);
const char* cudaGetErrorName(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
struct cudaFuncAttributes {
  size_t sharedSizeBytes = 0;  // bytes of __shared__ variables
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

namespace emulator {
// What a chip says of a launch: too many threads or blocks, or more shared memory than it has or
// than was asked for.
cudaError_t may_launch(const void* kernel, dim3 grid, dim3 block, size_t shared);
// A stream takes work while its device is current.
cudaError_t takes_work(cudaStream_t stream);
// How often the host has waited for work so far.
int64_t waits();
}  // namespace emulator

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (const cudaError_t status = emulator::takes_work(config->stream); status != cudaSuccess)
    return status;
  if (const cudaError_t status =
          emulator::may_launch(reinterpret_cast<const void*>(kernel), config->gridDim,
                               config->blockDim, config->dynamicSmemBytes);
      status != cudaSuccess)
    return status;
  emulator::submit(config->stream, [grid = config->gridDim, block = config->blockDim,
                                    shared = config->dynamicSmemBytes, kernel,
                                    ... values = static_cast<Parameters>(arguments)] {
    emulator::run_grid(grid, block, shared, [&] { kernel(values...); });
  });
  return cudaGetLastError();
}
