// StepRecord: what one training step keeps for its backward pass, tensor by tensor, and the memory
// over the step.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "train/training_step.h"

namespace frugal::train {

// A tensor that an op saved for its backward pass.
struct SavedRecord {
  // kept: it is kept as it is. in_memory: it lies in memory that holds it anyway, such as the
  // batch's. packed: a codec packed it. moved: a codec packed it, and an offload policy moved it to
  // its file. rebuilt: it is not kept, and a recipe rebuilds it.
  enum class How : uint8_t { kept, in_memory, packed, moved, rebuilt };
  std::string layer;  // the op's; an op without parameters belongs to the layer before it
  std::string op;
  int slot = 0;                      // the slot of the op that saved the tensor first
  std::optional<uint64_t> seq = {};  // SaveInfo::seq, if a policy decided about the tensor
  Shape shape;
  How how = How::kept;
  int64_t raw_bytes = 0;  // bytes of the values without compression
  // The bytes that the tensor adds to what is live between forward and backward. None: not known,
  // because another thread moves the bytes.
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
  struct Part {           // one tensor, or several without a name, that is live at the peak
    Category category{};
    std::string name;  // a layer or a parameter; empty: several tensors without a name
    std::string op;    // the op that saved the tensor, if one did
    Shape shape;       // a tensor's; empty for several
    int64_t bytes = 0;
  };
  std::vector<Part> largest;  // at most kLargest, the largest first
  static constexpr size_t kLargest = 10;
};
std::string_view name_of(MemoryCurve::Phase phase);

struct StepRecord {
  std::vector<SavedRecord> tensors;  // what the first batch saves, in order of the forward pass
  StepMemory memory;                 // between forward and backward of that batch, and the peak
  // None: another thread releases memory (offload), so the order of events is by chance.
  std::optional<MemoryCurve> curve;
};

}  // namespace frugal::train
