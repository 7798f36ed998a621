// Runs the tasks of a CSR matrix. Internal to the ops.
#pragma once
#include <algorithm>

#include "core/parallel.h"
#include "ops/graph/graph.h"

namespace frugal::ops {

// Calls, in parallel, rows(first, last) for whole rows and piece(row, begin, end, number) for the
// pieces of long rows. Then calls merge(row, first piece, pieces) for each long row. `cost`: about
// the number of operations for an entry.
template <class Rows, class Piece, class Merge>
void for_tasks(const RowSplit& split, int64_t cost, Rows rows, Piece piece, Merge merge) {
  constexpr int64_t kGrain = 1 << 15;  // operations that are worth a thread
  const int64_t grain = kGrain / (RowSplit::kTask * std::max<int64_t>(cost, 1)) + 1;
  parallel_for(0, static_cast<int64_t>(split.tasks.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const RowSplit::Task& task = split.tasks[static_cast<size_t>(t)];
      if (task.piece < 0)
        rows(task.row, task.end);
      else
        piece(task.row, task.begin, task.stop, task.piece);
    }
  });
  for (const RowSplit::LongRow& row : split.long_rows) merge(row.row, row.first, row.pieces);
}

}  // namespace frugal::ops
