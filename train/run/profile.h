// Profile: what the steps of a run spend their time on and keep, by op or by layer.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "train/training_step.h"

namespace frugal {
class MemoryTrace;
class Timeline;
}  // namespace frugal

namespace frugal::train {

// Milliseconds and calls are those of a step, bytes those of its last batch. See Timeline::Kind and
// Timeline::Saved.
struct ProfileRow {
  std::string name;
  double calls = 0;
  double forward = 0, backward = 0, pack = 0, unpack = 0, rebuild = 0;
  double other = 0;  // only the rows "loader", "optimizer" and "other" have it
  int64_t raw = 0, stored = 0;
  double total() const { return forward + backward + pack + unpack + rebuild + other; }
};

enum class ProfileBy : uint8_t { op, layer };

struct Profile {
  std::shared_ptr<Timeline> timeline;
  bool timed = true;  // false: on meta, where nothing takes time
  int64_t steps = 0;
  StepMemory memory;                        // what the last step took
  std::shared_ptr<const MemoryTrace> live;  // what is allocated; null: nobody asked for it
  double live_begin = 0;                    // milliseconds of the timeline when `live` began

  // The ops or layers, those that take longest first (on meta: those that store most). Behind them
  // are the rows "loader", "optimizer" and "other": what is in no span, and what is kept by no op.
  // The rows sum up to the time of a step and to memory.saved().
  std::vector<ProfileRow> rows(ProfileBy by = ProfileBy::op) const;
};

// A timeline that knows the layers of a network.
std::shared_ptr<Timeline> timeline_of(Module& model, Device device);

}  // namespace frugal::train
