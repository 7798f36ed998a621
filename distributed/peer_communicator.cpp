#include "distributed/peer_communicator.h"

#include <sys/prctl.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>

#include "core/cores.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "distributed/operation_text.h"
#include "ops/dense/copy.h"

namespace frugal::distributed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How long is slept between two looks for messages: while the program computes, and when it has
// waited for kSpin seconds. A segment takes some 50 microseconds.
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kShortNap = std::chrono::microseconds(5);
constexpr double kSpin = 0.0002;
constexpr double kLastSeconds = 10;  // for the transport to end the job

std::string join(const std::vector<int>& ranks) {
  std::string text = noun_for(static_cast<int64_t>(ranks.size()), "rank");
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

class PeerOperation final : public Operation {
 public:
  // x: the program's tensor. data: its bytes on the host, which are x itself or a copy. kept: what
  // else must live until the end.
  PeerOperation(PeerThread& thread, std::unique_ptr<Collective> collective, int64_t number,
                Tensor data, Tensor x, Tensor kept)
      : thread_(thread),
        collective_(std::move(collective)),
        number_(number),
        data_(std::move(data)),
        x_(std::move(x)),
        kept_(std::move(kept)) {}

  bool done() const override { return done_.load(std::memory_order_acquire); }
  double seconds() const override { return seconds_; }
  void wait() override {
    if (!done()) thread_.wait(*this);
    if (!x_.defined()) return;
    copy_bytes(x_.raw(), x_.device(), data_.raw(), kCpu, data_.nbytes());
    x_ = data_ = {};
  }

 private:
  friend class PeerThread;
  PeerThread& thread_;
  std::unique_ptr<Collective> collective_;
  int64_t number_;
  Tensor data_, x_, kept_;  // x: defined if the result is copied there
  Clock::time_point began_, moved_;
  int64_t passed_ = 0;
  double seconds_ = 0;
  std::atomic<bool> done_ = false;
};

PeerThread::PeerThread(Connect connect, const Options& options) {
  set_options(options);
  std::promise<void> connected;
  std::future<void> outcome = connected.get_future();
  thread_ =
      std::thread([this, connect = std::move(connect), connected = std::move(connected)]() mutable {
        use_all_cores();
        prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // naps end when they should
        try {
          transport_ = connect();
        } catch (...) {
          connected.set_exception(std::current_exception());
          return;
        }
        connected.set_value();
        serve();
        transport_.reset();
      });
  try {
    outcome.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

// ---- In the thread of the program

void PeerThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PeerThread::set_options(const Options& options) {
  FRUGAL_CHECK(options.timeout >= 0,
               "[distributed] expected a timeout of at least 0 seconds, got {}", options.timeout);
  timeout_ = options.timeout;
}

int PeerThread::open_channel() {
  const std::lock_guard lock(mutex_);
  const auto free = std::find(open_.begin(), open_.end(), false);
  FRUGAL_CHECK(free != open_.end(), "[distributed] expected at most {} channels, got one more",
               kChannels);
  *free = true;
  return static_cast<int>(free - open_.begin());
}

void PeerThread::close_channel(int channel) {
  const std::lock_guard lock(mutex_);
  open_[static_cast<size_t>(channel)] = false;
}

void PeerThread::begin(int channel, std::shared_ptr<PeerOperation> operation) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw InternalError("an operation of a communicator that was stopped");
    queues_[static_cast<size_t>(channel)].push_back(std::move(operation));
    ++unfinished_;
    news_ = true;
  }
  changed_.notify_one();
}

void PeerThread::wait(const PeerOperation& operation) {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_;
  }
  try {
    while (!operation.done()) {
      const Look now = look();
      if (now.moved) continue;
      if (now.still > kSpin)
        std::this_thread::sleep_for(kShortNap);
      else
        std::this_thread::yield();
    }
  } catch (const std::exception& error) {
    end_job(error.what(), 1);
  }
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    --waiting_;
    more = unfinished_ > 0;
  }
  if (more) changed_.notify_one();
}

void PeerThread::abort(const std::string& message, int status) {
  {
    const std::lock_guard lock(mutex_);
    last_words_ = message;
    status_ = status;
    ending_ = true;
  }
  changed_.notify_all();
  std::this_thread::sleep_for(std::chrono::duration<double>(kLastSeconds));
  std::_Exit(status);
}

