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

// The thread that makes all calls of a transport. Operations of one channel run one after the
// other, in the order in which they were begun. The thread sleeps while there is none. While an
// operation goes on and the program computes, the thread moves what has come and sleeps in between,
// so that it takes no core from the program. While the program waits, it looks for messages all the
// time at first, and then with short sleeps.
class PeerThread {
 public:
  // `connect` and all calls of its result run in the thread.  Errors: what `connect` throws.
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
  // Prints the message, unless it is empty, and ends the job.
  [[noreturn]] void abort(const std::string& message, int status);
  void stop();  // ends what was begun, and the transport; nothing can be begun after that
  bool is_this() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  friend class PeerOperation;
  using Active = std::array<std::shared_ptr<PeerOperation>, kChannels>;
  void serve();
  bool fetch(Active& active);
  void finish(PeerOperation& operation);
  void check_time(const PeerOperation& operation);
  [[noreturn]] void end_job(const std::string& message, int status);

  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<std::shared_ptr<PeerOperation>>, kChannels> queues_;  // by channel
  std::array<bool, kChannels> open_{};                                        // channels
  bool stopping_ = false;
  std::atomic<bool> news_ = false;    // something was begun
  std::atomic<bool> ending_ = false;  // the two below are set
  std::string last_words_;
  int status_ = 1;
  std::atomic<int> waiting_ = 0;  // threads in Operation::wait()
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
