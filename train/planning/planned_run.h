// PlannedRun: a run as plans see it, and what a search may vary of it. Who makes the run's recipe
// fills it (train/run/run.h).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/policies/choice.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/planning/budget.h"
#include "train/ranks/ranks.h"
#include "train/task.h"

namespace frugal::train {

struct UpdateTime;  // train/update_time.h

// How to make a run's network, optimizer and batches on `meta`, and what its steps do with them.
struct MetaRun {
  std::function<std::shared_ptr<Module>(Device device)> make_model;
  std::function<std::unique_ptr<Optimizer>(Module& model)> make_optimizer;
  // The network of the run itself and its optimizer may replace these two functions. Steps on meta
  // borrow the network (train/planning/borrowed_model.h) and ask the optimizer for
  // Optimizer::without_state().
  Module* own_model = nullptr;
  const Optimizer* own_optimizer = nullptr;
  TaskPtr task;
  // Makes a batch of so many samples, which is not filled; empty: Task::shape() makes it.
  std::function<Batch(int64_t samples, Device device)> shape = {};
  // Makes a batch of so many samples for an evaluation; empty: `shape` makes it.
  std::function<Batch(int64_t samples, Device device)> evaluated = {};
  // Gives the number of steps of the run; empty: so many that a policy learns again and again
  // (compress::Learner).
  std::function<int64_t()> steps = {};
  // Gives the sizes of the batches that the loader holds ahead of one of so many samples; empty: it
  // holds none ahead.
  std::function<std::vector<int64_t>(int64_t samples)> ahead = {};
  // Says how many samples of a batch tracking holds through a step (train/noise/convergence.h);
  // empty: tracking holds none.
  std::function<int64_t(int64_t samples)> tracked = {};
  bool has_blocks = true;  // may the network's blocks be recomputed?
  int64_t gradient_accumulation = 1;
  double label_smoothing = 0;
  double clip_norm = 0;                  // see StepOptions
  std::optional<bool> in_backward = {};  // see UpdateTime
  // Does the step count what graphs are built from, such as edges? They lie on the host, so this is
  // so where the run computes there. What is built from them counts in any case.
  bool counts_edges = true;
  // The bytes that the data hold on the host beside the batches of training, such as the labels of
  // a graph that evaluations alone read. They count where edges do.
  int64_t data_bytes = 0;
  // Does a step count what kernels of the CPU take for themselves (ops/kernel_memory.h)? It depends
  // on the machine.
  bool counts_kernels = false;
  bool on_cuda = false;     // does the run compute on CUDA, which takes large tensors whole?
  RanksOptions ranks = {};  // imagined ranks, and the step is that of one; null: it is alone
};

// When a step that recomputes so many blocks updates parameters.
UpdateTime update_time(const MetaRun& run, int64_t checkpointed_blocks);
bool updates_in_backward(const MetaRun& run, int64_t checkpointed_blocks);

struct PlannerOptions {
  MetaRun run;
  // How the run keeps activations: by a budget. Plans are tried with its policy.
  compress::Choice choice = compress::budget("");
  uint64_t seed = 0;  // drives the rounding
  Budget budget;
  Device device = kCpu;                          // where the run computes
  int64_t batch = 128, test_batch = 256;         // in samples
  int64_t checkpointed_blocks = 0;               // blocks that are recomputed in any case
  bool recompute = false;                        // blocks may be recomputed where that helps
  int64_t workspace_limit = int64_t{512} << 20;  // the most bytes that CUDA's libraries may take
  bool moving = false;  // a folder for a file is taken as given, although there is none
};

// A way to keep activations, as a row of a table (train/planning/ways.h).
struct Way {
  // own: what the run does; bits: all tensors in one width; preset, level, growth: `named`
  enum Kind : uint8_t { own, bits, preset, level, growth } kind = own;
  std::string name;
  std::string named = {};  // the preset, or the level of ActNN's paper
  compress::Choice choice = {};
  int64_t checkpointed_blocks = 0;
  // The row without recomputed blocks or offload, which cost time; empty: this row has neither.
  // The row is worth showing if it takes less.
  std::string without = {};
  bool chooses_window = false;  // offload to a folder that we choose, so we choose the window, too
};

// What grows in a search for the largest that fits (train/planning/largest.h).
enum class Growth : uint8_t { batch, layers, width, resolution };

// The values that a search may try: `least` to before `first` by 1, then from `first` on by `step`,
// up to `most`. The peak must grow with the value among first, first + coarse, first + 2 coarse and
// so on. Between these it may be higher than at both neighbours: tensors of some sizes cannot be
// taken in slices. REQUIRES: coarse is a multiple of step.
struct SearchRange {
  int64_t least = 1, first = 1, step = 1, coarse = 1, most = 1;
};

// How a number of a run grows.
struct Growing {
  struct Grown {
    MetaRun run;
    int64_t batch = 0;
  };
  SearchRange range;
  int64_t own = 0;                            // what the run has; 0: it follows from the network
  std::function<Grown(int64_t value)> grown;  // the run with another number
};

// What a step can do without next to no change of results, where no preset fits.
struct Savings {
  bool recomputed = false;   // blocks are recomputed
  bool in_backward = false;  // parameters are updated in the backward pass
  bool in_8bit = false;      // the optimizer keeps its state in 8 bits
  bool operator==(const Savings&) const = default;
};

struct PlannedRun {
  PlannerOptions options;  // the run as it is; without a budget, if it has none
  // Do rows of a table count what kernels of the CPU take for themselves (see MetaRun)?
  bool counts_kernels = false;
  // The optimizer of the run with its state in 8 bits; empty: there is none.
  std::function<std::unique_ptr<Optimizer>(Module& model)> make_8bit_optimizer = {};
  // Errors: OptionError, where the run has no such number.
  std::function<Growing(Growth growth)> growing = {};
  // Adds what the run's owner knows of a way, such as measured widths. Errors: the run cannot have
  // the way. Empty: nothing is added.
  std::function<void(Way& way)> complete = {};
};

}  // namespace frugal::train
