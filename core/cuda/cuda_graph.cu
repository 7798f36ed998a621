#include "core/cuda/cuda_graph.h"

#include "core/cuda/cuda.h"
#include "core/cuda/cuda_random.h"
#include "core/memory/private_pool.h"

namespace frugal::cuda {
namespace {

thread_local bool is_capturing = false;

}  // namespace

bool capturing() { return is_capturing; }

struct Graph::State {
  cudaGraphExec_t exec = nullptr;
  std::unique_ptr<PrivatePool> pool;
  void drop() {
    if (exec != nullptr) FRUGAL_CUDA_REPORT(cudaGraphExecDestroy(std::exchange(exec, nullptr)));
    pool.reset();
  }
};

Graph::Graph() : state_(std::make_unique<State>()) {}
Graph::~Graph() { state_->drop(); }

bool Graph::captured() const { return state_->exec != nullptr; }

void Graph::capture(const std::function<void()>& work) {
  state_->drop();
  advance();  // allocates now, so that this memory does not become the graph's
  const cudaStream_t on = stream();
  int device = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&device));
  allocator(device).trim();  // the graph uses other memory, and nothing can be given back while
                             // work is captured
  auto pool = std::make_unique<PrivatePool>();
  cudaGraph_t graph = nullptr;
  {
    const PrivatePool::Scope scope(*pool);  // ends after the capture, when memory can be given back
                                            // again
    // Relaxed: memory may be taken from the system during the capture.
    FRUGAL_CUDA_CHECK(cudaStreamBeginCapture(on, cudaStreamCaptureModeRelaxed));
    is_capturing = true;
    try {
      work();
    } catch (...) {
      is_capturing = false;
      cudaStreamEndCapture(on, &graph);  // fails if the capture was broken; then there is no graph
      cudaGetLastError();
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    is_capturing = false;
    FRUGAL_CUDA_CHECK(cudaStreamEndCapture(on, &graph));
  }
  const cudaError_t made = cudaGraphInstantiate(&state_->exec, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "cudaGraphInstantiate");
  state_->pool = std::move(pool);
}

void Graph::rerun(uint64_t keys, uint64_t steps) {
  FRUGAL_ASSERT(captured());
  const bool moved = keys != 0 || steps != 0;
  if (moved) set_advance({keys, steps});
  FRUGAL_CUDA_CHECK(cudaGraphLaunch(state_->exec, stream()));
  if (moved) set_advance({});
}

}  // namespace frugal::cuda
