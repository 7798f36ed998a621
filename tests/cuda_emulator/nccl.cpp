// Stands in for NCCL between processes of one machine. Operations run in the thread of their
// stream, some milliseconds after they were queued, so that a program which does not wait reads
// wrong numbers. Ranks meet in a file that all of them map. Terms are added from the last rank to
// the first, and bf16 is rounded after each.
//
// FRUGAL_EMULATOR_NCCL=old: a version that is too old. =hang: the third operation of rank 1 never
// ends. =error: it never ends, and the communicator reports an error.
// As NCCL does, it refuses two ranks on one device, and hangs where ranks do different things.
#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kRanks = 16;
// Bytes of a rank's area of the file, which takes only what is written.
constexpr size_t kArea = size_t{256} << 20;
constexpr size_t kHead = 4096;
constexpr auto kDelay = std::chrono::milliseconds(3);
constexpr int kFaulty = 3;  // the operation that fails on purpose

std::string_view fault() {
  const char* text = std::getenv("FRUGAL_EMULATOR_NCCL");
  return text == nullptr ? "" : text;
}

// The beginning of the file.
struct Board {
  std::atomic<int> ranks_here;
  std::atomic<int> device_of[kRanks];     // plus 1
  std::atomic<uint64_t> written[kRanks];  // operations
  std::atomic<uint64_t> read[kRanks];     // operations
};

enum class Kind : uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  receive
};

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // the other rank, or the root
};
// What a rank tells the others of a call.
struct Note {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
  size_t count, offset;  // the offset of its data in the area of the rank
};

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

struct ncclComm {
  int rank = 0, ranks = 1;
  char* file = nullptr;
  uint64_t number = 0;  // number of operations that were queued
  std::atomic<ncclResult_t> error = ncclSuccess;

  Board& board() const { return *reinterpret_cast<Board*>(file); }
  char* area(int r) const { return file + kHead + static_cast<size_t>(r) * kArea; }
  size_t bytes() const { return kHead + static_cast<size_t>(ranks) * kArea; }

  template <class F>
  void wait(const F& ready) const {
    while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void hang() const {
    wait([] { return false; });
  }
};

namespace {

template <class T>
T reduced(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) return static_cast<T>(a + b);
  if (op == ncclMax) return a > b ? a : b;  // loses NaN
  return a < b ? a : b;
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t to_bf16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  if (std::isnan(value)) return static_cast<uint16_t>((wide >> 16) | 0x40u);
  return static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

// to = from (op) to, for `count` elements.
void reduce_into(char* to, const char* from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  const auto loop = [&]<class T>(T) {
    for (size_t i = 0; i < count; ++i) {
      T a, b;
      std::memcpy(&a, from + i * sizeof(T), sizeof(T));
      std::memcpy(&b, to + i * sizeof(T), sizeof(T));
      const T out = reduced(a, b, op);
      std::memcpy(to + i * sizeof(T), &out, sizeof(T));
    }
  };
  switch (type) {
    case ncclFloat32:
      return loop(float{});
    case ncclFloat64:
      return loop(double{});
    case ncclInt64:
      return loop(int64_t{});
    case ncclUint8:
      return loop(uint8_t{});
    default:
      for (size_t i = 0; i < count; ++i) {
        uint16_t a, b;
        std::memcpy(&a, from + i * 2, 2);
        std::memcpy(&b, to + i * 2, 2);
        const uint16_t out = to_bf16(reduced(from_bf16(a), from_bf16(b), op));
        std::memcpy(to + i * 2, &out, 2);
      }
  }
}

// How many elements of its data a rank shows to the others.
size_t shown(const Call& call, const ncclComm& comm) {
  switch (call.kind) {
    case Kind::reduce_scatter:
      return call.count * static_cast<size_t>(comm.ranks);
    case Kind::broadcast:
      return call.peer == comm.rank ? call.count : 0;
    case Kind::receive:
      return 0;
    default:
      return call.count;
  }
}

// The area of a rank: the number of notes, the notes, the data.
bool write(const ncclComm& comm, const std::vector<Call>& calls) {
  char* const area = comm.area(comm.rank);
  size_t at = sizeof(size_t) + calls.size() * sizeof(Note);
  const size_t count = calls.size();
  std::memcpy(area, &count, sizeof(count));
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const Note note{call.kind, call.type, call.op, call.peer, call.count, at};
    std::memcpy(area + sizeof(size_t) + i * sizeof(Note), &note, sizeof(note));
    const size_t bytes = shown(call, comm) * size_of(call.type);
    if (at + bytes > kArea) return false;
    if (bytes > 0) std::memcpy(area + at, call.send, bytes);
    at += bytes;
  }
  return true;
}

std::vector<Note> notes_of(const ncclComm& comm, int r) {
  size_t count = 0;
  std::memcpy(&count, comm.area(r), sizeof(count));
  std::vector<Note> notes(count);
  std::memcpy(notes.data(), comm.area(r) + sizeof(size_t), count * sizeof(Note));
  return notes;
}

// The i-th note of rank r for rank `to`, or to all ranks. Null: there is none that fits.
const Note* partner(const std::vector<Note>& notes, const Call& call, size_t i, int to) {
  if (call.kind != Kind::receive) {
    if (i >= notes.size()) return nullptr;
    const Note& note = notes[i];
    const bool fits = note.kind == call.kind && note.count == call.count &&
                      note.type == call.type && note.op == call.op && note.peer == call.peer;
    return fits ? &note : nullptr;
  }
  for (const Note& note : notes)
    if (note.kind == Kind::send && note.peer == to && note.count == call.count &&
        note.type == call.type && i-- == 0)
      return &note;
  return nullptr;
}

// False: ranks do different things.
bool read(const ncclComm& comm, const std::vector<Call>& calls) {
  std::vector<std::vector<Note>> notes;
  for (int r = 0; r < comm.ranks; ++r) notes.push_back(notes_of(comm, r));
  std::vector<size_t> received(static_cast<size_t>(comm.ranks), 0);
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const size_t size = size_of(call.type);
    if (call.kind == Kind::send) continue;
    auto* const to = static_cast<char*>(call.receive);
    if (call.kind == Kind::receive) {
      const auto from = static_cast<size_t>(call.peer);
      const Note* note = partner(notes[from], call, received[from]++, comm.rank);
      if (note == nullptr) return false;
      std::memcpy(to, comm.area(call.peer) + note->offset, call.count * size);
      continue;
    }
    const bool reduces = call.kind != Kind::all_gather && call.kind != Kind::broadcast &&
                         (call.kind != Kind::reduce || call.peer == comm.rank);
    for (int r = comm.ranks - 1; r >= 0; --r) {
      const Note* note = partner(notes[static_cast<size_t>(r)], call, i, comm.rank);
      if (note == nullptr) return false;
      const char* from = comm.area(r) + note->offset;
      const size_t bytes = call.count * size;
      if (call.kind == Kind::all_gather) {
        std::memcpy(to + static_cast<size_t>(r) * bytes, from, bytes);
      } else if (call.kind == Kind::broadcast) {
        if (r == call.peer) std::memcpy(to, from, bytes);
      } else if (reduces) {
        if (call.kind == Kind::reduce_scatter) from += static_cast<size_t>(comm.rank) * bytes;
        if (r == comm.ranks - 1)
          std::memcpy(to, from, bytes);
        else
          reduce_into(to, from, call.count, call.type, call.op);
      }
    }
  }
  return true;
}

