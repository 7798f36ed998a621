// NCCL: operations of CUDA tensors from GPU to GPU, without the memory of the host. Internal to
// distributed. It exists in CUDA builds only.
#pragma once
#include <string>

#include "distributed/communicator.h"

namespace frugal::distributed {

// A communicator that gives operations on CUDA tensors to NVIDIA's NCCL and all others to `peers`.
//
// The first operation on a CUDA tensor opens the library libnccl.so.2, and the ranks tell each
// other their GPUs. All ranks then use NCCL, or none does: where the library is missing on a rank,
// where two ranks share a GPU, which NCCL refuses, or where the environment has FRUGAL_NCCL=off.
// Then `peers` takes CUDA tensors, too, and rank 0 logs why. `peers` also takes maxima and minima
// of f32, f64 and bf16, because NCCL does not promise NaN where a term is NaN.
//
// Operations run in the order in which they were begun, on a stream of their own. One begins when
// the work before it in the compute stream has ended. wait() makes the compute stream wait, and the
// host goes on. So done() may be false after wait(), and it is true when the GPU has the result.
// A tensor lives until its operation has ended or was waited for.
//
// All channels share one NCCL communicator and one stream, for two reasons. Two NCCL communicators
// whose operations begin in different orders on two ranks may wait for each other for ever, since
// their kernels hold the GPU while they wait. And each takes memory of the GPU. So all ranks must
// begin the operations on CUDA tensors of all channels in one order.
//
// Beside each operation the ranks exchange a header through a channel of `peers`. So a rank that
// begins something else, or nothing within the timeout, ends the job with the same message as
// without NCCL. A thread watches what has begun: an operation that all ranks began and that takes
// longer than the timeout, or an error that NCCL reports, ends the job.
//
// Calls: ncclGetVersion, ncclGetUniqueId (its bytes go through `peers`), ncclCommInitRank,
// ncclAllReduce, ncclReduceScatter, ncclAllGather, ncclBroadcast, ncclReduce (in groups, for bounds
// that are not even), ncclSend, ncclRecv, ncclCommGetAsyncError, ncclCommDestroy.
//
// even_alone: also where there is one rank, so that a machine with one GPU tests the calls.
// Errors, when the first operation begins: what NCCL says of its begin. A tensor on another GPU
// than the first one.
// Thread safety: one thread.
CommunicatorPtr with_nccl(CommunicatorPtr peers, bool even_alone = false);

// Whether NCCL serves its CUDA tensors; false before the first operation on one.
bool uses_nccl(const Communicator& communicator);

// For all operations of this process, in seconds; 0: no limit.
void set_nccl_timeout(double seconds);

}  // namespace frugal::distributed
