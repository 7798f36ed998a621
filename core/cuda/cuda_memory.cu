#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_random.h"
#include "core/memory/private_pool.h"
#include "core/memory/segment_pool.h"

namespace frugal::cuda {

int current_device() {
  int index = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&index));
  return index;
}

// The emulator or a memory checker then sees where each tensor ends.
bool one_by_one() {
  static const char* const way = std::getenv("FRUGAL_ALLOCATOR");
  static const bool asked = way != nullptr && std::string_view(way) == "one_by_one";
#ifdef FRUGAL_CUDA_EMULATOR
  return asked || emulator::fenced();
#else
  return asked;
#endif
}

namespace {

// The base class counts bytes. The pools, which split and join blocks, keep free memory.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(int index) : index_(index), pools_{make_pool(false)} {}

  void trim() override {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_) pool->trim();
  }

  std::shared_ptr<SegmentPool> make_pool(bool keeps) {
    return std::make_shared<SegmentPool>(
        SegmentPool::Source{.acquire = [this](int64_t bytes) { return malloc(bytes); },
                            .give_back = [this](void* data) { free(data); }},
        keeps);
  }
  void enter(const std::shared_ptr<SegmentPool>& pool) {
    const std::lock_guard lock(mutex_);
    if (std::find(pools_.begin(), pools_.end(), pool) == pools_.end()) pools_.push_back(pool);
    private_ = pool;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    private_ = nullptr;
    drop_unused();
    for (void* data : std::exchange(later_, {})) free(data);
  }
  void sweep() {
    const std::lock_guard lock(mutex_);
    drop_unused();
  }
  std::shared_ptr<void> system_memory(int64_t bytes) {
    void* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      data = with_room([&] { return malloc(bytes); });
    }
    if (data == nullptr) {
      const MemoryReport now = report();
      throw OutOfMemory(fmt::format("out of memory: the system has none left for {} bytes beside "
                                    "tensors\n{}",
                                    bytes, now.str()),
                        now);
    }
    return {data, [this](void* p) {
              const std::lock_guard lock(mutex_);
              free(p);
            }};
  }

 protected:
  void* acquire(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (one_by_one() && private_ == nullptr) return malloc(bytes);
    SegmentPool& pool = private_ != nullptr ? *private_ : *pools_.front();
    return with_room([&] { return pool.allocate(bytes); });
  }
  void give_back(void* data, int64_t) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto owner = std::find_if(pools_.begin(), pools_.end(),
                                    [&](const auto& pool) { return pool->owns(data); });
    if (owner == pools_.end()) return free(data);  // it was allocated one by one
    (*owner)->release(data);
    drop_unused();
  }
  bool caching() const override { return false; }
  bool grows() const override { return false; }
  int64_t idle() const override {
    const std::lock_guard lock(mutex_);
    int64_t bytes = 0;
    for (const auto& pool : pools_) bytes += pool->held() - pool->used();
    return bytes;
  }

 private:
  // Calls allocate(). If that fails, gives unused memory back to the system and tries again. Memory
  // cannot be given back while work is captured.
  template <class F>
  void* with_room(const F& allocate) {
    void* data = allocate();
    if (data != nullptr || private_ != nullptr) return data;
    for (const auto& pool : pools_) pool->trim();
    return allocate();
  }
  // Drops private pools that nobody else holds and in which no tensor lies.
  void drop_unused() {
    std::erase_if(pools_, [&](const auto& pool) {
      return pool != pools_.front() && pool.use_count() == 1 && pool->used() == 0;
    });
  }
  void* malloc(int64_t bytes) {
    use({DeviceType::cuda, index_});
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    FRUGAL_CUDA_CHECK(status);
    return data;
  }
  void free(void* data) noexcept {
    if (private_ != nullptr) return later_.push_back(data);
    FRUGAL_CUDA_REPORT(cudaSetDevice(index_));
    FRUGAL_CUDA_REPORT(cudaFree(data));  // waits for queued work, so it must not run while work is
                                         // captured
  }

  int index_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<SegmentPool>> pools_;  // the first pool serves everybody
  std::shared_ptr<SegmentPool> private_;             // the pool of the living Scope
  std::vector<void*> later_;                         // freed when the Scope ends
};

