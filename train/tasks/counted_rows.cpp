#include "train/tasks/counted_rows.h"

#include <algorithm>
#include <tuple>

#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "ops/graph/segment.h"
#include "ops/graph/spmm.h"
#include "train/held_copies.h"
#include "train/place_batch.h"

namespace frugal::train {
namespace {

// How many targets a row has.
int64_t width_of(const Tensor& target) {
  return target.numel() / std::max<int64_t>(target.size(0), 1);
}
// How many of these floating targets count.
int64_t known_of(const float* first, int64_t width) {
  return std::count_if(first, first + width, [](float answer) { return answer >= 0; });
}

// The rows of which a target counts.
Tensor rows_that_count(const Tensor& target) {
  std::vector<int64_t> rows;
  const int64_t width = width_of(target);
  for (int64_t row = 0; row < target.size(0); ++row)
    if (is_floating(target.dtype()) ? known_of(target.data<float>() + row * width, width) > 0
                                    : target.data<int64_t>()[row] != kIgnored)
      rows.push_back(row);
  return Tensor::from(rows, {static_cast<int64_t>(rows.size())});
}

// The share of each target in the loss, where some of a row do not count.
Tensor shares_of(const Tensor& target, const Tensor& weights) {
  const int64_t rows = target.size(0), width = width_of(target);
  const float* const all = target.data<float>();
  const Tensor shares = Tensor::zeros({rows, width});
  const int64_t known = known_of(all, rows * width);
  for (int64_t row = 0; row < rows; ++row) {
    const float each =
        weights.defined()
            ? weights.data<float>()[row] / static_cast<float>(known_of(all + row * width, width))
            : 1 / static_cast<float>(known);
    for (int64_t i = row * width; i < (row + 1) * width; ++i)
      if (all[i] >= 0) shares.mut<float>()[i] = each;
  }
  return shares;
}

template <class T>
Tensor pick(const Tensor& from, const Tensor& rows) {
  Shape shape = from.shape();
  const int64_t width = from.numel() / std::max<int64_t>(shape[0], 1);
  shape[0] = rows.size(0);
  const Tensor to = Tensor::empty(shape, from.dtype());
  for (int64_t i = 0; i < shape[0]; ++i)
    std::copy_n(from.data<T>() + rows.data<int64_t>()[i] * width, width, to.mut<T>() + i * width);
  return to;
}

// What a batch is given: its whole target and its counted rows.
struct Placed {
  Tensor target;
  CountedRows counted;
};

Placed made_for(const Tensor& target, const Tensor& weights, Device device) {
  const CountedRows here = counted_rows(to_device(target, kCpu), moved_to(weights, kCpu));
  Placed out;
  out.target = moved_to(target, device);
  out.counted.rows = moved_to(here.rows, device);
  out.counted.target = here.rows.defined() ? moved_to(here.target, device) : out.target;
  out.counted.weights = here.rows.defined() ? moved_to(here.weights, device) : Tensor();
  return out;
}

Placed made_once(const Tensor& target, Device device) {
  using Key = std::tuple<TensorIdentity, DeviceType, int>;
  // The memo is static, because the trainer, evaluations and commands place batches of one source
  // and share no object that could own it.
  static HeldCopies<Key, Placed> kept(4);  // training, validation and testing need one each
  return kept.find_or_make({TensorIdentity(target), device.type, device.index},
                           [&] { return made_for(target, Tensor(), device); });
}

}  // namespace

CountedRows counted_rows(const Tensor& target, const Tensor& weights) {
  const bool floats = is_floating(target.dtype());
  const CategoryScope scope(Category::input);
  const Tensor rows = rows_that_count(target);
  if (!floats && (rows.size(0) == 0 || 2 * rows.size(0) > target.size(0)))
    return {{}, target, weights};
  const Tensor counted = floats ? pick<float>(target, rows) : pick<int64_t>(target, rows);
  const Tensor picked = weights.defined() ? pick<float>(weights, rows) : weights;
  const bool each = floats && known_of(counted.data<float>(), counted.numel()) < counted.numel();
  return {rows, counted, each ? shares_of(counted, picked) : picked};
}

void add_counted_rows(Batch& batch, Device device) {
  if (!batch.target.defined() || batch.target.device().type == DeviceType::meta ||
      find_tensor(batch.extras, "counted_target").defined())
    return;
  const Tensor weights = find_tensor(batch.extras, "node_weight");
  const bool once = batch.held && device.type == DeviceType::cuda && !weights.defined();
  const Placed made =
      once ? made_once(batch.target, device) : made_for(batch.target, weights, device);
  batch.target = made.target;
  batch.extras.emplace_back("counted_target", made.counted.target);
  if (made.counted.rows.defined()) batch.extras.emplace_back("counted_rows", made.counted.rows);
  if (made.counted.weights.defined())
    batch.extras.emplace_back("counted_weight", made.counted.weights);
}

CountedRows take_counted_rows(Batch& batch) {
  const CountedRows counted{find_tensor(batch.extras, "counted_rows"),
                            find_tensor(batch.extras, "counted_target"),
                            find_tensor(batch.extras, "counted_weight")};
  std::erase_if(batch.extras,
                [](const auto& extra) { return extra.first.starts_with("counted_"); });
  return counted;
}

std::shared_ptr<const ops::Csr> groups_of(const Tensor& rows, int64_t nodes) {
  // The memo is static, because the model is the only object that forward passes of training and of
  // evaluation share.
  static HeldCopies<std::tuple<TensorIdentity>, std::shared_ptr<const ops::Csr>> kept(2);
  const auto groups = kept.find_or_make({TensorIdentity(rows)}, [&] {
    const CategoryScope scope(Category::input);
    return std::make_shared<const ops::Csr>(ops::group_by("rows", rows, nodes));
  });
  FRUGAL_ASSERT(groups->rows == nodes);
  return groups;
}

Variable rows_of(const Variable& x, const Tensor& rows,
                 const std::shared_ptr<const ops::Csr>& groups) {
  if (groups == nullptr) return gather_rows(x, rows);
  return record("gather_rows", {x}, ops::gather_rows(x.value(), rows), {},
                [groups](const Backward& b) { return Grads{ops::spmm(*groups, b.dy())}; });
}

}  // namespace frugal::train
