#include "distributed/peer_communicator.h"

#include <sys/prctl.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>

#include "core/quoted.h"

namespace frugal::distributed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How long the thread sleeps between two looks for messages: while the program computes, and when
// it has waited for kSpin seconds. A segment takes some 50 microseconds.
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kShortNap = std::chrono::microseconds(5);
constexpr double kSpin = 0.0002;
constexpr double kLastSeconds = 10;  // for the transport to end the job

std::string join(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string_view name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::max ? "max" : "min";
}

std::string text_of(const char* op, const Tensor& x, const std::string& how,
                    const std::string& what) {
  return fmt::format("{} of {} {}{}{}{}", op, x.numel(), frugal::name_of(x.dtype()), how,
                     what.empty() ? "" : ": ", what);
}

void check_reducible(const char* op, const Tensor& x) {
  const DType dtype = x.dtype();
  FRUGAL_CHECK(
      dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i64 || dtype == DType::bf16,
      "[{}] expected f32, f64, i64 or bf16, got {}", op, describe(x));
}

void check_bounds(const char* op, const Bounds& bounds, int64_t elements, int ranks) {
  bool fit = bounds.size() == static_cast<size_t>(ranks) + 1 && bounds.front() == 0 &&
             bounds.back() == elements;
  for (size_t i = 0; fit && i + 1 < bounds.size(); ++i) fit = bounds[i] <= bounds[i + 1];
  FRUGAL_CHECK(fit, "[{}] expected {} bounds in ascending order from 0 to {}, got {}", op,
               ranks + 1, elements, fmt::join(bounds, ", "));
}

}  // namespace

class PeerCommunicator::Begun final : public Operation {
 public:
  Begun(PeerCommunicator& owner, std::unique_ptr<Collective> collective, int64_t number,
        Tensor data, Tensor copied_to, Tensor ring)
      : owner_(owner),
        collective_(std::move(collective)),
        number_(number),
        data_(std::move(data)),
        copied_to_(std::move(copied_to)),
        ring_(std::move(ring)) {}

  bool done() const override { return done_.load(std::memory_order_acquire); }
  double seconds() const override { return seconds_; }
  void wait() override {
    if (!done()) {
      std::unique_lock lock(owner_.mutex_);
      ++owner_.waiting_;
      finished_.wait(lock, [&] { return done(); });
      --owner_.waiting_;
    }
    if (copied_to_.defined()) {
      copy_bytes(copied_to_.raw(), copied_to_.device(), data_.raw(), kCpu, data_.nbytes());
      copied_to_ = data_ = {};
    }
  }

 private:
  friend class PeerCommunicator;
  PeerCommunicator& owner_;
  std::unique_ptr<Collective> collective_;
  int64_t number_;
  Tensor data_, copied_to_, ring_;  // copied_to_: defined if the program's tensor is on CUDA
  double seconds_ = 0;
  std::atomic<bool> done_ = false;
  std::condition_variable finished_;
};

PeerCommunicator::PeerCommunicator(Connect connect, const Options& options) {
  set_options(options);
  std::promise<void> connected;
  std::future<void> outcome = connected.get_future();
  thread_ =
      std::thread([this, connect = std::move(connect), connected = std::move(connected)]() mutable {
        prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // naps end when they should
        try {
          transport_ = connect();
          rank_ = transport_->rank();
          size_ = transport_->size();
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

void PeerCommunicator::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PeerCommunicator::set_options(const Options& options) {
  FRUGAL_CHECK(options.timeout >= 0,
               "[distributed] expected a timeout of at least 0 seconds, got {}", options.timeout);
  timeout_ = options.timeout;
}

// ---- In the thread of the program

bool PeerCommunicator::has_work(const char* op, const Tensor& x) const {
  FRUGAL_CHECK(x.is_contiguous(), "[{}] expected a contiguous tensor, got {} with strides {}", op,
               describe(x), x.strides());
  return size_ > 1 && x.numel() > 0 && x.device() != kMeta;
}

Pending PeerCommunicator::enqueue(std::unique_ptr<Collective> collective, Tensor data,
                                  Tensor copied_to, Tensor ring) {
  const auto begun =
      std::make_shared<Begun>(*this, std::move(collective), number_++, std::move(data),
                              std::move(copied_to), std::move(ring));
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw InternalError("an operation of a communicator that was stopped");
    queue_.push_back(begun);
  }
  changed_.notify_one();
  return Pending(begun);
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
  return enqueue(share(*transport_, text, number_, sharing), data,
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
  FRUGAL_CHECK(root >= 0 && root < size_, "[broadcast] expected a root from 0 to {}, got {}",
               size_ - 1, root);
  if (!has_work("broadcast", x)) return {};
  x.bump_version();
  const Tensor data = on_host(x);
  const std::string text = text_of("broadcast", x, fmt::format(" from rank {}", root), what);
  return enqueue(
      distributed::broadcast(*transport_, text, number_, data.raw(), data.nbytes(), root), data,
      x.device() == kCpu || root == rank_ ? Tensor() : x, {});
}

void PeerCommunicator::abort(const std::string& message) { request_end(message, 1); }

void PeerCommunicator::abort(int status) { request_end("", status); }

void PeerCommunicator::request_end(const std::string& message, int status) {
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

// ---- In the thread of this class

void PeerCommunicator::serve() {
  while (true) {
    std::shared_ptr<Begun> begun;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || stopping_ || ending_; });
      if (ending_) end_job(last_words_, status_);
      if (queue_.empty()) return;
      begun = std::move(queue_.front());
      queue_.pop_front();
    }
    run(*begun);
    begun->collective_.reset();
    begun->ring_ = {};
    if (!begun->copied_to_.defined()) begun->data_ = {};
    const std::lock_guard lock(mutex_);
    begun->done_.store(true, std::memory_order_release);
    begun->finished_.notify_all();
  }
}

void PeerCommunicator::run(Begun& begun) {
  Collective& collective = *begun.collective_;
  const auto start = Clock::now();
  auto moved_at = start;
  int64_t passed = 0;
  try {
    while (!collective.advance()) {
      if (ending_) {
        const std::lock_guard lock(mutex_);
        end_job(last_words_, status_);
      }
      if (collective.passed() != passed) {
        passed = collective.passed();
        moved_at = Clock::now();
        continue;
      }
      const double still = seconds_since(moved_at), timeout = timeout_;
      if (timeout > 0 && still > timeout) {
        std::string whom;
        if (const auto ranks = collective.silent(); !ranks.empty())
          whom += ": nothing came from " + join(ranks);
        if (const auto ranks = collective.deaf(); whom.empty() && !ranks.empty())
          whom += ": nothing was taken by " + join(ranks);
        end_job(fmt::format("[distributed] waited {:.1f} seconds in {} (operation {}){}", still,
                            collective.text(), begun.number_, whom),
                1);
      }
      if (waiting_ == 0)
        std::this_thread::sleep_for(kNap);
      else if (still > kSpin)
        std::this_thread::sleep_for(kShortNap);
      else
        std::this_thread::yield();
    }
  } catch (const std::exception& error) {
    end_job(error.what(), 1);
  }
  begun.seconds_ = seconds_since(start);
}

void PeerCommunicator::end_job(const std::string& message, int status) {
  if (!message.empty()) {
    const std::string line = fmt::format("rank {}: {}\n", rank_, without_controls(message));
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  }
  transport_->abort(status);
  std::_Exit(status);
}

}  // namespace frugal::distributed
