#include "distributed/nccl.h"

#include "core/cuda/cuda_memory.h"
#include "core/log.h"

#ifdef FRUGAL_NCCL
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "core/cuda/cuda.h"
#include "core/dynamic_library.h"
#include "distributed/operation_text.h"
#include "ops/dense/copy.h"
#endif

namespace frugal::distributed {

#ifdef FRUGAL_NCCL
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks of the watch
constexpr int kLeastVersion = 21000;                   // 2.10: the first one that knows bf16

std::atomic<double>& timeout() {
  static std::atomic<double> seconds = 0;
  return seconds;
}

// The functions of the library, which is opened at the first use: so the program starts where it is
// missing.
struct Functions {
#ifdef FRUGAL_CUDA_EMULATOR
  DynamicLibrary library{{"libfrugal_emulated_nccl.so"}, "the tests name its folder"};
#else
  DynamicLibrary library{{"libnccl.so.2", std::string(FRUGAL_CUDA_LIBRARY_DIR "/libnccl.so.2")},
                         "NVIDIA's package libnccl2 has it, and LD_LIBRARY_PATH may name its "
                         "folder"};
#endif
#define FRUGAL_FUNCTION(name) decltype(&::name) name = library.function<decltype(&::name)>(#name)
  FRUGAL_FUNCTION(ncclAllGather);
  FRUGAL_FUNCTION(ncclAllReduce);
  FRUGAL_FUNCTION(ncclBroadcast);
  FRUGAL_FUNCTION(ncclCommDestroy);
  FRUGAL_FUNCTION(ncclCommGetAsyncError);
  FRUGAL_FUNCTION(ncclCommInitRank);
  FRUGAL_FUNCTION(ncclGetErrorString);
  FRUGAL_FUNCTION(ncclGetUniqueId);
  FRUGAL_FUNCTION(ncclGetVersion);
  FRUGAL_FUNCTION(ncclGroupEnd);
  FRUGAL_FUNCTION(ncclGroupStart);
  FRUGAL_FUNCTION(ncclRecv);
  FRUGAL_FUNCTION(ncclReduce);
  FRUGAL_FUNCTION(ncclReduceScatter);
  FRUGAL_FUNCTION(ncclSend);
#undef FRUGAL_FUNCTION
};
const Functions& api() {
  static const auto* one = new Functions;
  return *one;
}

std::string words_of(ncclResult_t status, const char* call) {
  return fmt::format("[nccl] {}: {}; NCCL_DEBUG=WARN in the environment makes NCCL say more", call,
                     api().ncclGetErrorString(status));
}

void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw Error(words_of(status, call));
}
#define FRUGAL_NCCL_CHECK(call) check(api().call, #call)

int version() {
  int number = 0;
  FRUGAL_NCCL_CHECK(ncclGetVersion(&number));
  return number;
}

std::string text_of_version(int number) {
  if (number < 10000)  // before 2.9
    return fmt::format("NCCL {}.{}.{}", number / 1000, number / 100 % 10, number % 100);
  return fmt::format("NCCL {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

// Why this rank cannot use NCCL; empty: it can.
std::string problem_here() {
  const char* const wish = std::getenv("FRUGAL_NCCL");
  if (wish != nullptr && std::string_view(wish) == "off")
    return "the environment has FRUGAL_NCCL=off";
  try {
    if (const int number = version(); number < kLeastVersion)
      return fmt::format("expected {} or newer, got {}", text_of_version(kLeastVersion),
                         text_of_version(number));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// A GPU among those of all machines. Containers of one machine have one boot_id.
std::string name_of_gpu(int index) {
  char bus[64] = {}, host[256] = {};
  FRUGAL_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), index));
  std::string machine;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine) || machine.empty()) {
    gethostname(host, sizeof(host) - 1);
    machine = host;
  }
  return fmt::format("{} of machine {}", bus, machine);
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    default:
      FRUGAL_ASSERT(dtype == DType::i64);
      return ncclInt64;
  }
}

ncclRedOp_t type_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::max:
      return ncclMax;
    case Reduction::min:
      break;
  }
  return ncclMin;
}

// Whether all shares have one size, as NCCL's own all-gather and reduce-scatter want it.
bool are_even(const Bounds& bounds) {
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    if (bounds[r + 1] - bounds[r] != bounds[1]) return false;
  return true;
}

