// PeerCommunicator: a Communicator on a Transport. Internal to distributed.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "distributed/collectives.h"

namespace frugal::distributed {

// An operation of a PeerCommunicator, from its begin to its end.
class PeerOperation;

// The owner of a transport and the thread that moves messages while the program computes.
// Operations of one channel run one after the other, in the order in which they were begun. The
// thread sleeps while there is none. While an operation goes on and the program computes, the
// thread moves what has come and sleeps in between, so that it takes no core from the program. A
// program that waits for an operation moves the messages itself, because waking a thread takes
// longer than a small message. It looks for them all the time at first, and then with short sleeps.
// Calls of the transport come from both threads, never at the same time.
class PeerThread {
 public:
  // `connect` runs in the thread, and its result ends there.  Errors: what `connect` throws.
  using Connect = std::function<std::unique_ptr<Transport>()>;
  explicit PeerThread(Connect connect, const Options& options = {});
  ~PeerThread() { stop(); }
  PeerThread(const PeerThread&) = delete;
  PeerThread& operator=(const PeerThread&) = delete;

  Transport& transport() { return *transport_; }
  void set_options(const Options& options);
  int open_channel();  // its number, the lowest that is free.  Errors: more than kChannels
  void close_channel(int channel);
  void begin(int channel, std::shared_ptr<PeerOperation> operation);
  void wait(const PeerOperation& operation);
  // Prints the message, unless it is empty, and ends the job.
  [[noreturn]] void abort(const std::string& message, int status);
  void stop();  // ends what was begun, and the transport; nothing can be begun after that
  bool is_ending() const { return ending_job_; }

 private:
  // What a look for messages found.
  struct Look {
    bool moved = false;
    double still = 0;  // seconds since the last message of the operation that is looked at last
  };
  void serve();
  bool wait_for_work();
  Look look();
  void take_begun();
  void finish(PeerOperation& operation);
  void check_time(const PeerOperation& operation);
  [[noreturn]] void end_job(const std::string& message, int status);

  std::mutex moving_;  // whoever holds it may use the two below
  std::unique_ptr<Transport> transport_;
  std::array<std::shared_ptr<PeerOperation>, kChannels> active_;  // by channel

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<std::shared_ptr<PeerOperation>>, kChannels> queues_;  // by channel
  std::array<bool, kChannels> open_{};                                        // channels
  int64_t unfinished_ = 0;                                                    // operations
  int waiting_ = 0;                                                           // threads in wait()
  bool stopping_ = false;
  bool ending_ = false;  // the two below are set
  std::string last_words_;
  int status_ = 1;

  std::atomic<bool> news_ = false;        // something was begun
  std::atomic<bool> ending_job_ = false;  // end_job() was called
  std::atomic<double> timeout_ = 0;
  std::thread thread_;
};

class PeerCommunicator final : public Communicator {
 public:
  explicit PeerCommunicator(std::shared_ptr<PeerThread> thread);  // opens a channel
  ~PeerCommunicator() override { thread_->close_channel(next_.channel); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Pending begin_all_reduce(const Tensor& x, Reduction reduction, std::string what) override;
  Pending begin_reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction,
                               std::string what) override;
  Pending begin_all_gather(const Tensor& x, const Bounds& bounds, std::string what) override;
  Pending begin_broadcast(const Tensor& x, int root, std::string what) override;
  Pending begin_all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                           const Bounds& receive_bounds, std::string what) override;
  CommunicatorPtr channel() override { return std::make_shared<PeerCommunicator>(thread_); }
  [[noreturn]] void abort(const std::string& message) override;

 private:
  Pending begin_sharing(const Tensor& x, Sharing sharing, const std::string& text);
  Pending enqueue(std::unique_ptr<Collective> collective, const Tensor& data, const Tensor& x,
                  const Tensor& kept);
  bool has_work(const char* op, const Tensor& x) const;

  std::shared_ptr<PeerThread> thread_;
  int rank_, size_;
  Tags next_;
  Tensor ring_;  // the terms of the other ranks; operations run one after the other
};

}  // namespace frugal::distributed
