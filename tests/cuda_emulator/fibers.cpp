// Blocks of emulated threads. A thread that never waits runs as a plain call; only those that wait
// at a barrier keep a fiber each.
#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {
namespace {

namespace context = boost::context;

enum class At : uint8_t { start, running, block_barrier, warp_barrier, end };

struct Thread {
  At at = At::start;
  unsigned mask = 0;  // mask of the warp barrier
  int turn = 0;       // turn of the warp's exchanges
  int fiber = -1;
  bool left = false;  // the thread had ended when barriers were last left
};

struct Fiber {
  context::fiber other;  // the scheduler while the fiber runs, else the fiber
  int thread = -1;
};

struct alignas(16) Slot {
  unsigned char bytes[16];
};

struct Block {
  const std::function<void()>* kernel = nullptr;
  std::vector<Thread> threads;
  std::vector<int> order;  // the order in which threads start
  size_t started = 0;
  int ended = 0;
  std::vector<Slot> slots[2];
  std::vector<unsigned char> shared;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<int> idle;
  int current = -1;  // the thread that runs
  int running = -1;  // the fiber that runs it
};
Block block;

std::mt19937* shuffler() {
  static const char* seed = std::getenv("FRUGAL_EMULATOR_SEED");
  static std::mt19937 engine(seed == nullptr ? 0 : static_cast<unsigned>(std::atoi(seed)));
  return seed == nullptr ? nullptr : &engine;
}

void enter(int thread) {
  block.current = thread;
  const auto index = static_cast<unsigned>(thread);
  threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y,
               index / (blockDim.x * blockDim.y)};
}

// Runs threads that have not started until one of them waits; then the next fiber goes on.
context::fiber work(Fiber& fiber, context::fiber scheduler) {
  fiber.other = std::move(scheduler);
  while (true) {
    while (block.started < block.order.size()) {
      const int thread = block.order[block.started++];
      fiber.thread = thread;
      Thread& state = block.threads[static_cast<size_t>(thread)];
      state.at = At::running;
      enter(thread);
      (*block.kernel)();
      block.threads[static_cast<size_t>(fiber.thread)].at = At::end;
      ++block.ended;
      fiber.thread = -1;
    }
    fiber.other = std::move(fiber.other).resume();
  }
}

void resume(int index) {
  Fiber& fiber = *block.fibers[static_cast<size_t>(index)];
  if (fiber.thread >= 0) enter(fiber.thread);
  block.running = index;
  fiber.other = std::move(fiber.other).resume();
  if (fiber.thread >= 0)
    block.threads[static_cast<size_t>(fiber.thread)].fiber = index;
  else
    block.idle.push_back(index);
}

void wait_here(At at, unsigned mask) {
  Thread& thread = block.threads[static_cast<size_t>(block.current)];
  thread.at = at;
  thread.mask = mask;
  Fiber& fiber = *block.fibers[static_cast<size_t>(block.running)];
  fiber.other = std::move(fiber.other).resume();
}

[[noreturn]] void stuck() {
  std::fprintf(stderr,
               "CUDA emulator: threads wait at a barrier that others never reach (block %u %u %u, "
               "%zu threads)\n",
               blockIdx.x, blockIdx.y, blockIdx.z, block.threads.size());
  std::abort();
}

bool warp_complete(size_t first, unsigned mask) {
  for (size_t lane = 0; lane < 32 && first + lane < block.threads.size(); ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const Thread& thread = block.threads[first + lane];
    if (thread.at != At::warp_barrier && thread.at != At::end) return false;
  }
  return true;
}

// Threads whose barrier is complete.
std::vector<int> released() {
  std::vector<int> ready;
  for (Thread& thread : block.threads) thread.left = thread.at == At::end;
  size_t at_block = 0;
  for (const Thread& thread : block.threads) at_block += thread.at == At::block_barrier;
  if (at_block > 0 && at_block + static_cast<size_t>(block.ended) == block.threads.size()) {
    for (size_t t = 0; t < block.threads.size(); ++t)
      if (block.threads[t].at == At::block_barrier) ready.push_back(static_cast<int>(t));
    return ready;
  }
  for (size_t t = 0; t < block.threads.size(); ++t) {
    const Thread& thread = block.threads[t];
    if (thread.at == At::warp_barrier && warp_complete(t / 32 * 32, thread.mask))
      ready.push_back(static_cast<int>(t));
  }
  return ready;
}