// Calls inside become one operation.
template <class F>
void grouped(const F& calls) {
  FRUGAL_NCCL_CHECK(ncclGroupStart());
  calls();
  FRUGAL_NCCL_CHECK(ncclGroupEnd());
}

// An operation on the stream of NCCL. All functions but those of the watch are the program's.
class NcclOperation final : public Operation {
 public:
  NcclOperation(std::string text, int64_t number, Device device, std::vector<Tensor> tensors)
      : text_(std::move(text)), number_(number), device_(device), tensors_(std::move(tensors)) {}

  bool done() const override { return ended_.passed() && (!holds_ || resumed_.passed()); }
  void wait() override {
    if (waited_) return;
    waited_ = true;
    if (!ended_.passed()) {
      cuda::use(device_);
      holds_ = true;
      held_.record(cuda::stream());
      ended_.hold(cuda::stream());
      resumed_.record(cuda::stream());
    }
    // What comes next in the compute stream comes after the operation, also in the same memory.
    tensors_.clear();
  }
  double seconds() const override { return ended_.milliseconds_since(started_) / 1000; }
  double stalled() const override { return holds_ ? resumed_.milliseconds_since(held_) / 1000 : 0; }

 private:
  friend class Group;
  std::string text_;
  int64_t number_;
  Device device_;
  std::vector<Tensor> tensors_;
  cuda::Event started_{true}, ended_{true};  // recorded on the stream of NCCL
  cuda::Event held_{true}, resumed_{true};   // recorded on the compute stream, if it had to wait
  bool waited_ = false, holds_ = false;
  // The watch reads the members from here on.
  const Clock::time_point begun_ = Clock::now();
  std::atomic<bool> launched_ = false;
  Clock::time_point running_{};  // when it was first seen to run
  Pending header_;               // see with_nccl()
  Tensor lengths_, expected_;  // all_to_all: elements that others send, and that this rank expects
};

