#include "train/planning/borrowed_model.h"

#include <algorithm>
#include <utility>

#include "core/memory.h"

namespace frugal::train {
namespace {

std::vector<Tensor> on_meta(const std::vector<Tensor>& tensors) {
  const CategoryScope scope(Category::parameter);
  std::vector<Tensor> all;
  for (const Tensor& tensor : tensors)
    all.push_back(Tensor::empty(tensor.shape(), tensor.dtype(), kMeta));
  return all;
}

}  // namespace

BorrowedModel::BorrowedModel(Module& model) : model_(model) {
  std::vector<Tensor> parameters, buffers;
  for (const auto& p : model.parameters()) parameters.push_back(p.parameter->value());
  for (const auto& b : model.buffers()) buffers.push_back(*b.buffer);
  parameters_ = on_meta(parameters);
  buffers_ = on_meta(buffers);
  // What else the program holds there counts in the peak of its steps, too, such as its data set.
  int64_t others = allocator(model.device()).report().live_total;
  for (const auto* const own : {&parameters, &buffers})
    for (const Tensor& tensor : *own) others -= tensor.nbytes();
  const CategoryScope scope(Category::input);
  buffers_.push_back(Tensor::empty({std::max<int64_t>(others, 0)}, DType::u8, kMeta));
}

BorrowedModel::Scope::Scope(BorrowedModel& borrowed) : borrowed_(borrowed) {
  const auto parameters = borrowed.model_.parameters();
  const auto buffers = borrowed.model_.buffers();
  FRUGAL_CHECK(
      parameters.size() == borrowed.parameters_.size() &&
          buffers.size() + 1 == borrowed.buffers_.size(),
      "[meta] expected a network of {} parameters and {} buffers, as when it was planned for, got "
      "{} and {}",
      borrowed.parameters_.size(), borrowed.buffers_.size() - 1, parameters.size(), buffers.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    Variable& p = *parameters[i].parameter;
    parameters_.push_back(p.value());
    gradients_.push_back(p.accumulator() != nullptr ? std::exchange(*p.accumulator(), {})
                                                    : GradAccumulator());
    p.set_value(borrowed.parameters_[i]);
  }
  for (size_t i = 0; i < buffers.size(); ++i)
    buffers_.push_back(std::exchange(*buffers[i].buffer, borrowed.buffers_[i]));
}

BorrowedModel::Scope::~Scope() {
  const auto parameters = borrowed_.model_.parameters();
  const auto buffers = borrowed_.model_.buffers();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Variable& p = *parameters[i].parameter;
    p.set_value(std::move(parameters_[i]));
    if (p.accumulator() != nullptr) *p.accumulator() = std::move(gradients_[i]);
  }
  for (size_t i = 0; i < buffers_.size(); ++i)
    borrowed_.buffers_[i] = std::exchange(*buffers[i].buffer, std::move(buffers_[i]));
}

}  // namespace frugal::train
