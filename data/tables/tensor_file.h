// Samples and targets from files of arrays: npz and safetensors.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/tensor_dataset.h"

namespace frugal::data {

// An open file of named arrays. What it is follows from its ending: .npz or .safetensors.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);  // Errors: another ending, those of the formats
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const;
  Shape shape(const std::string& name) const;  // Errors: no such array, with a list of them
  DType dtype(const std::string& name) const;  // Errors: no such array, with a list of them
  Tensor read(const std::string& name) const;  // Errors: no such array, with a list of them

 private:
  struct Impl;
  std::string path_;
  std::unique_ptr<Impl> impl_;
};

// What is predicted. automatic: whole numbers [N] or [N, 1] are classes; so are rows [N, C] of one
// 1 and else 0. Other rows of 0 and 1 are labels, and all other numbers are values.
enum class TargetTask : uint8_t { automatic, classes, labels, values };

// The targets of a part. `like`: those of the training part, whose task and width count.
// Errors: another shape; targets that do not fit the task (without `like`: OptionError "task"); a
// class below 0, or one that the training part has not; a number that is not finite.
SampleTargets read_targets(const TensorFile& file, const std::string& name, TargetTask task,
                           const SampleTargets* like = nullptr);

}  // namespace frugal::data
