// The emulated runtime: memory, streams (which do everything at once, but for what enqueue()
// queues), events, captured graphs.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

using Clock = std::chrono::steady_clock;

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
// A moment of a stream. It has passed when the stream came to it and those before it have passed.
struct Moment {
  std::atomic<bool> reached = false;
  Clock::time_point at;
  std::vector<std::shared_ptr<Moment>> before = {};

  bool passed() const {
    if (!reached.load(std::memory_order_acquire)) return false;
    for (const auto& other : before)
      if (!other->passed()) return false;
    return true;
  }
  Clock::time_point end() const {
    Clock::time_point last = at;
    for (const auto& other : before) last = std::max(last, other->end());
    return last;
  }
  void reach() {
    at = Clock::now();
    reached.store(true, std::memory_order_release);
  }
  void wait() const {
    while (!passed()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
};
using MomentPtr = std::shared_ptr<Moment>;

// Runs what is queued in a thread of its own.
class WorkQueue {
 public:
  WorkQueue() : thread_([this] { serve(); }) {}
  ~WorkQueue() {
    push({});
    thread_.join();
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void serve() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !work_.empty(); });
        work = std::move(work_.front());
        work_.pop_front();
      }
      if (work == nullptr) return;
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

struct EmulatedStream {
  std::unique_ptr<EmulatedGraph> captured;
  bool relaxed = false;
  int device = 0;
  std::unique_ptr<WorkQueue> queue = {};  // the queue of a stream that got work by enqueue()
};
struct EmulatedEvent {
  MomentPtr moment;
};

namespace emulator {
namespace {

constexpr size_t kArena = size_t{1} << 40;  // addresses, not memory
constexpr size_t kPage = 4096, kHugePage = 2 << 20;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

struct Memory {
  char* base = nullptr;
  size_t top = 0;
  size_t used = 0;
  std::map<void*, size_t> blocks;            // blocks in use
  std::multimap<size_t, void*> free_blocks;  // guard mode: by size
  int accesses = 0;
  std::mutex mutex;  // guards `accesses` and `top`
};
Memory memory;
EmulatedStream* capturing = nullptr;
// What all work that comes next has to wait for: streams with work of their own.
std::vector<MomentPtr> held;
std::vector<EmulatedStream*> queues;  // streams that have one

int devices() {
  static const char* text = std::getenv("FRUGAL_EMULATOR_DEVICES");
  static const int count = text == nullptr ? 2 : std::atoi(text);
  return count;
}
thread_local int current_device = 0;
constexpr int kMostDevices = 64;
EmulatedStream* compute[kMostDevices] = {};  // the first stream of each device
EmulatedStream* unnamed[kMostDevices] = {};  // what a null stream stands for
constexpr auto kLate = std::chrono::milliseconds(3);
bool is_late() {
  const char* mode = std::getenv("FRUGAL_EMULATOR_STREAMS");
  return mode != nullptr && std::string_view(mode) == "late";
}
bool late = is_late();
int64_t host_waits = 0;
cudaError_t last_error = cudaSuccess;

size_t limit() {
  static const char* text = std::getenv("FRUGAL_EMULATOR_MEMORY");  // MiB
  static const size_t bytes = (text == nullptr ? size_t{4096} : std::strtoull(text, nullptr, 10))
                              << 20;
  return bytes;
}

void protect(int how) {
  const size_t bytes = round_up(memory.top, kHugePage);  // a part of a huge page would break it up
  if (bytes > 0 && mprotect(memory.base, bytes, how) != 0) std::abort();
}

void* allocate_guarded(size_t bytes) {
  const std::lock_guard lock(memory.mutex);
  bytes = round_up(bytes, kPage);
  if (memory.base == nullptr) {
    void* range = mmap(nullptr, kArena + kHugePage, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) std::abort();
    const auto address = reinterpret_cast<uintptr_t>(range);
    memory.base = static_cast<char*>(range) + (round_up(address, kHugePage) - address);
    // Each kernel changes the access to all of this memory. With large pages there are few to
    // change.
    madvise(memory.base, kArena, MADV_HUGEPAGE);
  }
  if (const auto found = memory.free_blocks.find(bytes); found != memory.free_blocks.end()) {
    void* data = found->second;
    memory.free_blocks.erase(found);
    return data;
  }
  if (memory.top + bytes > kArena) return nullptr;
  void* data = memory.base + memory.top;
  memory.top += bytes;
  if (memory.accesses > 0) protect(PROT_READ | PROT_WRITE);
  return data;
}

// The block ends where a page that must not be touched begins.
void* allocate_fenced(size_t bytes) {
  const size_t pages = round_up(bytes, kPage);
  auto* data = static_cast<char*>(
      mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (data == MAP_FAILED) return nullptr;
  mprotect(data + pages, kPage, PROT_NONE);
  std::memset(data, 0xff, pages);
  return data + pages - bytes;
}

EmulatedStream* named(cudaStream_t stream) {
  if (stream != nullptr) return stream;
  EmulatedStream*& own = unnamed[current_device];
  if (own == nullptr) {
    own = new EmulatedStream;
    own->device = current_device;
  }
  return own;
}

WorkQueue& queue_of(EmulatedStream* stream) {
  if (stream->queue == nullptr) {
    stream->queue = std::make_unique<WorkQueue>();
    queues.push_back(stream);
    for (const MomentPtr& moment : held) stream->queue->push([moment] { moment->wait(); });
  }
  return *stream->queue;
}

// Waits for what the streams were told to wait for.
void settle() {
  for (const MomentPtr& moment : std::exchange(held, {})) moment->wait();
}

// The moment at which what was queued on the stream until now is done.
MomentPtr now_on(EmulatedStream* stream) {
  auto moment = std::make_shared<Moment>();
  if (stream->queue != nullptr) {
    stream->queue->push([moment] { moment->reach(); });
  } else {
    std::erase_if(held, [](const MomentPtr& one) { return one->passed(); });
    moment->before = held;
    moment->reach();
  }
  return moment;
}

// Waits for all streams, as cudaFree does.
void drain() {
  settle();
  for (EmulatedStream* stream : queues) now_on(stream)->wait();
}

}  // namespace

bool fenced() {
  static const char* mode = std::getenv("FRUGAL_EMULATOR");
  return mode != nullptr && std::string_view(mode) == "fence";
}

DeviceAccess::DeviceAccess() {
  const std::lock_guard lock(memory.mutex);
  if (memory.accesses++ == 0) protect(PROT_READ | PROT_WRITE);
}
DeviceAccess::~DeviceAccess() {
  const std::lock_guard lock(memory.mutex);
  if (--memory.accesses == 0) protect(PROT_NONE);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  queue_of(named(stream)).push(std::move(work));
}

void submit(cudaStream_t stream, std::function<void()> work) {
  if (capturing == nullptr && late) {
    WorkQueue& queue = queue_of(named(stream));
    if (named(stream) != compute[named(stream)->device])
      queue.push([] { std::this_thread::sleep_for(kLate); });
    return queue.push(std::move(work));
  }
  settle();
  if (capturing != nullptr)
    capturing->captured->work.push_back(std::move(work));
  else
    work();
}

void set_late(bool on) {
  if (late == on) return;
  late = on;
  if (on) return;
  drain();
  for (EmulatedStream* stream : queues) stream->queue.reset();
  queues.clear();
}

void stall(int milliseconds) {
  if (!late) return;
  submit(compute[current_device],
         [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

std::function<void()> hold() {
  const auto end = std::make_shared<Moment>();
  if (late) submit(compute[current_device], [end] { end->wait(); });
  return [end] { end->reach(); };
}

}  // namespace emulator

using emulator::memory;

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "invalid argument";
  }
}
const char* cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
cudaError_t cudaGetLastError() { return std::exchange(emulator::last_error, cudaSuccess); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulator::devices();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulator::devices()) return cudaErrorInvalidDevice;
  emulator::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulator::current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 99 << 10;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 2;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ++emulator::host_waits;
  emulator::drain();
  return cudaSuccess;
}

namespace emulator {
namespace {
// The emulator does not know how many bytes of __shared__ variables a kernel has. Each counts as if
// it had some, so that a launch close to a limit is noticed.
constexpr size_t kOwnShared = 1 << 10;
constexpr size_t kSharedWithoutAsking = 48 << 10, kMostShared = 99 << 10;
std::map<const void*, size_t> asked_for;
}  // namespace

cudaError_t takes_work(cudaStream_t stream) {
  return stream == nullptr || stream->device == current_device ? cudaSuccess
                                                               : cudaErrorInvalidResourceHandle;
}
int64_t waits() { return host_waits; }

cudaError_t may_launch(const void* kernel, dim3 grid, dim3 block, size_t shared) {
  constexpr unsigned kMostBlocks = 65535, kMostThreads = 1024;
  if (grid.x > 0x7fffffffu || grid.y > kMostBlocks || grid.z > kMostBlocks ||
      size_t{block.x} * block.y * block.z > kMostThreads)
    return last_error = cudaErrorInvalidConfiguration;
  const auto asked = asked_for.find(kernel);
  const bool granted = asked != asked_for.end() && shared <= asked->second;
  if (shared + kOwnShared > kSharedWithoutAsking && !granted)
    return last_error = cudaErrorInvalidValue;
  return cudaSuccess;
}
}  // namespace emulator

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->sharedSizeBytes = emulator::kOwnShared;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto bytes = static_cast<size_t>(value);
  if (bytes + emulator::kOwnShared > emulator::kMostShared) return cudaErrorInvalidValue;
  emulator::asked_for[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (emulator::capturing != nullptr && !emulator::capturing->relaxed)
    return cudaErrorStreamCaptureUnsupported;
  *data = nullptr;
  if (memory.used + bytes > emulator::limit()) return cudaErrorMemoryAllocation;
  *data = emulator::fenced() ? emulator::allocate_fenced(bytes) : emulator::allocate_guarded(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  memory.blocks[*data] = bytes;
  memory.used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (emulator::capturing != nullptr) {
    std::fputs("CUDA emulator: cudaFree while work is captured\n", stderr);
    std::abort();
  }
  const auto found = memory.blocks.find(data);
  if (found == memory.blocks.end()) return cudaErrorInvalidValue;
  emulator::drain();
  const size_t bytes = found->second, pages = emulator::round_up(bytes, emulator::kPage);
  if (emulator::fenced()) {
    munmap(static_cast<char*>(data) + bytes - pages, pages + emulator::kPage);
  } else {
    madvise(data, pages, MADV_DONTNEED);
    memory.free_blocks.emplace(pages, data);
  }
  memory.used -= bytes;
  memory.blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::aligned_alloc(4096, emulator::round_up(bytes, 4096));
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = emulator::limit();
  *free = *total - memory.used;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  emulator::submit(stream, [=] {
    const emulator::DeviceAccess access;
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  emulator::submit(stream, [=] {
    const emulator::DeviceAccess access;
    for (size_t y = 0; y < height; ++y)
      std::memcpy(static_cast<char*>(to) + y * to_pitch,
                  static_cast<const char*>(from) + y * from_pitch, width);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  emulator::submit(stream, [=] {
    const emulator::DeviceAccess access;
    std::memset(data, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  (*stream)->device = emulator::current_device;
  EmulatedStream*& first = emulator::compute[emulator::current_device];
  if (first == nullptr) first = *stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::erase(emulator::queues, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++emulator::host_waits;
  emulator::settle();
  emulator::now_on(emulator::named(stream))->wait();
  return emulator::capturing == nullptr ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const MomentPtr moment = event->moment;
  if (moment == nullptr || moment->passed()) return cudaSuccess;
  EmulatedStream* const waiting = emulator::named(stream);
  if (waiting->queue != nullptr || (emulator::late && emulator::capturing == nullptr))
    emulator::queue_of(waiting).push([moment] { moment->wait(); });
  else
    emulator::held.push_back(moment);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->moment = emulator::now_on(emulator::named(stream));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++emulator::host_waits;
  if (event->moment != nullptr) event->moment->wait();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->moment == nullptr || event->moment->passed() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->moment->passed() || !end->moment->passed()) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->moment->end() - begin->moment->end()).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (emulator::capturing != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->captured = std::make_unique<EmulatedGraph>();
  stream->relaxed = mode == cudaStreamCaptureModeRelaxed;
  emulator::capturing = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (emulator::capturing != stream) return cudaErrorInvalidValue;
  emulator::capturing = nullptr;
  *graph = stream->captured.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& work : exec->work) emulator::submit(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
