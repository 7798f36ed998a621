// GradientBuckets: adds the gradients of all ranks while the backward pass still runs.
#pragma once
#include "autograd/engine.h"
#include "distributed/agreement.h"
#include "optim/leaf_index.h"

namespace frugal::distributed {

struct BucketOptions {
  // A bucket takes gradients until it has so many bytes. The first one is smaller, so that
  // something is on the way soon.
  int64_t first_bytes = 1 << 20;
  int64_t bytes = 25 << 20;
};

// A step is: backward passes whose gradients add up, the last of them with leaf_done(); then
// finish(). A bucket is one flat tensor of category `gradient`, with the gradients of parameters
// that become complete one after the other. As soon as all of them are there, and the buckets
// before it have begun, its sum over the ranks begins. Gradients that are complete live in their
// buckets only.
//
// The buckets of the first step take the parameters in reverse order; later ones take them in the
// order in which the first backward pass of rank 0 completed them. The sums do not depend on the
// buckets: the terms of each element are added in the order of the ranks.
//
// Sparse rows (autograd/gradient.h) are made whole. To gather them, ranks would first have to tell
// each other how many rows they have, for each parameter and in the middle of the backward pass.
// Thread safety: one thread.
class GradientBuckets {
 public:
  // Errors, on all ranks: see check_same_parameters(); a parameter that comes twice; options that
  // are not above 0.
  GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                  const BucketOptions& options = {});

  // For the last backward pass of a step. It may be left out, as it must be where the graph has
  // checkpoints: finish() then begins all sums. Empty where there is one rank.
  // REQUIRES: this outlives the backward pass.
  LeafFn leaf_done();

  // Begins the sums that have not begun, waits for all, and makes them the gradients of the
  // parameters: views of their buckets. A gradient that some ranks do not have counts as zeros
  // there. A gradient that no rank has stays undefined.
  void finish();

  // What the last finished step did.
  struct Step {
    int64_t buckets = 0;
    int64_t begun_in_backward = 0;  // buckets whose sums began before finish()
    int64_t bytes = 0;              // of all buckets
    double communication = 0;  // seconds during which sums were made; also those in which this rank
                               // waited for slower ones
    double waiting = 0;        // seconds for which finish() waited
    // The part of the communication that took no time from the program.
    double hidden() const;
  };
  const Step& last() const { return last_; }

 private:
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // in elements
  };
  struct Bucket {
    std::vector<size_t> members;  // parameters
    int64_t elements = 0;         // those of the members, each from a multiple of 16 elements on,
                                  // and one that says whether this rank has the gradient
    DType dtype{};
    Device device{};
    Tensor flat;
    size_t present = 0;  // members whose gradient is here
    Pending pending;
  };
  void arrange(const std::vector<size_t>& order);
  Tensor view_of(size_t parameter) const;
  Tensor flag_of(size_t parameter) const;
  void take(size_t parameter, GradAccumulator* leaf);  // null: zeros
  void begin_full();

  CommunicatorPtr communicator_;
  NamedVariables parameters_;
  BucketOptions options_;
  optim::LeafIndex parameter_of_;
  std::vector<Place> places_;
  std::vector<bool> taken_;
  std::vector<Bucket> buckets_;
  size_t begun_ = 0;           // buckets
  std::vector<size_t> order_;  // parameters as they became complete
  bool arranged_ = false;      // by the order of a backward pass
  Step last_;
};

}  // namespace frugal::distributed
