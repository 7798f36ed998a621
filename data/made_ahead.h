// MadeAhead: numbered jobs that worker threads do in advance, taken in their order. Internal.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/cores.h"

namespace frugal::data {

// begin(number) prepares a job on the consumer's thread, make(number, job) does it, on a worker.
// What `make` reads beside the job must not change before drain().
// Thread safety: one consumer.
template <class Job>
class MadeAhead {
 public:
  using Begin = std::function<Job(int64_t number)>;
  using Make = std::function<void(int64_t number, Job& job)>;

  // Without threads take() does the job itself. `most`: jobs in advance.
  MadeAhead(int threads, int64_t most, Begin begin, Make make)
      : begin_(std::move(begin)), make_(std::move(make)), most_(most) {
    for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~MadeAhead() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_ready_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  MadeAhead(const MadeAhead&) = delete;
  MadeAhead& operator=(const MadeAhead&) = delete;

  // Job `number`, and then those behind it are under way, below `end`. A number that does not
  // follow the one before it drops what was made. Errors: what begin() or make() threw. A further
  // call with this number throws what make() threw again.
  Job take(int64_t number, int64_t end) {
    if (workers_.empty()) {
      Job job = begin_(number);
      make_(number, job);
      return job;
    }
    if (!in_flight_.empty() && in_flight_.front()->number != number) drain();
    if (in_flight_.empty()) scheduled_ = number;
    schedule(std::min(end, number + 1 + most_));
    const std::shared_ptr<Task> task = in_flight_.front();
    {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [&] { return task->done; });
    }
    if (task->error) std::rethrow_exception(task->error);
    in_flight_.pop_front();
    return std::move(task->job);
  }

  // Drops all jobs that were not taken, and waits for the workers.
  void drain() {
    std::unique_lock lock(mutex_);
    queue_.clear();
    done_.wait(lock, [&] { return running_ == 0; });
    in_flight_.clear();
  }

 private:
  struct Task {
    int64_t number = 0;
    Job job;
    bool done = false;
    std::exception_ptr error;
  };

  void schedule(int64_t until) {
    while (scheduled_ < until) {
      auto task = std::make_shared<Task>(Task{scheduled_, begin_(scheduled_), false, nullptr});
      ++scheduled_;
      in_flight_.push_back(task);
      {
        const std::lock_guard lock(mutex_);
        queue_.push_back(task);
      }
      work_ready_.notify_one();
    }
  }

  void work() {
    use_all_cores();
    std::unique_lock lock(mutex_);
    while (true) {
      work_ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const std::shared_ptr<Task> task = queue_.front();
      queue_.pop_front();
      ++running_;
      lock.unlock();
      std::exception_ptr error;
      try {
        make_(task->number, task->job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      --running_;
      task->error = error;
      task->done = true;
      done_.notify_all();
    }
  }

  Begin begin_;
  Make make_;
  int64_t most_;
  // Used by the consumer alone: what was begun and not taken, in order.
  std::deque<std::shared_ptr<Task>> in_flight_;
  int64_t scheduled_ = 0;

  std::mutex mutex_;  // guards the members below, and `done` and `error` of the tasks
  std::condition_variable work_ready_, done_;
  std::deque<std::shared_ptr<Task>> queue_;
  int running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace frugal::data
