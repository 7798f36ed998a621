// Communicator: the ranks of a job that train one network together. A rank is one process. All
// ranks begin the same operations of a communicator in the same order.
//
// Results have the same bits on all ranks: each element is reduced on one rank, which adds the
// terms in the order of the ranks, and is then copied to the others. So they depend neither on
// timing nor on the transport. Sums of CUDA tensors that go through NCCL (distributed/nccl.h) have
// the same bits on all ranks, too, but NCCL chooses the order of the terms. They are equal from run
// to run on the same machines with the same version of NCCL.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace frugal::distributed {

class Communicator;

enum class Reduction : uint8_t { sum, max, min };  // max and min: NaN if any term is NaN

// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};
// Who owns which elements of a tensor, seen as one row: rank r owns [bounds[r], bounds[r + 1]).
// size() + 1 numbers in ascending order, from 0 to numel().
using Bounds = std::vector<int64_t>;
// Shares that differ by at most one element.
Bounds even_bounds(int64_t elements, int ranks);
// How many elements this rank sends to others in an all_reduce of so many: the terms of their
// shares, and its own sums to each of them.
int64_t sent_elements(int64_t elements, const Communicator& communicator);
// Errors: bounds that are not `ranks` + 1 numbers in ascending order from 0 to `elements`. `op` is
// for the message.
void check_bounds(const char* op, const Bounds& bounds, int64_t elements, int ranks);

// What an operation that was begun is doing.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;
  // The time from the first message of the operation to its end.  REQUIRES: done()
  virtual double seconds() const = 0;
  // How long a GPU waited for it, if wait() does not wait itself.  REQUIRES: done()
  virtual double stalled() const { return 0; }
};

// The handle of an operation that was begun. A handle that is dropped takes nothing back: the
// operation goes on.
class Pending {
 public:
  Pending() = default;  // the handle of an operation that had nothing to do
  explicit Pending(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  bool done() const { return operation_ == nullptr || operation_->done(); }
  // Returns when the result is in its place. For a CUDA tensor this may be in the order of the
  // compute stream: what is queued there later sees the result, and the host does not wait.
  void wait() {
    if (operation_ != nullptr) operation_->wait();
  }
  // How long it took, without the time in the queue.  REQUIRES: done().
  double seconds() const { return operation_ == nullptr ? 0 : operation_->seconds(); }
  double stalled() const { return operation_ == nullptr ? 0 : operation_->stalled(); }

 private:
  std::shared_ptr<Operation> operation_;
};

// All operations but all_to_all work in place. They take contiguous tensors and raise the versions
// of those that they write when they begin. They do nothing where there is one rank, nothing to
// move, or the device is `meta`. Until wait() has returned, nobody else may read or write the
// tensor. `what` names the data in messages.
// Reductions take f32, f64, i64 and bf16 (added in f32, rounded once); the others take any dtype.
// CUDA tensors go through NCCL (distributed/nccl.h), which rounds sums of bf16 after each term.
// Where there is no NCCL, they go through host memory: an operation begins when the work before it
// has ended, and wait() copies the result back.
// Errors: not contiguous, another dtype, bounds that do not fit; ranks that begin different
// operations, a rank that does not answer in time: these end the whole job with a message of each
// rank that notices.
// Thread safety: one thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // 0 to size() - 1
  virtual int size() const = 0;

