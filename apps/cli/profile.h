// Profile: what the steps of a configuration spend their time on and keep, by op or by layer. It
// can be written as a trace for ui.perfetto.dev.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "autograd/timeline.h"
#include "core/memory_trace.h"
#include "train/training_step.h"

namespace frugal::apps {

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

// The ops or layers, those that take longest first (on meta: those that store most). Behind them
// are the rows "loader", "optimizer" and "other": what is in no span, and what is kept by no op.
// The rows sum up to the time of a step and to memory.saved().
std::vector<ProfileRow> profile_rows(const Timeline& timeline, int64_t steps,
                                     const StepMemory& memory, ProfileBy by);

// Chrome's trace format: a complete event for each span, and a counter of the live bytes of each
// category. `shift`: milliseconds of the timeline when `live` began.
std::string trace_json(const Timeline& timeline, const std::vector<MemoryTrace::Event>& live,
                       double shift);

}  // namespace frugal::apps
