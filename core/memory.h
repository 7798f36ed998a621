// Memory accounting and the allocators. Every live byte is in exactly one category.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/device.h"
#include "core/error.h"

namespace frugal {

enum class Category : uint8_t {
  parameter,
  gradient,
  optimizer,
  activation,
  packed,
  workspace,
  input  // the last one, see kCategories
};
inline constexpr int kCategories = static_cast<int>(Category::input) + 1;
std::string_view name_of(Category category);

using CategoryBytes = std::array<int64_t, kCategories>;  // indexed by Category

struct MemoryReport {
  CategoryBytes live{};     // bytes now
  CategoryBytes peak{};     // the highest of each category, at different moments
  CategoryBytes at_peak{};  // each category at the moment of the highest total
  int64_t live_total = 0;
  int64_t peak_total = 0;
  int64_t reserved = 0;  // live bytes, and free memory that is kept for the next tensors
  int64_t limit = 0;     // 0: none
  int64_t of(Category category) const { return live[static_cast<size_t>(category)]; }
  std::string str() const;  // one line, the largest category first
};

// Thrown when the limit or the memory of the machine is used up. `report` says which categories
// held the memory.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& what, const MemoryReport& memory) : Error(what), report(memory) {}
  MemoryReport report;
};

// There is one allocator for each device. Blocks are aligned to 64 bytes. Thread-safe. On the CPU,
// a PagePool keeps free memory. On `meta`, bytes are accounted and no memory exists.
class Allocator {
 public:
  Allocator();
  virtual ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;  // taken and accounted: what was asked for, rounded up to a multiple of 64
    Category category{};
    int64_t most = 0;  // what `bytes` may grow to
  };
  Block allocate(int64_t bytes, Category category);  // Errors: OutOfMemory
  // A block that is taken and accounted as it grows, from 0 bytes to `most`. Nothing beyond
  // Block::bytes may be touched. On CUDA all of it is taken at once.  Errors: OutOfMemory
  Block reserve(int64_t most, Category category);
  // Grows to at least `bytes` of the block's `most`.  Errors: OutOfMemory, and then nothing changed
  void grow(Block& block, int64_t bytes);
  void release(const Block& block) noexcept;

  void set_limit(int64_t bytes);  // limits the sum of live bytes and of free bytes that are kept;
                                  // 0: no limit
  // Where live bytes and kept free bytes together would exceed `bytes`, free memory goes back to
  // the system. 0: no such bound. This never fails: live bytes alone may exceed the bound. CUDA has
  // a pool of its own and ignores it.
  void set_most_reserved(int64_t bytes);
  void fail_after(int64_t allocations);  // for tests: the allocation after so many more throws;
                                         // negative: none does
  void reset_peak();                     // starts new peaks from what is live now
  MemoryReport report() const;
  virtual void trim();  // gives free memory back to the system

 protected:
  virtual void* acquire(int64_t bytes) = 0;  // nullptr when exhausted
  virtual void give_back(void* data, int64_t bytes) noexcept = 0;
  virtual bool caching() const { return true; }  // whether a PagePool holds large blocks
  virtual bool grows() const { return true; }    // can blocks be taken as they grow?
  virtual int64_t idle() const {
    return 0;
  }  // bytes that acquire() has taken and no tensor
     // uses

 private:
  struct State;
  Block take(int64_t bytes, Category category, bool grows);
  std::unique_ptr<State> state_;
};

Allocator& allocator(Device device);  // Errors: a CUDA device that does not exist

// Copies bytes between devices, after all work that was queued before. When it returns, the host
// may read `to`. REQUIRES: neither device is `meta`.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

// While a CategoryScope lives, new storages of this thread get its `category`. Without a scope they
// get `activation`.
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;
  static Category current();

 private:
  Category previous_;
};

int64_t host_peak_rss();  // the most bytes that the process has held, as the system counts them

}  // namespace frugal