PeerCommunicator::PeerCommunicator(std::shared_ptr<PeerThread> thread)
    : thread_(std::move(thread)),
      rank_(thread_->transport().rank()),
      size_(thread_->transport().size()),
      next_{thread_->open_channel(), 0} {}

bool PeerCommunicator::has_work(const char* op, const Tensor& x) const {
  check_contiguous(op, x);
  return size_ > 1 && x.numel() > 0 && x.device() != kMeta;
}

Pending PeerCommunicator::enqueue(std::unique_ptr<Collective> collective, const Tensor& data,
                                  const Tensor& x, const Tensor& kept) {
  const auto operation = std::make_shared<PeerOperation>(*thread_, std::move(collective),
                                                         next_.number++, data, x, kept);
  thread_->begin(next_.channel, operation);
  return Pending(operation);
}

namespace {

// The bytes that ranks exchange: those of x, or a copy on the host.
Tensor on_host(const Tensor& x) {
  const CategoryScope scope(Category::workspace);
  return to_device(x, kCpu);
}

}  // namespace

Pending PeerCommunicator::begin_sharing(const Tensor& x, Sharing sharing, const std::string& text) {
  x.bump_version();
  const Tensor data = on_host(x);
  Tensor ring;
  if (sharing.reduce) {
    const auto r = static_cast<size_t>(rank_);
    const int64_t mine = sharing.bounds[r + 1] - sharing.bounds[r];
    const int64_t bytes =
        Sharing::workspace_bytes(mine * static_cast<int64_t>(size_of(x.dtype())), size_);
    if (!ring_.defined() || ring_.nbytes() < bytes) {
      const CategoryScope scope(Category::workspace);
      ring_ = Tensor::empty({bytes}, DType::u8);
    }
    ring = ring_;
    sharing.workspace = ring.raw();
  }
  sharing.data = data.raw();
  sharing.dtype = x.dtype();
  return enqueue(share(thread_->transport(), text, next_, sharing), data,
                 x.device() == kCpu ? Tensor() : x, ring);
}

Pending PeerCommunicator::begin_all_reduce(const Tensor& x, Reduction reduction, std::string what) {
  check_reducible("all_reduce", x);
  if (!has_work("all_reduce", x)) return {};
  const std::string how = fmt::format(" ({})", name_of(reduction));
  return begin_sharing(x,
                       {.bounds = even_bounds(x.numel(), size_),
                        .reduce = true,
                        .gather = true,
                        .reduction = reduction},
                       text_of("all_reduce", x, how, what));
}

Pending PeerCommunicator::begin_reduce_scatter(const Tensor& x, const Bounds& bounds,
                                               Reduction reduction, std::string what) {
  check_reducible("reduce_scatter", x);
  check_bounds("reduce_scatter", bounds, x.numel(), size_);
  if (!has_work("reduce_scatter", x)) return {};
  const std::string how = fmt::format(" ({})", name_of(reduction));
  return begin_sharing(x,
                       {.bounds = bounds, .reduce = true, .gather = false, .reduction = reduction},
                       text_of("reduce_scatter", x, how, what));
}

Pending PeerCommunicator::begin_all_gather(const Tensor& x, const Bounds& bounds,
                                           std::string what) {
  check_bounds("all_gather", bounds, x.numel(), size_);
  if (!has_work("all_gather", x)) return {};
  return begin_sharing(x, {.bounds = bounds, .reduce = false, .gather = true},
                       text_of("all_gather", x, "", what));
}

Pending PeerCommunicator::begin_broadcast(const Tensor& x, int root, std::string what) {
  check_root(root, size_);
  if (!has_work("broadcast", x)) return {};
  x.bump_version();
  const Tensor data = on_host(x);
  const std::string text = text_of("broadcast", x, fmt::format(" from rank {}", root), what);
  return enqueue(
      distributed::broadcast(thread_->transport(), text, next_, data.raw(), data.nbytes(), root),
      data, x.device() == kCpu || root == rank_ ? Tensor() : x, {});
}

