// The only file that knows MPI. Ranks talk through messages between two of them
// (distributed/collectives.h), and not through MPI's own reductions: MPI does not promise that all
// ranks get the same bits, that a sum is equal from run to run, or a sum of bf16.
#include "distributed/communicator.h"
#include "distributed/mpi_all_reduce.h"

#ifdef FRUGAL_MPI
#include <mpi.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <cstdlib>

#include "core/stopwatch.h"
#include "distributed/peer_communicator.h"
#ifdef FRUGAL_CUDA
#include "distributed/nccl.h"
#endif
#endif

namespace frugal::distributed {

#ifdef FRUGAL_MPI
namespace {

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(fmt::format("[distributed] {} failed: {}", call, text));
}

// MPI from begin to end. A program that uses MPI itself has begun it before, and ends it.
class Library {
 public:
  Library() {
    int before = 0, level = 0;
    MPI_Initialized(&before);
    if (before == 0) {
#ifdef __SANITIZE_ADDRESS__
      // Open MPI unloads the plugins that it does not choose, and forgets what they allocated.
      const __lsan::ScopedDisabler others_leak;
#endif
      // Two threads make calls, never at the same time (distributed/peer_communicator.h).
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
      ours_ = true;
    } else {
      MPI_Query_thread(&level);
      FRUGAL_CHECK(level == MPI_THREAD_MULTIPLE,
                   "[distributed] expected a program that calls MPI_Init_thread itself to ask for "
                   "MPI_THREAD_MULTIPLE, got level {}",
                   level);
    }
  }
  ~Library() {
    if (!ours_) return;
#ifdef __SANITIZE_ADDRESS__
    // At its end, Open MPI does so with all plugins, so leaks are looked for before.
    __lsan_do_leak_check();
#endif
    MPI_Finalize();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  bool ours_ = false;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Launch& launch) {
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    FRUGAL_CHECK(size_ == launch.ranks,
                 "[distributed] expected {} ranks, as {} of the environment says, but {} reached "
                 "{}. Start the program with the mpirun of that MPI, or with `srun --mpi=pmix`",
                 launch.ranks, launch.variable, mpi_library(),
                 size_ == 1 ? "no other process" : fmt::format("{} ranks", size_));
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  }
  ~MpiTransport() override {
    if (world_ != MPI_COMM_NULL) MPI_Comm_free(&world_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Request send(int to, int tag, const void* data, int64_t bytes) override {
    Slot slot;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, world_, &slot.request),
          "MPI_Isend");
    return keep(slot);
  }
  Request receive(int from, int tag, void* data, int64_t bytes) override {
    Slot slot;
    slot.receives = bytes;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, world_, &slot.request),
          "MPI_Irecv");
    return keep(slot);
  }
  bool test(Request request) override {
    Slot& slot = slots_[static_cast<size_t>(request)];
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&slot.request, &done, &status), "MPI_Test");
    if (done == 0) return false;
    if (slot.receives >= 0) {
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      FRUGAL_CHECK(bytes == slot.receives,
                   "[distributed] expected a message of {} bytes from rank {}, got {}: the ranks "
                   "cut a tensor into different shares",
                   slot.receives, status.MPI_SOURCE, bytes);
    }
    free_.push_back(request);
    return true;
  }
  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t receives = -1;  // bytes; -1: it sends
  };
  Request keep(const Slot& slot) {
    if (free_.empty()) {
      slots_.push_back(slot);
      return static_cast<Request>(slots_.size()) - 1;
    }
    const Request request = free_.back();
    free_.pop_back();
    slots_[static_cast<size_t>(request)] = slot;
    return request;
  }

  Library library_;
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<Slot> slots_;
  std::vector<Request> free_;
};

// Lives until the process ends, because MPI cannot begin a second time.
struct Job {
  std::shared_ptr<PeerThread> thread;
  CommunicatorPtr communicator;
  bool ends_together = false;
};
Job& job() {
  static auto& job = *new Job();
  return job;
}

// An orderly end waits for the other ranks. A failed process would wait for ever for ranks that
// wait for its messages, so it ends the job.
void end(int status, void*) {
  PeerThread& thread = *job().thread;
  if (thread.is_ending()) return;
  if (status != 0 && !job().ends_together) thread.abort("", status);
  thread.stop();
}

}  // namespace

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string_view whole(text, static_cast<size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

double seconds_of_mpi_all_reduce(const Tensor& x) {
  FRUGAL_CHECK(x.dtype() == DType::f32 && x.device() == kCpu && x.is_contiguous(),
               "[mpi_all_reduce] expected a contiguous f32 tensor on the cpu, got {}", describe(x));
  FRUGAL_CHECK(x.numel() < int64_t{1} << 31,
               "[mpi_all_reduce] expected less than 2^31 elements, got {}", x.numel());
  FRUGAL_CHECK(job().thread != nullptr,
               "[mpi_all_reduce] expected several ranks, which mpirun starts, got one");
  float* const values = x.mut<float>();
  double seconds = 0;
  {
    const Stopwatch watch(seconds);
    check(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(x.numel()), MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD),
          "MPI_Allreduce");
  }
  return seconds;
}

CommunicatorPtr from_environment(const Options& options) {
  const Launch launched = launch();
  if (launched.ranks == 1) return alone();
  if (job().thread == nullptr) {
    job().thread = std::make_shared<PeerThread>(
        [launched] { return std::make_unique<MpiTransport>(launched); }, options);
    job().communicator = std::make_shared<PeerCommunicator>(job().thread);
    on_exit(end, nullptr);
#ifdef FRUGAL_CUDA
    job().communicator = with_nccl(job().communicator);
#endif
  } else {
    job().thread->set_options(options);
  }
#ifdef FRUGAL_CUDA
  set_nccl_timeout(options.timeout);
#endif
  return job().communicator;
}

void end_together() {
  if (job().communicator == nullptr) return;
  job().communicator->barrier("the end of all ranks");
  job().ends_together = true;
}

#else

std::string mpi_library() { return {}; }

double seconds_of_mpi_all_reduce(const Tensor&) {
  throw Error("[mpi_all_reduce] expected a program that was built with MPI");
}

CommunicatorPtr from_environment(const Options&) {
  const Launch launched = launch();
  FRUGAL_CHECK(
      launched.ranks == 1,
      "[distributed] expected one process, because this program was built without MPI, got "
      "one of {} ({} of the environment). Install libopenmpi-dev and build again",
      launched.ranks, launched.variable);
  return alone();
}

void end_together() {}

#endif

}  // namespace frugal::distributed
