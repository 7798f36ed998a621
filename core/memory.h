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
  input
};
inline constexpr int kCategories = 7;
std::string_view name_of(Category category);

using CategoryBytes = std::array<int64_t, kCategories>;  // indexed by Category

struct MemoryReport {
  CategoryBytes live{};     // now
  CategoryBytes peak{};     // the highest of each category, at different moments
  CategoryBytes at_peak{};  // the breakdown at the moment of the highest total
  int64_t live_total = 0;
  int64_t peak_total = 0;
  int64_t reserved = 0;  // live, and free memory kept for the next tensors
  int64_t limit = 0;     // 0: none
  int64_t of(Category category) const { return live[static_cast<size_t>(category)]; }
  std::string str() const;  // a table for people
};

// Thrown when the limit or the machine is exhausted; carries what held the memory.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& what, const MemoryReport& memory) : Error(what), report(memory) {}
  MemoryReport report;
};

// One per device type. Blocks are 64-byte aligned. Thread-safe. Free memory of the CPU is a
// PagePool's. On `meta`, bytes are accounted and no memory exists.
class Allocator {
 public:
  Allocator();
  virtual ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;     // accounted: the request rounded up to 64
    int64_t capacity = 0;  // what was taken for it
    Category category{};
  };
  Block allocate(int64_t bytes, Category category);  // Errors: OutOfMemory
  void release(const Block& block) noexcept;

  void set_limit(int64_t bytes);  // of live bytes and of free ones that are kept; 0: none
  // Free memory goes back to the system where it and live bytes together would exceed this; 0: no
  // such bound. Never fails: live bytes alone may exceed it. CUDA has a pool of its own.
  void set_most_reserved(int64_t bytes);
  void fail_after(int64_t allocations);  // for tests: the n-th from now throws; negative: off
  void reset_peak();                     // peaks start again from what is live
  MemoryReport report() const;
  virtual void trim();  // gives free memory back to the system

 protected:
  virtual void* acquire(int64_t bytes) = 0;  // nullptr when exhausted
  virtual void give_back(void* data, int64_t bytes) noexcept = 0;
  virtual bool caching() const { return true; }  // large blocks are a PagePool's
  virtual int64_t idle() const { return 0; }     // bytes that acquire() holds and nobody uses

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Allocator& allocator(Device device);  // Errors: a CUDA device that is not there

// Bytes between devices, in the order of the work before; returns when `to` may be read on the
// host. REQUIRES: not `meta`.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

// New storages of this thread get `category` while it lives. The default is `activation`.
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

int64_t host_peak_rss();  // bytes, of the process, from the system

}  // namespace frugal