Pending PeerCommunicator::begin_all_to_all(const Tensor& send, const Bounds& send_bounds,
                                           const Tensor& receive, const Bounds& receive_bounds,
                                           std::string what) {
  check_all_to_all(send, send_bounds, receive, receive_bounds, rank_, size_);
  const auto r = static_cast<size_t>(rank_);
  const int64_t mine = send_bounds[r + 1] - send_bounds[r];
  // A rank without elements takes part, too, because the others wait for its word.
  if (send.device() == kMeta) return {};
  receive.bump_version();
  const Tensor from = send.view({send.numel()}), to = receive.view({receive.numel()});
  if (mine > 0)
    ops::copy_into(to.slice(0, receive_bounds[r], receive_bounds[r + 1]),
                   from.slice(0, send_bounds[r], send_bounds[r + 1]));
  const Tensor out = on_host(from), in = on_host(to);
  const auto size = static_cast<int64_t>(size_of(send.dtype()));
  const auto in_bytes = [&](Bounds bounds) {
    for (int64_t& bound : bounds) bound *= size;
    return bounds;
  };
  const Exchange shares{.send = out.raw(),
                        .send_bounds = in_bytes(send_bounds),
                        .receive = in.raw(),
                        .receive_bounds = in_bytes(receive_bounds)};
  return enqueue(distributed::exchange(thread_->transport(), what, next_, shares), in,
                 receive.device() == kCpu ? Tensor() : to, out);
}

void PeerCommunicator::abort(const std::string& message) { thread_->abort(message, 1); }

// ---- In the thread of PeerThread

// Returns when an operation must go on and nobody waits for one. False: there is none, and none
// will come.
bool PeerThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || (waiting_ == 0 && (unfinished_ > 0 || stopping_)); });
  if (ending_) {
    lock.unlock();
    end_job(last_words_, status_);
  }
  return unfinished_ > 0;
}

void PeerThread::serve() {
  try {
    while (wait_for_work())
      if (!look().moved) std::this_thread::sleep_for(kNap);
  } catch (const std::exception& error) {
    end_job(error.what(), 1);
  }
}

// ---- In either thread

// Takes the next operation of each channel that has none. REQUIRES: the caller holds moving_.
void PeerThread::take_begun() {
  if (!news_) return;
  const std::lock_guard lock(mutex_);
  bool more = false;
  for (size_t c = 0; c < active_.size(); ++c) {
    if (active_[c] == nullptr && !queues_[c].empty()) {
      active_[c] = std::move(queues_[c].front());
      queues_[c].pop_front();
      active_[c]->began_ = active_[c]->moved_ = Clock::now();
    }
    more = more || !queues_[c].empty();
  }
  news_ = more;
}

PeerThread::Look PeerThread::look() {
  const std::lock_guard moving(moving_);
  take_begun();
  Look result;
  for (auto& operation : active_) {
    if (operation == nullptr) continue;
    const bool done = operation->collective_->advance();
    const int64_t passed = operation->collective_->passed();
    if (passed != operation->passed_) {
      operation->passed_ = passed;
      operation->moved_ = Clock::now();
      result.moved = true;
    }
    if (done) {
      finish(*operation);
      operation = nullptr;
      result.moved = true;
    } else {
      result.still = seconds_since(operation->moved_);
      check_time(*operation);
    }
  }
  return result;
}

void PeerThread::finish(PeerOperation& operation) {
  operation.seconds_ = seconds_since(operation.began_);
  operation.collective_.reset();
  operation.kept_ = {};
  if (!operation.x_.defined()) operation.data_ = {};
  const std::lock_guard lock(mutex_);
  --unfinished_;
  operation.done_.store(true, std::memory_order_release);
}

void PeerThread::check_time(const PeerOperation& operation) {
  const double still = seconds_since(operation.moved_), timeout = timeout_;
  if (timeout == 0 || still <= timeout) return;
  const Collective& collective = *operation.collective_;
  std::string whom;
  if (const auto ranks = collective.silent(); !ranks.empty())
    whom = ": nothing came from " + join(ranks);
  else if (const auto others = collective.deaf(); !others.empty())
    whom = ": nothing was taken by " + join(others);
  end_job(fmt::format("[distributed] waited {:.1f} seconds in {} (operation {}){}", still,
                      collective.text(), operation.number_, whom),
          1);
}

void PeerThread::end_job(const std::string& message, int status) {
  ending_job_ = true;
  if (!message.empty()) {
    const std::string line =
        fmt::format("rank {}: {}\n", transport_->rank(), without_controls(message));
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  }
  transport_->abort(status);
  std::_Exit(status);
}

}  // namespace frugal::distributed
