#include "distributed/reduce_in_backward.h"

#include <utility>

#include "ops/dense/copy.h"

namespace frugal::distributed {

ReduceInBackward::ReduceInBackward(CommunicatorPtr communicator, NamedVariables parameters,
                                   LeafFn inner, int64_t window)
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      inner_(std::move(inner)),
      window_(window) {
  FRUGAL_CHECK(inner_ != nullptr,
               "[reduce_in_backward] expected a function to call for each leaf, got none");
  FRUGAL_CHECK(window >= 0, "[reduce_in_backward] expected a window of at least 0 bytes, got {}",
               window);
  for (const auto& [name, parameter] : parameters_)
    parameter_of_.add("reduce_in_backward", name, parameter);
  check_same_parameters(*communicator_, parameters_);
}

LeafFn ReduceInBackward::leaf_done() {
  if (communicator_->size() == 1) return inner_;
  return [this](GradAccumulator& leaf) {
    const auto found = parameter_of_.find(leaf);
    if (!found) return;
    const auto& [name, parameter] = parameters_[*found];
    if (!is_sole_owner(leaf.whole())) {
      const CategoryScope scope(Category::gradient);
      leaf.set(ops::clone(leaf.whole()));
    }
    const Tensor& sum = leaf.whole();
    // The number comes first, because a header has no room for the end of a long name.
    Pending pending = communicator_->begin_all_reduce(
        sum, Reduction::sum, fmt::format("gradient of parameter {}, {}", *found, name));
    sums_.push_back({parameter.accumulator(), sum.nbytes(), std::move(pending)});
    under_way_ += sum.nbytes();
    ++now_.buckets;
    ++now_.begun_in_backward;
    now_.bytes += sum.nbytes();
    const auto size = static_cast<int64_t>(size_of(sum.dtype()));
    now_.sent_bytes += sent_elements(sum.numel(), *communicator_) * size;
    while (under_way_ > window_) hand_on_first();
  };
}

void ReduceInBackward::hand_on_first() {
  Sum first = std::move(sums_.front());
  sums_.pop_front();
  times_.wait(std::move(first.pending));
  under_way_ -= first.bytes;
  inner_(*first.leaf);
}

void ReduceInBackward::finish() {
  while (!sums_.empty()) hand_on_first();
  // A rank with fewer leaves would else do something else at some later time.
  communicator_->barrier(fmt::format("the end of a backward pass with {} leaves", now_.buckets));
  const OperationTimes::Seconds seconds = times_.take();
  now_.communication += seconds.communication;
  now_.waiting += seconds.waiting;
  last_ = std::exchange(now_, {});
}

}  // namespace frugal::distributed
