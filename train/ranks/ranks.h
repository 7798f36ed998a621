// Ranks: the processes that train one network together, each with its share of every batch. All
// ranks call the functions here in the same order. A process that trains alone is one rank, for
// which nothing here does anything.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/named_tensors.h"
#include "core/option.h"
#include "core/rng.h"
#include "data/batch_source.h"
#include "distributed/communicator.h"
#include "train/training_step.h"

namespace frugal::train {

// How ranks train together.
struct RanksOptions {
  distributed::CommunicatorPtr communicator = {};  // null: this process trains alone
  // Batch norms in training use the statistics of the whole batch; false: those of a rank's share.
  // Training is that of one process only where they use the whole batch's.
  bool sync_batch_norm = true;
  distributed::BucketOptions buckets = {};
  // A rank keeps its share of the gradients alone (ZeRO-2). It needs a ShardedOptimizer.
  bool share_gradients = false;
  // Gradients go between ranks in codes of so many bits, 1 to 16, and what these lose is added in
  // the next step; 0: as they are.
  int compress_gradients = 0;

  static std::vector<by_name::Option<RanksOptions>> list();
};

// The seed of a rank for draws that must not be equal on all ranks: dropout and rounding. Rank 0
// has the run's own, so one process draws as it always did.
uint64_t seed_of_rank(uint64_t seed, int rank);

class Ranks {
 public:
  explicit Ranks(const RanksOptions& options = {});

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  bool alone() const { return size() == 1; }
  data::Share share() const { return {rank(), size()}; }
  distributed::Communicator& communicator() const { return *communicator_; }
  const distributed::CommunicatorPtr& pointer() const { return communicator_; }

  // The sum over all ranks, the highest value of any rank, and whether any rank says so.
  double sum(double value, const char* what) const;
  int64_t most(int64_t value, const char* what) const;
  bool any(bool value, const char* what) const { return most(value ? 1 : 0, what) != 0; }

  // Joins the results of a step's batches over all ranks: counts become sums, and the loss the mean
  // over the targets that count. `weighted` is added up, too. Memory is not touched.
  std::vector<BatchResult> sum(std::vector<BatchResult> results, double& weighted,
                               int64_t& units) const;
  // The highest measures of any rank.
  StepMemory most(const StepMemory& memory) const;

  // The mean, over the ranks that have them, of numbers that belong to `keys`. A rank may have
  // other keys than another one; it gets the means of its own.
  std::vector<double> mean(const std::vector<uint64_t>& keys, std::vector<double> values,
                           const char* what) const;
  // Averages a list over the ranks that have one. Returns nothing if no rank has one.
  // Errors: lists of different lengths.
  std::optional<std::vector<double>> mean(const std::optional<std::vector<double>>& values,
                                          const char* what) const;

  // Joins the rows of all ranks' tensors [rows, ...], in the order of the ranks. The tensors may
  // differ in their numbers of rows alone.
  Tensor gather(const Tensor& rows, const char* what) const;

  // Gives the tensors of rank 0 to all ranks. Shapes and names need not be known there.
  NamedTensors broadcast(const NamedTensors& tensors, const char* what) const;

 private:
  distributed::CommunicatorPtr communicator_;
};

// The rank of a process that trains alone.
const Ranks& one_rank();

// Tensors on the host as bytes, and back.  Errors: bytes that bytes_of() did not make.
std::string bytes_of(const NamedTensors& tensors);
NamedTensors tensors_from(const std::string& bytes);

}  // namespace frugal::train
