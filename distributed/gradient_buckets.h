// GradientBuckets: adds the gradients of all ranks while the backward pass still runs.
#pragma once
#include <memory>

#include "autograd/engine.h"
#include "core/named_tensors.h"
#include "distributed/agreement.h"
#include "distributed/communicator.h"
#include "distributed/operation_times.h"
#include "optim/optimizer.h"

namespace frugal::distributed {

class CompressedSum;
class WireCodec;

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
// With owners, each rank keeps only its own parts of the sums. A bucket then lies in the order of
// the owners and is reduced and scattered. When its sum is there, the next leaf_done() copies this
// rank's part out and frees the bucket. So whole gradients do not live together. There are two
// exceptions: a step of several backward passes, and a first step in which a parameter without a
// gradient holds up the others. Ref: Rajbhandari et al. 2020 (ZeRO), stage 2.
//
// With a codec (distributed/wire_codec.h), ranks exchange codes of few bits instead of f32.
// Buckets of other dtypes go as they are. What the codes lose is kept in residuals, of category
// `optimizer`, and added to the gradients of the next step. So the sum of what all steps applied
// differs from the true sum by the last residuals alone. Where no rank has a gradient of a
// parameter, its residuals stay for a later step. All ranks have the same bits, but these depend on
// the buckets and on the number of ranks. A gradient that is not finite makes others near it NaN on
// all ranks, and the residuals there begin at 0 again. With owners, each rank gets codes of its own
// parts only, and its sums are not encoded.
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
  // owners: for each parameter, which of its elements each rank owns
  // (ShardedOptimizer::owners()), the same on all ranks. Without any, all ranks get whole sums.
  // codec: the same on all ranks, or none. With one rank it is not used.
  // Errors: other numbers of bounds or elements.
  GradientBuckets(CommunicatorPtr communicator, NamedVariables parameters,
                  const BucketOptions& options, std::vector<Bounds> owners,
                  std::shared_ptr<const WireCodec> codec = nullptr);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // For the last backward pass of a step. It may be left out, as it must be where the graph has
  // checkpoints: finish() then begins all sums. Empty where there is one rank.
  // REQUIRES: this outlives the backward pass.
  LeafFn leaf_done();

  // Begins the sums that have not begun, waits for all, and makes them the gradients of the
  // parameters: views of their buckets. A gradient that some ranks do not have counts as zeros
  // there. A gradient that no rank has stays undefined. With owners all gradients become undefined,
  // and take_part() gives the sums. With one rank the gradients stay as they are.
  void finish();

  bool has_owners() const { return !owners_.empty(); }
  const NamedVariables& parameters() const { return parameters_; }
  // Whether any rank had a gradient in the last finished step: equal on all ranks.
  bool has_gradient(size_t parameter) const;
  // With owners: this rank's part of a sum of the last finished step, [elements] of category
  // `gradient`, which is handed over. Undefined if this rank owns nothing of the parameter, or no
  // rank has a gradient. The bytes of a bucket's parts live until the last of them is gone.
  Tensor take_part(size_t parameter);

  // The number of steps and the order of the parameters, on which the next step's codes and its
  // memory depend, and with a codec the residuals of all ranks, as "residual/NAME" f32 [ranks,
  // shape of the parameter]. A run that goes on with it has the bits of one that was not cut. It is
  // empty on one rank and before the first step. It takes the memory of all residuals on each rank
  // while it lives. All ranks call this together, between two steps.
  NamedTensors state() const;
  // On another number of ranks, rank r takes the sum of the residuals of the ranks r, r + n, ... of
  // before, so nothing is lost; one rank alone, and buckets without a codec, drop them. An empty
  // state is that of the begin.
  // Errors, on all ranks: unexpected names or wrong shapes on any rank; then nothing is changed.
  void load_state(const NamedTensors& state);

  // What the last finished step did.
  struct Step {
    int64_t buckets = 0;
    int64_t begun_in_backward = 0;  // buckets whose sums began before finish()
    int64_t bytes = 0;              // bytes of all buckets
    int64_t sent_bytes = 0;         // what this rank sent to others to make the sums
    double communication = 0;  // seconds during which sums were made; also those in which this rank
                               // waited for slower ones
    double waiting = 0;        // seconds for which the program, or its GPU, waited for sums
    // communication and waiting leave out sums that a GPU has still to end when the step is
    // finished. The next step counts them. hidden() is the part of the communication that took no
    // time from the program.
    double hidden() const;
  };
  const Step& last() const { return last_; }

 private:
  struct Piece {
    Range range;         // elements of the parameter
    int64_t offset = 0;  // where the piece begins in the bucket, in elements
    size_t owner = 0;    // the rank that owns it
  };
  struct Place {
    size_t bucket = 0;
    std::vector<Piece> pieces;  // without owners: one piece, the whole parameter
    int64_t flag = 0;           // without owners: the element that says whether it is there
  };
  struct Bucket {
    std::vector<size_t> members;  // numbers of its parameters
    // The elements of the pieces, each of which begins at a multiple of 16 elements.
    int64_t elements = 0;
    Bounds bounds;  // with owners: the share of each rank
    DType dtype{};
    Device device{};
    Tensor flat;
    Tensor residual;     // with a codec: residuals of the elements of `flat`
    size_t present = 0;  // members whose gradient is here
    Pending pending;
    std::unique_ptr<CompressedSum> sum;  // stands in for `pending` where there is a codec
  };
  void arrange(const std::vector<size_t>& order);
  void arrange_in_reverse();
  void place_members(size_t bucket);
  Tensor view_of(size_t parameter) const;
  Tensor flag_of(size_t parameter) const;
  void take(size_t parameter, GradAccumulator* leaf);  // null: zeros
  bool has_flags() const { return has_owners() || codec_ != nullptr || on_cuda_; }
  bool is_compressed(const Bucket& bucket) const;
  void begin_full();
  void begin_gathers(size_t end);
  void drain(bool all);
  void wait_for(Bucket& bucket);
  void keep_part(Bucket& bucket);
  void give_sums();
  void put_back(size_t parameter);
  Tensor residual_of(size_t parameter) const;
  void set_residual(size_t parameter, const Tensor& residual);
  void make_residual(Bucket& bucket);
  void check_state(const NamedTensors& state) const;
  void agree_on_order();

  CommunicatorPtr communicator_;
  NamedVariables parameters_;
  BucketOptions options_;
  std::vector<Bounds> owners_;  // bounds of the owners, by parameter
  std::shared_ptr<const WireCodec> codec_;
  optim::LeafIndex parameter_of_;
  std::vector<Place> places_;
  std::vector<bool> taken_;
  std::vector<Bucket> buckets_;
  size_t begun_ = 0, gathered_ = 0, drained_ = 0;  // buckets; gathered_: see begin_gathers()
  int64_t under_way_ = 0;              // bytes of buckets that are begun and not drained
  std::vector<bool> here_, anywhere_;  // by parameter: whether this rank, or any, has a gradient
  std::vector<Tensor> parts_;          // this rank's parts, by parameter
  std::vector<size_t> order_;          // parameters as they became complete
  bool arranged_ = false;              // in the order of a backward pass
  bool on_cuda_ = false;               // some parameter is on a GPU
  int64_t steps_ = 0;                  // number of finished steps
  OperationTimes times_;
  Step now_, last_;
};

}  // namespace frugal::distributed