CudaAllocator& allocator_of(int index) {
  // Never destroyed: tensors of static storage duration may outlive every other static.
  static auto* all = new std::vector<std::unique_ptr<CudaAllocator>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (all->size() <= static_cast<size_t>(index)) {
    use({DeviceType::cuda, index});
    all->resize(static_cast<size_t>(index) + 1);
  }
  auto& one = (*all)[static_cast<size_t>(index)];
  if (one == nullptr) one = std::make_unique<CudaAllocator>(index);
  return *one;
}

}  // namespace

Allocator& allocator(int index) { return allocator_of(index); }
std::shared_ptr<void> system_memory(int64_t bytes) {
  return allocator_of(current_device()).system_memory(bytes);
}

int64_t total_memory(int index) {
  if (index < 0 || index >= device_count()) return 0;
  const int before = current_device();
  use({DeviceType::cuda, index});
  size_t free = 0, total = 0;
  const cudaError_t status = cudaMemGetInfo(&free, &total);
  make_current(before);
  FRUGAL_CUDA_CHECK(status);
  return static_cast<int64_t>(total);
}

PrivatePool::PrivatePool()
    : device_(current_device()), pool_(allocator_of(device_).make_pool(true)) {}
PrivatePool::~PrivatePool() {
  pool_.reset();
  allocator_of(device_).sweep();
}
PrivatePool::Scope::Scope(PrivatePool& pool) : device_(pool.device_) {
  allocator_of(device_).enter(pool.pool_);
}
PrivatePool::Scope::~Scope() { allocator_of(device_).leave(); }

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  use(to_device.type == DeviceType::cuda ? to_device : from_device);
  FRUGAL_CUDA_CHECK(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()));
  if (to_device == kCpu || from_device == kCpu)
    synchronize();  // the host may write to it after
                    // this returns
}

void zero_bytes(void* data, int64_t bytes) {
  FRUGAL_CUDA_CHECK(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream()));
}

namespace {

template <class Word>
__global__ void fill_kernel(Word* data, int64_t count, bool packs, Word value) {
  Pack<Word> pack;
#pragma unroll
  for (Word& word : pack.at) word = value;
  const int64_t whole = packs ? count / Pack<Word>::kSize : 0;
  for (int64_t p = first_index(); p < whole; p += index_stride())
    store_pack(data + p * Pack<Word>::kSize, pack);
  for (int64_t i = whole * Pack<Word>::kSize + first_index(); i < count; i += index_stride())
    data[i] = value;
}

template <class Word>
void fill_words(void* data, int64_t count, const void* value) {
  Word word;
  std::memcpy(&word, value, sizeof(word));
  const bool packs = is_packable(data);
  const int64_t items = packs ? count / Pack<Word>::kSize + 1 : count;
  launch(fill_kernel<Word>, {count == 0 ? dim3(0) : blocks_for(items)}, static_cast<Word*>(data),
         count, packs, word);
}

}  // namespace

void fill(void* data, int64_t count, const void* value, size_t size) {
  if (size == 1) return fill_words<uint8_t>(data, count, value);
  if (size == 2) return fill_words<uint16_t>(data, count, value);
  if (size == 4) return fill_words<uint32_t>(data, count, value);
  FRUGAL_ASSERT(size == 8);
  fill_words<uint64_t>(data, count, value);
}

namespace {

// One for each device; never freed.
Advance* advance_of(int index) {
  static auto* all = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (all->size() <= static_cast<size_t>(index)) all->resize(static_cast<size_t>(index) + 1);
  std::shared_ptr<void>& one = (*all)[static_cast<size_t>(index)];
  if (one == nullptr) {  // every stream finds zeros, so the host waits for them once
    one = system_memory(sizeof(Advance));
    const Stream beside;
    FRUGAL_CUDA_CHECK(cudaMemsetAsync(one.get(), 0, sizeof(Advance), beside.get()));
    FRUGAL_CUDA_CHECK(cudaStreamSynchronize(beside.get()));
  }
  return static_cast<Advance*>(one.get());
}

__global__ void set_advance_kernel(Advance* to, Advance now) { *to = now; }

}  // namespace

const Advance* advance() { return advance_of(current_device()); }
void set_advance(const Advance& now) {
  launch(set_advance_kernel, {dim3(1), 1}, advance_of(current_device()), now);
}

}  // namespace frugal::cuda