void run_block() {
  block.started = 0;
  block.ended = 0;
  for (Thread& thread : block.threads) thread = {};
  if (std::mt19937* engine = shuffler())
    std::shuffle(block.order.begin(), block.order.end(), *engine);
  const auto total = static_cast<int>(block.threads.size());
  while (block.started < block.order.size()) {
    if (block.idle.empty()) {
      block.fibers.push_back(std::make_unique<Fiber>());
      Fiber* fiber = block.fibers.back().get();
      fiber->other = context::fiber(
          std::allocator_arg, context::fixedsize_stack(256 << 10),
          [fiber](context::fiber scheduler) { return work(*fiber, std::move(scheduler)); });
      block.idle.push_back(static_cast<int>(block.fibers.size()) - 1);
    }
    const int index = block.idle.back();
    block.idle.pop_back();
    resume(index);
  }
  while (block.ended < total) {
    std::vector<int> ready = released();
    if (ready.empty()) stuck();
    if (std::mt19937* engine = shuffler()) std::shuffle(ready.begin(), ready.end(), *engine);
    for (int t : ready) block.threads[static_cast<size_t>(t)].at = At::running;
    for (int t : ready) resume(block.threads[static_cast<size_t>(t)].fiber);
  }
}

}  // namespace

namespace {
int64_t launched = 0;
}
int64_t launches() { return launched; }

void run_grid(dim3 grid, dim3 threads, size_t shared, const std::function<void()>& kernel) {
  static std::mutex one_at_a_time;  // compute streams of several devices run one at a time
  const std::lock_guard lock(one_at_a_time);
  ++launched;
  const DeviceAccess access;
  gridDim = grid;
  blockDim = threads;
  const size_t count = size_t{threads.x} * threads.y * threads.z;
  if (count == 0 || count > 1024) {
    std::fprintf(stderr, "CUDA emulator: a block of %zu threads\n", count);
    std::abort();
  }
  block.kernel = &kernel;
  block.threads.assign(count, {});
  block.order.resize(count);
  for (size_t i = 0; i < count; ++i) block.order[i] = static_cast<int>(i);
  for (auto& slots : block.slots) slots.resize((count + 31) / 32 * 32);
  block.shared.assign(shared + 16, 0xff);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
}

void* dynamic_shared() {
  const auto address = reinterpret_cast<uintptr_t>(block.shared.data());
  return reinterpret_cast<void*>((address + 15) / 16 * 16);
}

void block_barrier() { wait_here(At::block_barrier, 0); }
void warp_barrier(unsigned mask) { wait_here(At::warp_barrier, mask); }
int lane() { return block.current % 32; }
bool takes_part(int lane_asked) {
  const size_t thread =
      static_cast<size_t>(block.current) / 32 * 32 + static_cast<size_t>(lane_asked);
  return thread < block.threads.size() && !block.threads[thread].left;
}

void* exchange_slot(int lane_wanted) {
  const auto thread = static_cast<size_t>(block.current);
  const int turn = block.threads[thread].turn;
  return &block.slots[turn][thread / 32 * 32 + static_cast<size_t>(lane_wanted)];
}
void next_turn() { block.threads[static_cast<size_t>(block.current)].turn ^= 1; }

}  // namespace emulator

unsigned __ballot_sync(unsigned mask, int predicate) {
  const int value = predicate != 0 ? 1 : 0;
  std::memcpy(emulator::exchange_slot(emulator::lane()), &value, sizeof(value));
  emulator::warp_barrier(mask);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0 || !emulator::takes_part(lane)) continue;
    int other;
    std::memcpy(&other, emulator::exchange_slot(lane), sizeof(other));
    bits |= static_cast<unsigned>(other) << lane;
  }
  emulator::next_turn();
  return bits;
}
