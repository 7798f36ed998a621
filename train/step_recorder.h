// StepRecorder: notes for the report what a training step does while it runs. Weights, decisions of
// policies, random streams and StepMemory are those of a step without it. A policy around the run's
// own notes what is decided, and the graph shows, between forward and backward, what is kept for
// which layer. Internal to train.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "autograd/saved_tensor.h"
#include "core/memory/memory_trace.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/step_record.h"

namespace frugal {
struct Node;
}

namespace frugal::train {

// Thread safety: none. Errors: see MemoryTrace.
class StepRecorder {
 public:
  // Records from now on. All must outlive it.
  StepRecorder(Module& model, Optimizer& optimizer, SavePolicy* policy);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  SavePolicy* policy() const;  // to be used in the place of the policy; null for null
  void before_backward(const Variable& loss, const StepMemory& memory);  // for the first batch
  void next_batch();  // the forward pass of another batch of the step begins
  void update();      // the update begins
  // The step's peak as it would be without the record.
  StepMemory with_peak(StepMemory memory) const;
  StepRecord finish(const StepMemory& memory);

 private:
  class Recorded;
  class RecordingCodec;
  class RecordingPolicy;
  struct Row {
    SavedRecord record;
    std::optional<Decision::What> decided;
    size_t born = 0;        // the moment
    uint64_t last_use = 0;  // the number of the node whose backward pass uses it last
    bool found = false;     // in the graph
    size_t order = 0;
  };
  struct Moment {
    MemoryCurve::Phase phase;
    uint64_t node = 0;                 // the node that backward runs
    std::optional<uint64_t> seq = {};  // the seq of what the op saves; it tells the layer
    std::string layer = {}, op = {};
    bool aside = false;  // what is measured for the record alone
  };
  struct Leaf {
    std::string name, layer;
    Shape shape;
    int64_t bytes = 0;
    bool trained = false;
    uint64_t first_use = 0;  // the number of the node whose backward pass completes the gradient
  };
  void mark(Moment moment);
  void note_slot(const Node& node, int slot, const std::string& layer);
  using FirstRows = std::function<std::vector<float>(int64_t rows)>;  // the values that were packed
  void note_packed(const SaveInfo& info, const Packed& packed, int64_t bytes, const Shape& shape,
                   const FirstRows& values);
  static std::optional<double> error_of(const Packed& packed, const Shape& shape,
                                        const FirstRows& values);
  MemoryCurve curve() const;
  void name_largest(MemoryCurve& curve, const Moment& at, size_t moment,
                    const CategoryBytes& live) const;

  Device device_;
  Optimizer& optimizer_;
  std::unique_ptr<RecordingPolicy> policy_;
  bool offloads_ = false, measures_errors_ = false;
  std::map<uint64_t, Row> decided_;                        // by SaveInfo::seq
  std::map<std::pair<uint64_t, int64_t>, Row> undecided_;  // by storage and offset in it
  std::unordered_set<uint64_t> counted_;                   // storages
  std::vector<Leaf> leaves_;
  std::unordered_map<const void*, size_t> leaf_of_;  // by accumulator
  std::unordered_map<uint64_t, size_t> leaf_by_storage_;
  size_t rows_ = 0;
  StepMemory between_, before_;
  std::deque<char> marks_;  // addresses that stay, one for each moment
  std::unordered_map<const char*, size_t> moment_at_;
  std::vector<Moment> moments_;
  std::optional<MemoryTrace> trace_;
};

}  // namespace frugal::train
