// A step's record (train/step_record.h) as lines of metrics.jsonl.
#pragma once
#include "apps/json.h"
#include "train/step_record.h"

namespace frugal::apps {

// Of type "memory": {"activation_bytes", "packed_bytes", "peak_bytes", "at_peak": {category:
// bytes}, "curve": {"events", "peak", "phases", category: [bytes] or bytes}, "peak_layer",
// "peak_op", "largest": [{"category", "name", "op", "shape", "bytes"}]}. "phases" has a letter for
// each point: f, b or u. A category that never changes is one number. Without a curve the last four
// are absent.
Json memory_line(const train::StepRecord& record);

// Of type "tensors": {"columns": [names], "rows": [[values]]}. "bits": stored ones of each element
// of what is packed.
Json tensors_line(const train::StepRecord& record);

// What goes by the clock, in the order of the rows: {"pack_ms": [], "unpack_ms": []}.
Json tensor_times(const train::StepRecord& record);

}  // namespace frugal::apps