// The ranks as NCCL sees them: one communicator and its stream.
class Group {
 public:
  // Errors: what NCCL says.
  Group(CommunicatorPtr control, Device device)
      : control_(std::move(control)),
        device_(device),
        rank_(control_->rank()),
        size_(control_->size()) {
    watch_ = std::thread([this] { watch(); });
    try {
      const Phase phase(*this, "the start of NCCL");
      ncclUniqueId id{};
      std::string bytes;
      if (rank_ == 0) {
        FRUGAL_NCCL_CHECK(ncclGetUniqueId(&id));
        bytes.assign(id.internal, sizeof(id.internal));
      }
      bytes = control_->broadcast(bytes, 0, "the id of NCCL");
      FRUGAL_ASSERT(bytes.size() == sizeof(id.internal));
      bytes.copy(id.internal, sizeof(id.internal));
      cuda::use(device_);
      ncclComm_t made = nullptr;
      FRUGAL_NCCL_CHECK(ncclCommInitRank(&made, size_, id, rank_));
      const std::lock_guard lock(mutex_);
      comm_ = made;
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Group() {
    try {
      finish();
    } catch (const std::exception& error) {
      log().error(error.what());
    }
    stop();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_.get(); }

  // Begins an operation: `calls` queues it on stream().
  template <class F>
  Pending begin(std::string text, std::vector<Tensor> tensors, const F& calls) {
    check_device(tensors.front());
    const auto operation = prepare(std::move(text), std::move(tensors));
    const CategoryScope scope(Category::workspace);
    operation->header_ = control_->begin_all_gather(Tensor::zeros({size_}, DType::u8),
                                                    even_bounds(size_, size_), operation->text_);
    return launch(operation, calls);
  }
  // Begins an operation of all_to_all: the header that a rank sends to another one tells the length
  // of the share.
  template <class F>
  Pending begin_all_to_all(std::string text, std::vector<Tensor> tensors, const Bounds& send_bounds,
                           const Bounds& receive_bounds, const F& calls) {
    check_device(tensors.front());
    const auto operation = prepare(std::move(text), std::move(tensors));
    const auto lengths = [](const Bounds& bounds) {
      std::vector<int64_t> of_ranks;
      for (size_t r = 0; r + 1 < bounds.size(); ++r) of_ranks.push_back(bounds[r + 1] - bounds[r]);
      return Tensor::from(of_ranks, {static_cast<int64_t>(of_ranks.size())});
    };
    const CategoryScope scope(Category::workspace);
    operation->expected_ = lengths(receive_bounds);
    operation->lengths_ = Tensor::zeros({size_}, DType::i64);
    const Bounds each = even_bounds(size_, size_);
    operation->header_ = control_->begin_all_to_all(lengths(send_bounds), each, operation->lengths_,
                                                    each, operation->text_);
    return launch(operation, calls);
  }

  // For a process that ends with what was begun: CUDA answers no questions then.
  void stop_watching() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
  }

  // Waits for all operations and ends NCCL's communicator, as all ranks must do.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return;
    }
    const Phase phase(*this, "the end of NCCL");
    cuda::use(device_);
    FRUGAL_CUDA_CHECK(cudaStreamSynchronize(stream()));
    ncclComm_t mine = nullptr;
    {
      const std::lock_guard lock(mutex_);
      mine = std::exchange(comm_, nullptr);
      flying_.clear();
    }
    FRUGAL_NCCL_CHECK(ncclCommDestroy(mine));
  }

 private:
  using OperationPtr = std::shared_ptr<NcclOperation>;

  // While one lives, the program is in a call that waits for all ranks.
  class Phase {
   public:
    Phase(Group& group, const char* text) : group_(group) { set(text); }
    ~Phase() { set(""); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    void set(const char* text) {
      {
        const std::lock_guard lock(group_.mutex_);
        group_.phase_ = text;
        group_.phase_begun_ = Clock::now();
      }
      group_.changed_.notify_one();
    }
    Group& group_;
  };

  void check_device(const Tensor& x) const {
    FRUGAL_CHECK(x.device() == device_,
                 "[nccl] expected tensors of {}, as in the first operation, got {}", device_.str(),
                 describe(x));
  }

  OperationPtr prepare(std::string text, std::vector<Tensor> tensors) {
    cuda::use(device_);
    drop_ended();
    return std::make_shared<NcclOperation>(std::move(text), number_++, device_, std::move(tensors));
  }

  template <class F>
  Pending launch(const OperationPtr& operation, const F& calls) {
    {
      const std::lock_guard lock(mutex_);
      flying_.push_back(operation);
    }
    changed_.notify_one();
    cuda::Event ready;
    ready.record(cuda::stream());
    ready.hold(stream());
    operation->started_.record(stream());
    calls();
    operation->ended_.record(stream());
    operation->launched_ = true;
    return Pending(operation);
  }

  // Operations end in their order. Their tensors are released here, in the program's thread.
  void drop_ended() {
    std::vector<OperationPtr> ended;  // outlives the lock
    const std::lock_guard lock(mutex_);
    while (!flying_.empty() && flying_.front()->launched_ && flying_.front()->ended_.passed() &&
           flying_.front()->header_.done()) {
      ended.push_back(std::move(flying_.front()));
      flying_.pop_front();
    }
  }

  void stop() {
    stop_watching();
    if (watch_.joinable()) watch_.join();
  }

  // ---- In the thread of the watch

  void watch() {
    try {
      cuda::use(device_);
      std::unique_lock lock(mutex_);
      while (!stopping_) {
        if (flying_.empty() && phase_.empty())
          changed_.wait(lock);
        else
          changed_.wait_for(lock, kLook);
        look();
      }
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  void look() {
    const double limit = timeout();
    if (!phase_.empty()) check_time(phase_, phase_begun_, limit, "");
    if (comm_ == nullptr) return;
    ncclResult_t status = ncclSuccess;
    FRUGAL_NCCL_CHECK(ncclCommGetAsyncError(comm_, &status));
    for (const OperationPtr& operation : flying_) {
      check_lengths(*operation);
      if (operation->launched_ && operation->ended_.passed()) continue;
      const std::string text =
          fmt::format("{} (operation {} of NCCL)", operation->text_, operation->number_);
      if (status != ncclSuccess && status != ncclInProgress)
        fail(fmt::format("{}, in {}", words_of(status, "ncclCommGetAsyncError"), text));
      if (!operation->launched_) {
        check_time(text, operation->begun_, limit, ": it did not begin");
      } else if (operation->started_.passed()) {
        if (operation->running_ == Clock::time_point{}) operation->running_ = Clock::now();
        check_time(text, operation->running_, limit,
                   ": it runs on this GPU, and another GPU or the way to it does not answer");
      }
      break;  // those behind it wait for it
    }
  }

  void check_time(const std::string& text, Clock::time_point since, double limit,
                  const char* what) {
    if (const double waited = seconds_since(since); limit > 0 && waited > limit)
      fail(fmt::format("[distributed] waited {:.1f} seconds in {}{}", waited, text, what));
  }

  // Ranks that do not agree on the length of a share would wait for each other on the GPU.
  void check_lengths(NcclOperation& operation) {
    if (!operation.lengths_.defined() || !operation.header_.done()) return;
    for (int r = 0; r < size_; ++r) {
      const int64_t sent = operation.lengths_.data<int64_t>()[r],
                    expected = operation.expected_.data<int64_t>()[r];
      if (sent != expected && r != rank_)
        fail(
            fmt::format("[distributed] expected all ranks to do the same, got {}: rank {} sends "
                        "{} elements to rank {}, which expects {}",
                        operation.text_, r, sent, rank_, expected));
    }
  }

  // Ends the job. ncclCommAbort would let the GPU go on with wrong numbers before the process ends.
  [[noreturn]] void fail(const std::string& message) {
    control_->abort(message);
    std::abort();  // not reached: compilers do not see it
  }

  CommunicatorPtr control_;
  Device device_;
  int rank_, size_;
  cuda::Stream stream_;
  int64_t number_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OperationPtr> flying_;  // in the order in which they were begun
  ncclComm_t comm_ = nullptr;
  std::string phase_;
  Clock::time_point phase_begun_;
  bool stopping_ = false;
  std::thread watch_;
};

// What the channels of a communicator share.
struct Shared {
  CommunicatorPtr peers;  // communicator of the first channel
  bool even_alone = false;
  bool opened = false;           // `group` is what the ranks agreed on
  std::shared_ptr<Group> group;  // null: `peers` takes CUDA tensors, too
  int channels = 0;
};

std::weak_ptr<Group>& last_group() {
  static auto* group = new std::weak_ptr<Group>;
  return *group;
}

// An orderly end waits for what was begun: other ranks need this one's GPU. It is registered when
// CUDA is in use already, so it runs before CUDA ends.
void finish_at_exit(int status, void*) {
  const std::shared_ptr<Group> group = last_group().lock();
  if (group == nullptr) return;
  if (status != 0) return group->stop_watching();
  try {
    group->finish();
  } catch (const std::exception& error) {
    log().error(error.what());
  }
}

// Decides with all ranks whether NCCL serves them.
std::shared_ptr<Group> open(const CommunicatorPtr& peers, Device device) {
  cuda::use(device);
  cuda::stream();  // CUDA is in use before finish_at_exit() is registered
  const std::vector<std::string> problems =
      peers->all_gather(problem_here(), "whether there is NCCL");
  const std::vector<std::string> gpus =
      peers->all_gather(name_of_gpu(device.index), "the GPUs of all ranks");
  std::string why;
  for (size_t r = 0; r < problems.size() && why.empty(); ++r)
    if (!problems[r].empty()) why = fmt::format("on rank {} {}", r, problems[r]);
  for (size_t r = 0; r < gpus.size() && why.empty(); ++r)
    for (size_t other = 0; other < r; ++other)
      if (gpus[r] == gpus[other])
        why = fmt::format("ranks {} and {} share the GPU {}, and NCCL wants one for each", other, r,
                          gpus[r].substr(0, gpus[r].find(' ')));
  if (!why.empty()) {
    if (peers->rank() == 0)
      log().warn("[nccl] ranks exchange CUDA tensors through the memory of the host: {}", why);
    return nullptr;
  }
  auto group = std::make_shared<Group>(peers->channel(), device);
  if (peers->rank() == 0)
    log().info("ranks exchange CUDA tensors through {}", text_of_version(version()));
  static const int registered = on_exit(finish_at_exit, nullptr);
  static_cast<void>(registered);
  last_group() = group;
  return group;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(CommunicatorPtr peers, std::shared_ptr<Shared> shared)
      : peers_(std::move(peers)), shared_(std::move(shared)), number_(shared_->channels++) {}

  int rank() const override { return peers_->rank(); }
  int size() const override { return peers_->size(); }

  Pending begin_all_reduce(const Tensor& x, Reduction reduction, std::string what) override {
    Group* const group = group_for(x, reduction);
    if (group == nullptr) return peers_->begin_all_reduce(x, reduction, std::move(what));
    check_reducible("all_reduce", x);
    check_contiguous("all_reduce", x);
    x.bump_version();
    return group->begin(text("all_reduce", x, of(reduction), what), {x}, [&] {
      FRUGAL_NCCL_CHECK(ncclAllReduce(x.raw(), x.raw(), static_cast<size_t>(x.numel()),
                                      type_of(x.dtype()), type_of(reduction), group->comm(),
                                      group->stream()));
    });
  }

  Pending begin_reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction,
                               std::string what) override {
    Group* const group = group_for(x, reduction);
    if (group == nullptr)
      return peers_->begin_reduce_scatter(x, bounds, reduction, std::move(what));
    check_reducible("reduce_scatter", x);
    check_bounds("reduce_scatter", bounds, x.numel(), size());
    check_contiguous("reduce_scatter", x);
    x.bump_version();
    return group->begin(text("reduce_scatter", x, of(reduction), what), {x}, [&] {
      if (are_even(bounds)) {
        const Part mine = part(x, bounds, rank());
        FRUGAL_NCCL_CHECK(ncclReduceScatter(x.raw(), mine.data, mine.elements, type_of(x.dtype()),
                                            type_of(reduction), group->comm(), group->stream()));
        return;
      }
      grouped([&] {
        for (int r = 0; r < size(); ++r) {
          const Part share = part(x, bounds, r);
          if (share.elements == 0) continue;
          FRUGAL_NCCL_CHECK(ncclReduce(share.data, r == rank() ? share.data : nullptr,
                                       share.elements, type_of(x.dtype()), type_of(reduction), r,
                                       group->comm(), group->stream()));
        }
      });
    });
  }

  Pending begin_all_gather(const Tensor& x, const Bounds& bounds, std::string what) override {
    Group* const group = group_for(x);
    if (group == nullptr) return peers_->begin_all_gather(x, bounds, std::move(what));
    check_bounds("all_gather", bounds, x.numel(), size());
    check_contiguous("all_gather", x);
    x.bump_version();
    return group->begin(text("all_gather", x, "", what), {x}, [&] {
      if (are_even(bounds)) {
        const Part mine = part(x, bounds, rank());
        FRUGAL_NCCL_CHECK(ncclAllGather(mine.data, x.raw(), mine.bytes, ncclUint8, group->comm(),
                                        group->stream()));
        return;
      }
      grouped([&] {
        for (int r = 0; r < size(); ++r) {
          const Part share = part(x, bounds, r);
          if (share.elements == 0) continue;
          FRUGAL_NCCL_CHECK(ncclBroadcast(share.data, share.data, share.bytes, ncclUint8, r,
                                          group->comm(), group->stream()));
        }
      });
    });
  }

  Pending begin_broadcast(const Tensor& x, int root, std::string what) override {
    Group* const group = group_for(x);
    if (group == nullptr) return peers_->begin_broadcast(x, root, std::move(what));
    check_root(root, size());
    check_contiguous("broadcast", x);
    x.bump_version();
    const std::string how = fmt::format(" from rank {}", root);
    return group->begin(text("broadcast", x, how, what), {x}, [&] {
      FRUGAL_NCCL_CHECK(ncclBroadcast(x.raw(), x.raw(), static_cast<size_t>(x.nbytes()), ncclUint8,
                                      root, group->comm(), group->stream()));
    });
  }

  Pending begin_all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                           const Bounds& receive_bounds, std::string what) override {
    // A rank without elements takes part, too, because the others wait for its word.
    Group* const group = send.device().type == DeviceType::cuda ? agreed_group(send) : nullptr;
    if (group == nullptr)
      return peers_->begin_all_to_all(send, send_bounds, receive, receive_bounds, std::move(what));
    check_all_to_all(send, send_bounds, receive, receive_bounds, rank(), size());
    receive.bump_version();
    const auto r = static_cast<size_t>(rank());
    if (send_bounds[r + 1] > send_bounds[r])
      ops::copy_into(
          receive.view({receive.numel()}).slice(0, receive_bounds[r], receive_bounds[r + 1]),
          send.view({send.numel()}).slice(0, send_bounds[r], send_bounds[r + 1]));
    const auto calls = [&] {
      grouped([&] {
        for (int other = 0; other < size(); ++other) {
          if (other == rank()) continue;
          if (const Part out = part(send, send_bounds, other); out.elements > 0)
            FRUGAL_NCCL_CHECK(
                ncclSend(out.data, out.bytes, ncclUint8, other, group->comm(), group->stream()));
          if (const Part in = part(receive, receive_bounds, other); in.elements > 0)
            FRUGAL_NCCL_CHECK(
                ncclRecv(in.data, in.bytes, ncclUint8, other, group->comm(), group->stream()));
        }
      });
    };
    return group->begin_all_to_all(
        fmt::format("{}all_to_all of {}: {}", prefix(), frugal::name_of(send.dtype()), what),
        {send, receive}, send_bounds, receive_bounds, calls);
  }

  CommunicatorPtr channel() override {
    return std::make_shared<NcclCommunicator>(peers_->channel(), shared_);
  }
  [[noreturn]] void abort(const std::string& message) override {
    peers_->abort(message);
    std::abort();  // not reached: compilers do not see it
  }

  bool uses_nccl() const { return shared_->group != nullptr; }

 private:
  struct Part {
    void* data;
    size_t elements, bytes;
  };
  static Part part(const Tensor& x, const Bounds& bounds, int r) {
    const auto at = static_cast<size_t>(r);
    const auto size = static_cast<int64_t>(size_of(x.dtype()));
    const int64_t elements = bounds[at + 1] - bounds[at];
    return {static_cast<char*>(x.raw()) + bounds[at] * size, static_cast<size_t>(elements),
            static_cast<size_t>(elements * size)};
  }

  static std::string of(Reduction reduction) {
    return fmt::format(" ({})", distributed::name_of(reduction));
  }
  // The channel comes first, because a header has no room for the end of a long name.
  std::string prefix() const { return number_ == 0 ? "" : fmt::format("channel {}, ", number_); }
  std::string text(const char* op, const Tensor& x, const std::string& how,
                   const std::string& what) const {
    return prefix() + text_of(op, x, how, what);
  }

  // Null: `peers_` does it, or there is nothing to do, which it finds, too.
  Group* group_for(const Tensor& x) {
    return x.device().type == DeviceType::cuda && x.numel() > 0 ? agreed_group(x) : nullptr;
  }
  Group* group_for(const Tensor& x, Reduction reduction) {
    return reduction == Reduction::sum || x.dtype() == DType::i64 ? group_for(x) : nullptr;
  }
  Group* agreed_group(const Tensor& x) {
    if (size() == 1 && !shared_->even_alone) return nullptr;
    if (!shared_->opened) {
      shared_->group = open(shared_->peers, x.device());
      shared_->opened = true;
    }
    return shared_->group.get();
  }

  CommunicatorPtr peers_;
  std::shared_ptr<Shared> shared_;
  int number_;  // number of the channel
};

}  // namespace

CommunicatorPtr with_nccl(CommunicatorPtr peers, bool even_alone) {
  auto shared = std::make_shared<Shared>();
  shared->peers = peers;
  shared->even_alone = even_alone;
  return std::make_shared<NcclCommunicator>(std::move(peers), std::move(shared));
}

bool uses_nccl(const Communicator& communicator) {
  const auto* const nccl = dynamic_cast<const NcclCommunicator*>(&communicator);
  return nccl != nullptr && nccl->uses_nccl();
}

void set_nccl_timeout(double seconds) { timeout() = seconds; }

std::string nccl_library() {
  try {
    return text_of_version(version());
  } catch (const Error&) {
    return {};
  }
}

#else

CommunicatorPtr with_nccl(CommunicatorPtr peers, bool) {
  if (peers->rank() == 0 && peers->size() > 1 && cuda::device_count() > 0)
    log().info(
        "ranks exchange CUDA tensors through the memory of the host: this program was built "
        "without NCCL's nccl.h");
  return peers;
}

bool uses_nccl(const Communicator&) { return false; }

void set_nccl_timeout(double) {}

std::string nccl_library() { return {}; }

#endif

}  // namespace frugal::distributed
