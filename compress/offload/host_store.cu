#include "compress/offload/host_store.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "core/cuda/cuda.h"
#include "core/cuda/pinned_pool.h"
#include "core/integers.h"

namespace frugal::compress {
namespace {

class Store final : public HostStore {
 public:
  Store(Device device, int64_t window) : device_(device), window_(window) { cuda::use(device); }
  ~Store() override { settle(); }  // what was queued uses the pool's memory, which goes with this

  Id put(Tensor payload) override {
    const std::lock_guard lock(mutex_);
    cuda::use(device_);
    backward_ = false;
    const int64_t bytes = accounted(payload);
    make_room(bytes, 0);
    const Id id = next_++;
    Item& item = items_[id];
    item.shape = payload.shape();
    item.dtype = payload.dtype();
    item.bytes = bytes;
    item.version = payload.storage()->version();
    item.payload = std::move(payload);
    resident_ += bytes;
    inside_ += bytes;
    try {
      for (auto& [other, older] : items_) {
        if (inside_ <= window_ / 2) break;
        copy_out(older);
      }
    } catch (...) {
      forget(items_.find(id));
      throw;
    }
    return id;
  }

  Tensor pin(Id id) override {
    const std::lock_guard lock(mutex_);
    cuda::use(device_);
    Item& item = items_.at(id);
    FRUGAL_CHECK(
        !was_changed(item),
        "[offload] expected a saved {} {} unchanged until backward, got one written in place",
        item.shape, name_of(item.dtype));
    if (!item.payload.defined()) {
      make_room(item.bytes, 0);
      load(item);
    }
    wait_for_load(item);
    ++item.pins;
    return item.payload;
  }

  void unpin(Id id) noexcept override {
    const std::lock_guard lock(mutex_);
    Item& item = items_.at(id);
    --item.pins;
    item.used = ++clock_;
    item.ahead = false;
  }

  void prefetch(Id id) noexcept override {
    const std::lock_guard lock(mutex_);
    backward_ = true;
    Item& item = items_.at(id);
    item.ahead = true;
    if (item.payload.defined() || item.wished) return;
    try {
      cuda::use(device_);
      wishes_.push_back(id);
      item.wished = true;
      grant_wishes();
    } catch (...) {  // pin() tries again, and says why
    }
  }

  void drop(Id id) noexcept override {
    const std::lock_guard lock(mutex_);
    try {
      cuda::use(device_);
      const auto found = items_.find(id);
      if (found->second.wished) std::erase(wishes_, id);
      forget(found);
      grant_wishes();
    } catch (...) {
    }
  }

  Stats stats() const override {
    const std::lock_guard lock(mutex_);
    Stats stats = stats_;
    stats.resident = resident_;
    stats.used = pool_.used();
    stats.held = pool_.held();
    return stats;
  }

 private:
  struct Item {
    Tensor payload;  // undefined: the payload is not on the device
    Shape shape;
    DType dtype{};
    int64_t bytes = 0;
    void* copy = nullptr;  // pinned; null: nothing was copied out yet
    cuda::Event out, back;
    bool leaving = false;  // the compute stream has not waited for the copy out
    bool coming = false;   // the compute stream has not waited for the copy back
    uint64_t version = 0;
    bool changed = false;
    bool wished = false, ahead = false;
    int pins = 0;
    uint64_t used = 0;
  };
  using Items = std::map<Id, Item>;

  static int64_t accounted(const Tensor& tensor) { return round_up(tensor.nbytes(), 64); }
  static bool was_changed(const Item& item) {
    return item.changed ||
           (item.payload.defined() && item.payload.storage()->version() != item.version);
  }

  void settle() const noexcept {
    FRUGAL_CUDA_REPORT(cudaStreamSynchronize(out_.get()));
    FRUGAL_CUDA_REPORT(cudaStreamSynchronize(back_.get()));
  }

  void copy_out(Item& item) {
    if (item.copy != nullptr || was_changed(item)) return;
    cuda::Event written;
    written.record(cuda::stream());
    written.hold(out_.get());
    auto to = pool_.allocate(std::max<int64_t>(item.payload.nbytes(), 1));
    copy(to, item.payload.raw(), item.payload.nbytes(), out_.get());
    item.out.record(out_.get());
    item.copy = std::move(to);  // only now: what failed is not there
    item.leaving = true;
    inside_ -= item.bytes;
    stats_.out += item.payload.nbytes();
  }

