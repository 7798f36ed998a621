#include "core/cuda/cuda_late.h"

#include <algorithm>
#include <cstring>

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_late_kernel.h"
#include "core/cuda/cuda_staging.h"

namespace frugal::cuda {
namespace {

constexpr int64_t kBlock = int64_t{64} << 10;  // bytes; most updates have one table
constexpr int64_t kLateAlignment = 256;

thread_local LateArguments* running = nullptr;

}  // namespace

LateArguments* LateArguments::current() { return running; }
bool renewing() { return running != nullptr && !capturing(); }

void LateArguments::run(const std::function<void()>& work) {
  FRUGAL_ASSERT(running == nullptr);
  running = this;
  try {
    work();
  } catch (...) {
    running = nullptr;
    throw;
  }
  running = nullptr;
}

void LateArguments::capture(const Tensor& guard, const std::function<void()>& work) {
  FRUGAL_ASSERT(capturing());
  FRUGAL_ASSERT(guard.dtype() == DType::u8 && guard.device().type == DeviceType::cuda);
  guard_ = guard;
  blocks_.clear();
  items_.clear();
  run(work);
}

void LateArguments::renew(const std::function<void()>& work) {
  FRUGAL_ASSERT(!capturing());
  next_ = 0;
  run(work);
  FRUGAL_CHECK(next_ == items_.size(), "[cuda] expected {} late arguments, as captured, got {}",
               items_.size(), next_);
  for (const Block& block : blocks_)
    staged_copy(block.there.get(), guard_.device(), block.here.slice(0, 0, block.used));
}

const void* LateArguments::place(const void* value, int64_t bytes) {
  if (capturing()) {
    if (blocks_.empty() || blocks_.back().used + bytes > blocks_.back().here.numel()) {
      const CategoryScope scope(Category::workspace);
      const int64_t size = std::max(kBlock, bytes);
      // Not in the graph's own memory, where kernels that run earlier would write over it.
      blocks_.push_back({system_memory(size), Tensor::empty({size}, DType::u8)});
    }
    Block& block = blocks_.back();
    items_.push_back({blocks_.size() - 1, block.used, bytes});
    block.used = std::min(block.here.numel(), (block.used + bytes + kLateAlignment - 1) /
                                                  kLateAlignment * kLateAlignment);
    return static_cast<uint8_t*>(block.there.get()) + items_.back().begin;
  }
  FRUGAL_CHECK(next_ < items_.size() && items_[next_].bytes == bytes,
               "[cuda] expected a late argument as captured, got another, of {} bytes", bytes);
  const Item& item = items_[next_++];
  std::memcpy(blocks_[item.block].here.mut<uint8_t>() + item.begin, value,
              static_cast<size_t>(bytes));
  return nullptr;
}

}  // namespace frugal::cuda
