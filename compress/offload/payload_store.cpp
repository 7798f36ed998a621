#include "compress/offload/payload_store.h"

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

#include "core/cores.h"
#include "core/integers.h"
#include "core/stopwatch.h"

namespace frugal::compress {
namespace {

// The bytes that the allocator counts for a tensor.
int64_t accounted(const Tensor& tensor) { return round_up(tensor.nbytes(), 64); }

}  // namespace

PayloadStore::PayloadStore(const OffloadOptions& options, Device buffer)
    : options_(options), file_({options.directory, options.max_bytes, options.direct, buffer}) {
  FRUGAL_CHECK(options.window >= 0, "[offload] expected window >= 0, got {}", options.window);
  // This thread blocks all signals, so that other threads handle them. SIGXFSZ would end the
  // process, but a write that fails must be an error.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] {
      use_all_cores();
      run();
    });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PayloadStore::~PayloadStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

PayloadStore::Id PayloadStore::put(Tensor payload) {
  if constexpr (kHasCuda) {
    if (payload.device().type == DeviceType::cuda) {
      {
        const std::lock_guard lock(mutex_);
        if (host_ == nullptr) host_ = make_host_store(payload.device(), options_.window);
      }
      return host_->put(std::move(payload)) | kOnHost;
    }
  }
  Lock lock(mutex_);
  const int64_t bytes = accounted(payload);
  full_ = false;  // something may have been released since
  // On `meta` there is no thread that reads, so nobody waits. Tensors that were asked for ahead
  // count as read, and may leave the window again. Pinned tensors stay, and do not count against
  // the window.
  if (payload.device() == kMeta && !fits(bytes)) {
    for (const Id id : here_)
      if (Item& item = items_.at(id); item.device == kMeta) item.transfer = Transfer::none;
    make_room(bytes, 0);
  } else if (!make_room(bytes, 0)) {
    const Stopwatch watch(stats_.pack_seconds);
    ++waiting_;
    work_.notify_one();
    done_.wait(lock, [&] { return make_room(bytes, 0) || (full_ && !busy_ && reads_.empty()); });
    --waiting_;
    FRUGAL_CHECK(fits(bytes), "{}; and the {} bytes in memory are full", failure_, options_.window);
  }
  const Id id = next_++;
  here_.insert(id);
  Item& item = items_[id];
  item.id = id;
  item.shape = payload.shape();
  item.dtype = payload.dtype();
  item.device = payload.device();
  item.bytes = bytes;
  item.version = payload.storage()->version();
  item.payload = std::move(payload);
  item.in_file = item.device == kMeta;
  resident_ += bytes;
  if (!item.in_file) dirty_ += bytes;
  work_.notify_one();
  return id;
}

Tensor PayloadStore::pin(Id id) {
  if ((id & kOnHost) != 0) return host_->pin(id & ~kOnHost);
  Lock lock(mutex_);
  Item& item = items_.at(id);
  FRUGAL_CHECK(
      !was_changed(item),
      "[offload] expected a saved {} {} unchanged until backward, got one written in place",
      item.shape, name_of(item.dtype));
  if (!item.payload.defined() && item.error.empty()) {
    make_room(item.bytes, 0);  // if it can be made: this one is needed now
    for (;;) {
      try {
        load(id, item, true);
        break;
      } catch (const OutOfMemory&) {
        const auto victim = first_to_go(0);
        if (victim == items_.end()) throw;
        let_go(victim->second);
      }
    }
  } else if (item.transfer == Transfer::queued && item.device == kMeta) {
    item.transfer = Transfer::none;
  } else if (item.transfer == Transfer::queued) {
    std::erase(reads_, id);
    reads_.push_front(id);
  }
  const auto is_here = [&] {
    return item.transfer == Transfer::none || item.transfer == Transfer::writing;
  };
  if (!is_here()) {
    const Stopwatch watch(stats_.unpack_seconds);
    done_.wait(lock, is_here);
  }
  if (!item.error.empty()) throw Error(std::exchange(item.error, {}));
  ++item.pins;
  return item.payload;
}

void PayloadStore::unpin(Id id) noexcept {
  if ((id & kOnHost) != 0) return host_->unpin(id & ~kOnHost);
  {
    const std::lock_guard lock(mutex_);
    Item& item = items_.at(id);
    --item.pins;
    item.used = ++clock_;
    item.walk = walk_;
    item.ahead = false;
    used_since_wish_ = true;
  }
  done_.notify_all();
}

void PayloadStore::prefetch(Id id) noexcept {
  if ((id & kOnHost) != 0) return host_->prefetch(id & ~kOnHost);
  const std::lock_guard lock(mutex_);
  // This is the first call after payloads were used, so backward has come to the next node.
  if (used_since_wish_) ++walk_;
  used_since_wish_ = false;
  Item& item = items_.at(id);
  item.ahead = true;
  if (item.payload.defined() || item.wished || !item.error.empty()) return;
  try {
    wishes_.push_back(id);
    item.wished = true;
  } catch (...) {
    return;
  }
  grant_wishes();
}

void PayloadStore::drop(Id id) noexcept {
  if ((id & kOnHost) != 0) return host_->drop(id & ~kOnHost);
  Lock lock(mutex_);
  const auto found = items_.find(id);
  Item& item = found->second;
  if (item.transfer == Transfer::queued) {
    std::erase(reads_, id);
    item.transfer = Transfer::none;
  }
  item.cancel = true;
  done_.wait(lock, [&] { return item.transfer == Transfer::none; });
  if (item.wished) std::erase(wishes_, id);
  if (item.payload.defined()) {
    resident_ -= item.bytes;
    if (!item.in_file) dirty_ -= item.bytes;
  }
  file_.release(item.region);
  here_.erase(id);
  items_.erase(found);
  grant_wishes();
  lock.unlock();
  done_.notify_all();
}

