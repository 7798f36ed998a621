// The rows of a batch whose targets count, where a loss is made of them alone: few nodes of a graph
// have targets, or some samples have no answers. Nothing is then saved for the other rows.
#pragma once
#include <memory>

#include "autograd/variable.h"
#include "data/dataset.h"
#include "ops/graph/graph.h"

namespace frugal::train {

struct CountedRows {
  Tensor rows;             // [K] i64; undefined: the loss is made of all rows
  Tensor target, weights;  // for each of these rows; weights undefined: all are 1
};

// Gives the rows that count, if most rows do not count or targets are floating. Else `rows` is
// undefined, and target and weights are those of all rows. target [N] i64 or [N, C] f32, of which
// those that do not count hold kIgnored; weights [N] f32 or undefined; all on the host. Where some
// targets of a row count and others do not, the weights are [K, C]: the share of each in the mean
// over all that count, or over those of its row times the row's weight.
CountedRows counted_rows(const Tensor& target, const Tensor& weights);

// Adds the counted rows of a batch on the host to its extras, on `device`; its target moves there,
// too. What a source holds is moved once. Nothing happens on `meta` and with a batch that has them.
void add_counted_rows(Batch& batch, Device device);
// Takes them out of the extras again.
CountedRows take_counted_rows(Batch& batch);

// The positions of `rows` grouped by node, made once for rows that a source holds. On the host.
std::shared_ptr<const ops::Csr> groups_of(const Tensor& rows, int64_t nodes);
// Rows of x. With groups, the backward pass does not wait until the host has grouped the rows.
Variable rows_of(const Variable& x, const Tensor& rows,
                 const std::shared_ptr<const ops::Csr>& groups);

}  // namespace frugal::train
