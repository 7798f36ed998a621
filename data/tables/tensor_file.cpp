#include "data/tables/tensor_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/words/quoted.h"
#include "data/formats/npy.h"
#include "data/formats/safetensors.h"

namespace frugal::data {

struct TensorFile::Impl {
  std::optional<NpzFile> npz;
  std::optional<SafetensorsFile> safetensors;
  std::vector<std::string> names() const { return npz ? npz->names() : safetensors->names(); }
};

TensorFile::TensorFile(const std::string& path) : path_(path), impl_(std::make_unique<Impl>()) {
  if (path.ends_with(".npz"))
    impl_->npz = NpzFile::open(path);
  else if (path.ends_with(".safetensors"))
    impl_->safetensors = SafetensorsFile::open(path);
  else
    throw Error(
        fmt::format("[tensors] expected a file .npz or .safetensors, got {}", in_quotes(path)));
}
TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;

bool TensorFile::contains(const std::string& name) const {
  return impl_->npz ? impl_->npz->contains(name) : impl_->safetensors->contains(name);
}

Shape TensorFile::shape(const std::string& name) const {
  FRUGAL_CHECK(contains(name), "[tensors] expected an array {} in {}, got {}", in_quotes(name),
               in_quotes(path_),
               printable(fmt::format("{}", fmt::join(impl_->names(), ", ")), 300));
  return impl_->npz ? impl_->npz->info(name).shape : impl_->safetensors->info(name).shape;
}

DType TensorFile::dtype(const std::string& name) const {
  shape(name);
  return impl_->npz ? impl_->npz->info(name).dtype : impl_->safetensors->info(name).dtype;
}

Tensor TensorFile::read(const std::string& name) const {
  shape(name);
  const CategoryScope scope(Category::input);
  return impl_->npz ? impl_->npz->read(name) : impl_->safetensors->read(name);
}

namespace {

// Targets [N, C] as f32, which holds whole numbers up to 2^24.
class TensorFileReader {
 public:
  TensorFileReader(const TensorFile& file, const std::string& name)
      : where_(fmt::format("{} of {}", in_quotes(name), in_quotes(file.path()))) {
    const Tensor raw = file.read(name);
    FRUGAL_CHECK((raw.dim() == 1 || raw.dim() == 2) && raw.numel() > 0,
                 "[tensors] {}: expected targets [N] or [N, C], got {}", where_, describe(raw));
    whole_ = !is_floating(raw.dtype());
    values_ = to_f32(raw).view({raw.size(0), raw.numel() / raw.size(0)});
    for (int64_t i = 0; i < values_.numel(); ++i)
      FRUGAL_CHECK(std::isfinite(at(i)),
                   "[tensors] {}: expected finite targets, got {} of sample "
                   "{}",
                   where_, at(i), i / width());
  }

  int64_t rows() const { return values_.size(0); }
  int64_t width() const { return values_.size(1); }

  TargetTask automatic() const {
    if (width() == 1) return whole_ ? TargetTask::classes : TargetTask::values;
    if (!all_bits()) return TargetTask::values;
    return one_hot() ? TargetTask::classes : TargetTask::labels;
  }

  SampleTargets classes(const SampleTargets* like) const {
    SampleTargets targets;
    if (width() > 1) {
      if (!all_bits() || !one_hot())
        refuse(like,
               fmt::format("expected one class a sample, as a number or as a single 1, got {}",
                           describe(values_)));
      targets.classes = width();
      for (int64_t row = 0; row < rows(); ++row) {
        int64_t column = 0;
        while (at(row * width() + column) == 0) ++column;
        targets.labels.push_back(column);
      }
    } else {
      constexpr double kMostClasses = 1 << 24;
      for (int64_t row = 0; row < rows(); ++row) {
        const double value = at(row);
        if (value != std::floor(value))
          refuse(like,
                 fmt::format("expected a class, a whole number from 0 on, got {} of sample {}",
                             value, row));
        FRUGAL_CHECK(value >= 0 && value < kMostClasses,
                     "[tensors] {}: expected a class, a whole number from 0 on, got {} of sample "
                     "{}",
                     where_, value, row);
        targets.labels.push_back(static_cast<int64_t>(value));
        targets.classes = std::max(targets.classes, targets.labels.back() + 1);
      }
    }
    if (like == nullptr) return targets;
    for (size_t i = 0; i < targets.labels.size(); ++i)
      FRUGAL_CHECK(targets.labels[i] < like->classes,
                   "[tensors] {}: expected one of the {} classes of the training part, got {} of "
                   "sample {}",
                   where_, like->classes, targets.labels[i], i);
    targets.classes = like->classes;
    return targets;
  }

  SampleTargets numbers(FloatTargets kind, const SampleTargets* like) const {
    if (kind == FloatTargets::answers && !all_bits())
      refuse(like, "expected labels of 0 and 1, got other numbers");
    FRUGAL_CHECK(like == nullptr || like->classes == width(),
                 "[tensors] {}: expected {} columns, as in the training part, got {}", where_,
                 like == nullptr ? 0 : like->classes, width());
    SampleTargets targets;
    targets.classes = width();
    targets.labels.resize(static_cast<size_t>(rows()));
    std::iota(targets.labels.begin(), targets.labels.end(), int64_t{0});
    const float* const all = values_.data<float>();
    targets.rows = {{all, all + values_.numel()}, width(), kind};
    return targets;
  }

 private:
  // Targets of another kind than the task that was asked for, or than those of training.
  [[noreturn]] void refuse(const SampleTargets* like, const std::string& why) const {
    if (like != nullptr) throw Error(fmt::format("[tensors] {}: {}", where_, why));
    throw OptionError("task", fmt::format("{}: {}", where_, why));
  }
  float at(int64_t i) const { return values_.data<float>()[i]; }
  bool all_bits() const {
    const float* const all = values_.data<float>();
    return std::all_of(all, all + values_.numel(), [](float v) { return v == 0 || v == 1; });
  }
  bool one_hot() const {
    for (int64_t row = 0; row < rows(); ++row) {
      float sum = 0;
      for (int64_t c = 0; c < width(); ++c) sum += at(row * width() + c);
      if (sum != 1) return false;
    }
    return true;
  }

  std::string where_;
  Tensor values_;
  bool whole_ = false;
};

TargetTask task_of(const SampleTargets& targets) {
  if (!targets.rows.defined()) return TargetTask::classes;
  return targets.rows.kind == FloatTargets::answers ? TargetTask::labels : TargetTask::values;
}

}  // namespace

SampleTargets read_targets(const TensorFile& file, const std::string& name, TargetTask task,
                           const SampleTargets* like) {
  const TensorFileReader reader(file, name);
  if (like != nullptr) task = task_of(*like);
  if (task == TargetTask::automatic) task = reader.automatic();
  switch (task) {
    case TargetTask::classes:
      return reader.classes(like);
    case TargetTask::labels:
      return reader.numbers(FloatTargets::answers, like);
    case TargetTask::values:
    case TargetTask::automatic:
      break;
  }
  FRUGAL_ASSERT(task == TargetTask::values);
  return reader.numbers(FloatTargets::values, like);
}

}  // namespace frugal::data