bool PayloadStore::may_go(const Item& item) const {
  return item.payload.defined() && item.in_file && item.transfer == Transfer::none &&
         item.pins == 0;
}

// To make room for `prefetched`, a payload may leave only if a node that is done used it, or if it
// is older and is therefore needed later.
std::map<PayloadStore::Id, PayloadStore::Item>::iterator PayloadStore::first_to_go(Id prefetched) {
  using Rank = std::tuple<int, uint64_t>;
  auto best = items_.end();
  Rank lowest{};
  for (const Id id : here_) {
    const auto it = items_.find(id);
    const Item& item = it->second;
    if (!may_go(item)) continue;
    if (prefetched != 0 &&
        (item.ahead || (item.used > 0 ? item.walk == walk_ : it->first > prefetched)))
      continue;
    // Payloads that were asked for earliest are needed last.
    const Rank rank = item.ahead      ? Rank{2, it->first}
                      : item.used > 0 ? Rank{0, item.used}
                                      : Rank{1, it->first};
    if (best == items_.end() || rank < lowest) {
      best = it;
      lowest = rank;
    }
  }
  return best;
}

bool PayloadStore::make_room(int64_t bytes, Id prefetched) {
  while (!fits(bytes)) {
    const auto victim = first_to_go(prefetched);
    if (victim == items_.end()) return false;
    let_go(victim->second);
  }
  return true;
}

// Only the calling threads ask this. The thread that writes to the file reads no versions.
bool PayloadStore::was_changed(const Item& item) {
  return item.changed ||
         (item.payload.defined() && item.payload.storage()->version() != item.version);
}

void PayloadStore::let_go(Item& item) {
  item.changed = was_changed(item);
  item.payload = {};
  here_.erase(item.id);
  item.ahead = false;
  resident_ -= item.bytes;
}

// REQUIRES: not in memory.
void PayloadStore::load(Id id, Item& item, bool at_once) {
  CategoryScope scope(Category::packed);
  Tensor payload = Tensor::empty(item.shape, item.dtype, item.device);
  here_.insert(id);
  if (item.device != kMeta) {
    at_once ? reads_.push_front(id) : reads_.push_back(id);
    item.transfer = Transfer::queued;
    work_.notify_one();
  } else if (!at_once) {
    item.transfer = Transfer::queued;
  }
  item.version = payload.storage()->version();
  item.payload = std::move(payload);
  resident_ += item.bytes;
}

void PayloadStore::grant_wishes() noexcept {
  while (!wishes_.empty()) {
    const Id id = wishes_.front();
    const auto found = items_.find(id);
    if (found != items_.end() && !found->second.payload.defined()) {
      if (!make_room(found->second.bytes, id)) return;
      try {
        load(id, found->second, false);
        found->second.ahead = true;
      } catch (...) {  // no memory to read it ahead of its use: pin() will say so, or not
      }
    }
    if (found != items_.end()) found->second.wished = false;
    wishes_.pop_front();
  }
}

PayloadStore::Item* PayloadStore::to_write() {
  if (full_ || dirty_ == 0 || (waiting_ == 0 && dirty_ <= options_.window / 2)) return nullptr;
  for (const Id id : here_)
    if (Item& item = items_.at(id); !item.in_file && item.transfer == Transfer::none &&
                                    !item.cancel.load(std::memory_order_relaxed))
      return &item;
  return nullptr;
}

void PayloadStore::run() {
  Lock lock(mutex_);
  while (!stop_) {
    if (!reads_.empty()) {
      Item& item = items_.at(reads_.front());
      reads_.pop_front();
      busy_ = true;
      read(lock, item);
    } else if (Item* item = to_write()) {
      busy_ = true;
      write(lock, *item);
    } else {
      work_.wait(lock);
      continue;
    }
    busy_ = false;
    done_.notify_all();
  }
}

void PayloadStore::write(Lock& lock, Item& item) {
  item.transfer = Transfer::writing;
  std::optional<FileStore::Region> region;
  std::string failure;
  lock.unlock();
  try {
    region = file_.write(item.payload.raw(), item.payload.nbytes(), &item.cancel);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  lock.lock();
  item.transfer = Transfer::none;
  if (region) {
    item.region = *region;
    item.in_file = true;
    dirty_ -= item.bytes;
    stats_.written += region->bytes;
  } else if (!failure.empty()) {
    full_ = true;
    failure_ = failure;
  }
}

void PayloadStore::read(Lock& lock, Item& item) {
  item.transfer = Transfer::reading;
  const FileStore::Region region = item.region;
  void* const to = item.payload.raw();
  lock.unlock();
  std::string error;
  bool complete = false;
  try {
    complete = file_.read(region, to, &item.cancel);
  } catch (const std::exception& e) {
    error = e.what();
  }
  lock.lock();
  item.transfer = Transfer::none;
  if (complete) stats_.read += region.bytes;
  if (error.empty()) return;
  item.error = error;
  let_go(item);
}

OffloadStats PayloadStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

int64_t PayloadStore::resident_bytes() const {
  const std::lock_guard lock(mutex_);
  return resident_;
}

}  // namespace frugal::compress
