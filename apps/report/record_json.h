// A step's record (train/step_record.h) as lines of metrics.jsonl.
#pragma once
#include "apps/json.h"
#include "train/step_record.h"

namespace frugal::apps {

// A line of type "memory": {"activation_bytes", "packed_bytes", "peak_bytes", "at_peak": {category:
// bytes}, "curve": {"events", "peak", "phases", category: [bytes] or bytes}, "peak_layer",
// "peak_op", "largest": [{"category", "name", "op", "shape", "bytes"}]}. "phases" has a letter for
// each point: f, b or u. A category that never changes is one number. Without a curve the last four
// are absent.
Json memory_line(const train::StepRecord& record);

// A line of type "tensors": {"columns": [names], "rows": [[values]]}. "bits": how many are stored
// for each element of what is packed.
Json tensors_line(const train::StepRecord& record);

// What goes by the clock, in the order of the rows: {"pack_ms": [], "unpack_ms": []}.
Json tensor_times(const train::StepRecord& record);

}  // namespace frugal::apps
