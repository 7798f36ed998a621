// StepRecorder: what one training step keeps for its backward pass, tensor by tensor, and the
// memory over the step. Weights, decisions of policies, random streams and StepMemory are the same
// as in a step that is not recorded.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/saved_tensor.h"
#include "core/memory_trace.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/training_step.h"

namespace frugal {
struct Node;
}

namespace frugal::train {

// A tensor that an op saved for its backward pass.
struct SavedRecord {
  // kept: as it is. in_memory: as it is, in memory that holds it anyway, such as the batch's.
  // packed: by a codec. moved: by a codec, to the file of an offload policy. rebuilt: by a recipe.
  enum class How : uint8_t { kept, in_memory, packed, moved, rebuilt };
  std::string layer;  // of the op; an op without parameters belongs to the layer before it
  std::string op;
  int slot = 0;                      // of the op that saved the tensor first
  std::optional<uint64_t> seq = {};  // SaveInfo::seq, if a policy decided about the tensor
  Shape shape;
  How how = How::kept;
  int64_t raw_bytes = 0;  // of the values without compression
  // That the tensor adds to what is live between forward and backward. None: not known, because
  // another thread moves the bytes.
  std::optional<int64_t> stored_bytes = 0;
  // sqrt(sum (unpacked - value)^2 / sum value^2) over the first kMeasured elements, in whole items
  // of the leading axis. None: not packed, not finite, or not to be had without a change of what is
  // in memory.
  std::optional<double> error = {};
  double pack_seconds = 0, unpack_seconds = 0;  // on the CPU; 0 on CUDA
  static constexpr int64_t kMeasured = int64_t{1} << 18;
};
std::string_view name_of(SavedRecord::How how);

// The memory over one step. A point is the moment with the highest total among several events of
// the allocator that follow each other.
struct MemoryCurve {
  static constexpr size_t kPoints = 320;
  enum class Phase : uint8_t { forward, backward, update };
  struct Point {
    Phase phase = Phase::forward;
    CategoryBytes live{};  // bytes
  };
  std::vector<Point> points;
  int64_t events = 0;
  size_t peak = 0;        // the point with the highest total
  std::string layer, op;  // what ran at the peak; empty: not known
  struct Part {           // of what is live at the peak
    Category category{};
    std::string name;  // a layer or a parameter; empty: several tensors without a name
    std::string op;    // that saved the tensor, if one did
    Shape shape;       // of a tensor
    int64_t bytes = 0;
  };
  std::vector<Part> largest;  // at most kLargest, the largest first
  static constexpr size_t kLargest = 10;
};
std::string_view name_of(MemoryCurve::Phase phase);

struct StepRecord {
  std::vector<SavedRecord> tensors;  // of the first batch of the step, in order of the forward pass
  StepMemory memory;                 // between forward and backward of that batch, and the peak
  // None: another thread releases memory (offload), so the order of events is by chance.
  std::optional<MemoryCurve> curve;
};

// Thread safety: none. Errors: see MemoryTrace.
class StepRecorder {
 public:
  // Records from now on. All must outlive it.
  StepRecorder(Module& model, Optimizer& optimizer, SavePolicy* policy);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  SavePolicy* policy() const;  // to be used in the place of the policy; null for null
  void before_backward(const Variable& loss, const StepMemory& memory);  // of the first batch
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
    uint64_t node = 0;                 // of backward
    std::optional<uint64_t> seq = {};  // of the tensor that the op saves; it tells the layer
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
  void note_packed(const SaveInfo& info, const Packed& packed, const Tensor& value, int64_t bytes);
  std::optional<double> error_of(const Packed& packed, const Tensor& value);
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