  // x becomes the reduction of all ranks' x.
  virtual Pending begin_all_reduce(const Tensor& x, Reduction reduction, std::string what) = 0;
  // This rank's share of x becomes the reduction of all ranks' x. The other elements keep the terms
  // of this rank.
  virtual Pending begin_reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction,
                                       std::string what) = 0;
  // Each share of x becomes what its owner has there.
  virtual Pending begin_all_gather(const Tensor& x, const Bounds& bounds, std::string what) = 0;
  // x becomes the x of `root`.
  virtual Pending begin_broadcast(const Tensor& x, int root, std::string what) = 0;
  // Share r of `send` goes to rank r, and share r of `receive` becomes what rank r sent. The two
  // tensors have one dtype and one device and do not overlap. With one rank the share is copied.
  // Until wait() has returned, nobody may write `send`.
  // Errors: as above; a share that has another length on the rank at its other end ends the job.
  // This one serves a rank alone and `meta`; a communicator that moves data overrides it.
  virtual Pending begin_all_to_all(const Tensor& send, const Bounds& send_bounds,
                                   const Tensor& receive, const Bounds& receive_bounds,
                                   std::string what);
  // A communicator of these ranks with an order of operations of its own: operations of two
  // channels do not wait for each other. Operations on CUDA tensors have one order for all
  // channels, because NCCL may use one stream for them. All ranks make and drop their channels in
  // the same order.  Errors: more than 7 of them at a time.  REQUIRES: a channel that is dropped
  // has no operation under way.
  virtual std::shared_ptr<Communicator> channel() = 0;
  // Prints "rank R: message" and ends all ranks with exit status 1.
  [[noreturn]] virtual void abort(const std::string& message) = 0;

  // These functions begin an operation and wait until it is done.
  void all_reduce(const Tensor& x, Reduction reduction = Reduction::sum, std::string what = {});
  double all_reduce(double value, Reduction reduction = Reduction::sum, std::string what = {});
  void reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction = Reduction::sum,
                      std::string what = {});
  void all_gather(const Tensor& x, const Bounds& bounds, std::string what = {});
  void all_gather(const Tensor& x, std::string what = {});  // even_bounds()
  // The texts of all ranks, by rank. They may have different lengths and hold any bytes.
  std::vector<std::string> all_gather(std::string_view bytes, std::string what = {});
  void broadcast(const Tensor& x, int root = 0, std::string what = {});
  void all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                  const Bounds& receive_bounds, std::string what = {});
  std::string broadcast(std::string_view bytes, int root = 0, std::string what = {});
  void barrier(std::string what = {});  // returns when all ranks have come to it
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

// The communicator of a process that trains alone: rank 0 of 1.
CommunicatorPtr alone();

// How gradients are added up in parts (gradient_buckets.h).
struct BucketOptions {
  // A bucket takes gradients until it has so many bytes. The first one is smaller, so that
  // something is on the way soon.
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 25 << 20;
  // Buckets with owners: while the sums of more bytes than these are being made, the backward pass
  // waits.
  int64_t window = 50 << 20;
};

struct Options {
  // An operation that takes longer ends the job: some rank has died or hangs. In seconds; 0: no
  // limit.
  double timeout = 600;
};

// What the program that started this process says: mpirun of Open MPI, of other MPIs (PMI), or
// srun.
struct Launch {
  int ranks = 1;
  // The environment variable that tells the number of ranks; empty: there is none.
  std::string variable = {};
  int rank = 0;
  int on_host = 1;       // ranks on this machine, as far as they are known
  int rank_on_host = 0;  // the place of this rank among them
};
Launch launch();  // Errors: such a variable that is not a number

// The communicator of all processes that mpirun or srun started together, else alone(). Later calls
// give the same one, with the new options. A process that ends with another status than 0 ends the
// whole job.
// Errors: several ranks, and a build without MPI, or an MPI that cannot reach the other ranks.
CommunicatorPtr from_environment(const Options& options = {});

// Says that this process ends because all ranks have agreed to end, and returns when all others say
// so, too. Then it may end with any status, and the others end in their own time: what they print
// is not lost. Does nothing in a process that trains alone.
void end_together();

// Rank 0 of so many ranks that are not there, for plans on `meta`: operations do nothing, and what
// ranks tell each other is taken to be equal on all of them.
CommunicatorPtr imagined(int ranks);

// What MPI the program was built with, such as "Open MPI 4.1.4"; empty: none.
std::string mpi_library();
// What NCCL the program finds for CUDA tensors, such as "NCCL 2.28.9"; empty: none.
std::string nccl_library();

}  // namespace frugal::distributed
