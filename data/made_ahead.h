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

// begin(number) prepares a job on the consumer's thread. Workers do its parts, as many at once as
// there are workers: make(number, job, {part, parts}). Then finish(number, job) completes it on the
// worker that did the last part. What both read beside the job must not change before drain(). So
// all workers are busy with a single job in advance.
// Thread safety: one consumer.
template <class Job>
class MadeAhead {
 public:
  using Begin = std::function<Job(int64_t number)>;
  struct Part {
    int64_t part = 0, parts = 1;
    // This part's share of the numbers from 0 to before `count`.
    int64_t begin(int64_t count) const { return count * part / parts; }
    int64_t end(int64_t count) const { return count * (part + 1) / parts; }
  };
  using Make = std::function<void(int64_t number, Job& job, const Part& part)>;
  using Finish = std::function<void(int64_t number, Job& job)>;

  // Without threads take() does the job itself, as one part. `most`: jobs in advance. finish: may
  // be empty. Errors: std::system_error, the system starts no more threads.
  MadeAhead(int threads, int64_t most, Begin begin, Make make, Finish finish = {})
      : begin_(std::move(begin)),
        make_(std::move(make)),
        finish_(std::move(finish)),
        most_(most),
        parts_(std::max(threads, 1)) {
    try {
      for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {  // a thread that runs must end before its object does
      end();
      throw;
    }
  }
  ~MadeAhead() { end(); }
  MadeAhead(const MadeAhead&) = delete;
  MadeAhead& operator=(const MadeAhead&) = delete;

  // Job `number`, and then those behind it are under way, below `end`. A number that does not
  // follow the one before it drops what was made. Errors: what begin(), make() of the first part
  // that threw, or finish() threw. A further call with this number throws what a worker threw
  // again.
  Job take(int64_t number, int64_t end) {
    if (workers_.empty()) {
      Job job = begin_(number);
      make_(number, job, Part());
      if (finish_) finish_(number, job);
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
    int64_t begun = 0, made = 0;  // parts
    bool done = false;
    std::exception_ptr error;
    int64_t part_of_error = 0;
    void fails(std::exception_ptr with, int64_t part) {
      if (error == nullptr || part < part_of_error) error = std::move(with), part_of_error = part;
    }
  };

  void schedule(int64_t until) {
    while (scheduled_ < until) {
      auto task = std::make_shared<Task>();
      task->number = scheduled_;
      task->job = begin_(scheduled_);
      ++scheduled_;
      in_flight_.push_back(task);
      {
        const std::lock_guard lock(mutex_);
        queue_.push_back(task);
      }
      work_ready_.notify_all();
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_ready_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void work() {
    use_all_cores();
    std::unique_lock lock(mutex_);
    while (true) {
      work_ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const std::shared_ptr<Task> task = queue_.front();
      const Part part{task->begun++, parts_};
      if (task->begun == parts_) queue_.pop_front();
      ++running_;
      try_unlocked(lock, *task, part.part, [&] { make_(task->number, task->job, part); });
      if (++task->made == parts_) {
        if (finish_ && task->error == nullptr)
          try_unlocked(lock, *task, parts_, [&] { finish_(task->number, task->job); });
        task->done = true;
      }
      --running_;
      done_.notify_all();
    }
  }

  template <class F>
  static void try_unlocked(std::unique_lock<std::mutex>& lock, Task& task, int64_t part,
                           const F& f) {
    lock.unlock();
    std::exception_ptr error;
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) task.fails(std::move(error), part);
  }

  Begin begin_;
  Make make_;
  Finish finish_;
  int64_t most_, parts_;
  // Used by the consumer alone: what was begun and not taken, in order.
  std::deque<std::shared_ptr<Task>> in_flight_;
  int64_t scheduled_ = 0;

  std::mutex mutex_;  // guards the members below, and all of the tasks but their jobs
  std::condition_variable work_ready_, done_;
  std::deque<std::shared_ptr<Task>> queue_;
  int running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace frugal::data
