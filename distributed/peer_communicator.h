// PeerCommunicator: a Communicator on a Transport. One thread makes all calls of the transport.
// Internal to distributed.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "distributed/collectives.h"

namespace frugal::distributed {

// Operations run one after the other, in the order in which they were begun. The thread sleeps
// while there is none. While an operation goes on and the program computes, the thread moves what
// has come and sleeps in between, so that it takes no core from the program. While the program
// waits, it looks for messages all the time at first, and then with short sleeps.
class PeerCommunicator final : public Communicator {
 public:
  // `connect` and all calls of its result run in the thread.  Errors: what `connect` throws.
  using Connect = std::function<std::unique_ptr<Transport>()>;
  explicit PeerCommunicator(Connect connect, const Options& options = {});
  ~PeerCommunicator() override { stop(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Pending begin_all_reduce(const Tensor& x, Reduction reduction, std::string what) override;
  Pending begin_reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction,
                               std::string what) override;
  Pending begin_all_gather(const Tensor& x, const Bounds& bounds, std::string what) override;
  Pending begin_broadcast(const Tensor& x, int root, std::string what) override;
  [[noreturn]] void abort(const std::string& message) override;
  [[noreturn]] void abort(int status);  // says nothing

  void set_options(const Options& options);
  void stop();  // ends what was begun, and the transport; nothing can be begun after that
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  class Begun;
  Pending begin_sharing(const Tensor& x, Sharing sharing, const std::string& text);
  Pending enqueue(std::unique_ptr<Collective> collective, Tensor data, Tensor copied_to,
                  Tensor ring);
  bool has_work(const char* op, const Tensor& x) const;
  void serve();
  void run(Begun& begun);
  [[noreturn]] void request_end(const std::string& message, int status);
  [[noreturn]] void end_job(const std::string& message, int status);

  int rank_ = 0, size_ = 1;
  std::unique_ptr<Transport> transport_;
  int64_t number_ = 0;  // of the next operation
  Tensor ring_;         // the terms of the other ranks; operations run one after the other
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Begun>> queue_;
  bool stopping_ = false;
  std::atomic<bool> ending_ = false;  // the two below are set
  std::string last_words_;
  int status_ = 1;
  std::atomic<int> waiting_ = 0;  // threads in Operation::wait()
  std::atomic<double> timeout_ = 0;
  std::thread thread_;
};

}  // namespace frugal::distributed