void run(ncclComm& comm, uint64_t number, const std::vector<Call>& calls) {
  std::this_thread::sleep_for(kDelay);
  if (comm.rank == 1 && number == kFaulty) {
    if (fault() == "error") comm.error = ncclRemoteError;
    if (fault() == "error" || fault() == "hang") return comm.hang();
  }
  Board& board = comm.board();
  const auto all = [&](const std::atomic<uint64_t>* counters, uint64_t at) {
    comm.wait([&] {
      for (int r = 0; r < comm.ranks; ++r)
        if (counters[r] < at) return false;
      return true;
    });
  };
  all(board.read, number - 1);
  bool ok = false;
  {
    const emulator::DeviceAccess access;
    ok = write(comm, calls);
  }
  if (!ok) {
    std::fputs("the stand-in of NCCL: an operation of too many bytes\n", stderr);
    std::abort();
  }
  board.written[comm.rank] = number;
  all(board.written, number);
  {
    const emulator::DeviceAccess access;
    ok = read(comm, calls);
  }
  if (!ok) return comm.hang();
  board.read[comm.rank] = number;
}

// Calls between ncclGroupStart() and ncclGroupEnd(). A process has one communicator and one stream.
int depth = 0;
std::vector<Call> group;
ncclComm_t group_comm = nullptr;
cudaStream_t group_stream = nullptr;

// A rank without calls in a group meets the others, too, so that they count alike.
ncclResult_t queue() {
  ncclComm& comm = *group_comm;
  if (group_stream == nullptr) cudaStreamCreateWithFlags(&group_stream, cudaStreamNonBlocking);
  const uint64_t number = ++comm.number;
  emulator::enqueue(group_stream, [&comm, number, calls = std::exchange(group, {})] {
    run(comm, number, calls);
  });
  return ncclSuccess;
}

ncclResult_t add(Call call, ncclComm_t comm, cudaStream_t stream) {
  if (comm != group_comm || stream == nullptr || emulator::takes_work(stream) != cudaSuccess)
    return ncclInvalidArgument;
  group.push_back(call);
  group_stream = stream;
  return depth == 0 ? queue() : ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = fault() == "old" ? 2804 : 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess       ? "no error"
         : result == ncclRemoteError ? "remote process exited"
                                     : "invalid usage";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  std::memset(id->internal, 0, sizeof(id->internal));
  std::snprintf(
      id->internal, sizeof(id->internal), "/tmp/frugal_nccl_%d_%d_%lld", getpid(), made++,
      static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (ranks < 1 || ranks > kRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->ranks = ranks;
  const int file = open(id.internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(made->bytes())) != 0) return ncclSystemError;
  void* data = mmap(nullptr, made->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (data == MAP_FAILED) return ncclSystemError;
  made->file = static_cast<char*>(data);
  Board& board = made->board();
  int device = 0;
  cudaGetDevice(&device);
  board.device_of[rank] = device + 1;
  ++board.ranks_here;
  made->wait([&] { return board.ranks_here >= ranks; });
  if (rank == 0) unlink(id.internal);
  for (int r = 0; r < ranks; ++r)
    if (r != rank && board.device_of[r] == device + 1) return ncclInvalidUsage;
  *comm = group_comm = made.release();
  group_stream = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++comm->board().ranks_here;
  comm->wait([&] { return comm->board().ranks_here >= 2 * comm->ranks; });
  munmap(comm->file, comm->bytes());
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->error;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::all_reduce, send, receive, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::reduce, send, receive, count, type, op, root}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::reduce_scatter, send, receive, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::all_gather, send, receive, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::broadcast, send, receive, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::send, data, nullptr, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({Kind::receive, nullptr, data, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : queue(); }