  // REQUIRES: copied out, not on the device.
  void load(Item& item) {
    {
      const CategoryScope scope(Category::packed);
      item.payload = Tensor::empty(item.shape, item.dtype, device_);
    }
    resident_ += item.bytes;
    item.version = item.payload.storage()->version();
    cuda::Event taken;  // whoever had the memory before is done with it
    taken.record(cuda::stream());
    taken.hold(back_.get());
    item.out.hold(back_.get());
    copy(item.payload.raw(), item.copy, item.payload.nbytes(), back_.get());
    item.back.record(back_.get());
    item.coming = true;
    stats_.back += item.payload.nbytes();
  }

  static void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
    FRUGAL_CUDA_CHECK(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
  }

  void wait_for_load(Item& item) {
    if (std::exchange(item.coming, false)) item.back.hold(cuda::stream());
  }

  // The payload's memory, for what the compute stream does next.
  void let_go(Item& item) {
    if (!item.payload.defined()) return;
    wait_for_load(item);
    if (std::exchange(item.leaving, false)) item.out.hold(cuda::stream());
    item.changed = was_changed(item);
    item.payload = {};
    resident_ -= item.bytes;
  }

  void forget(Items::iterator found) {
    Item& item = found->second;
    if (item.copy == nullptr) inside_ -= item.bytes;
    const bool came = item.coming;
    let_go(item);
    if (item.copy != nullptr) {
      // Who gets the memory next writes to it there, behind the copy out.
      if (came) item.back.hold(out_.get());
      pool_.release(item.copy);
    }
    items_.erase(found);
  }

  // Chooses who leaves first, of those that may leave: first what was used, the longest unused one
  // first, then the oldest, and last those that were asked for ahead. `prefetched` is wished for:
  // nothing leaves that is needed before it.
  Items::iterator first_to_go(Id prefetched) {
    auto best = items_.end();
    const auto rank = [](const Item& item) {
      return std::pair{item.ahead ? 2 : item.used == 0 ? 1 : 0, item.used};
    };
    for (auto at = items_.begin(); at != items_.end(); ++at) {
      Item& item = at->second;
      if (!item.payload.defined() || item.pins > 0 || was_changed(item)) continue;
      if (prefetched != 0 && (item.ahead || (item.used == 0 && at->first > prefetched))) continue;
      if (best == items_.end() || rank(item) < rank(best->second)) best = at;
    }
    return best;
  }

  bool make_room(int64_t bytes, Id prefetched) {
    while (resident_ > 0 && resident_ + bytes > window_) {
      const auto victim = first_to_go(prefetched);
      if (victim == items_.end()) return false;
      copy_out(victim->second);
      let_go(victim->second);
    }
    return true;
  }

  void grant_wishes() {
    while (!wishes_.empty()) {
      Item& item = items_.at(wishes_.front());
      if (!item.payload.defined()) {
        if (!make_room(item.bytes, wishes_.front())) return;
        load(item);
      }
      item.wished = false;
      wishes_.pop_front();
    }
    if (!backward_) return;
    for (auto at = items_.rbegin(); at != items_.rend(); ++at) {
      Item& item = at->second;
      if (item.payload.defined()) continue;
      if (resident_ + item.bytes > window_) return;
      load(item);
    }
  }

  Device device_;
  int64_t window_;
  mutable std::mutex mutex_;
  cuda::Stream out_, back_;
  cuda::PinnedPool pool_{[this] { settle(); }};
  Items items_;
  std::deque<Id> wishes_;
  Id next_ = 1;
  uint64_t clock_ = 0;
  bool backward_ = false;              // something was asked for since the last put()
  int64_t resident_ = 0, inside_ = 0;  // inside: on the device alone
  Stats stats_;
};

}  // namespace

std::unique_ptr<HostStore> make_host_store(Device device, int64_t window) {
  cuda::use(device);  // streams and events are the current device's
  return std::make_unique<Store>(device, window);
}

}  // namespace frugal::compress
