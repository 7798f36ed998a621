#include "train/batch_spec.h"

namespace frugal::train {

Batch shape_of_batch(const BatchSpec& spec, int64_t samples, Device device) {
  CategoryScope scope(Category::input);
  auto ids = [&](const Shape& shape) { return Tensor::empty(shape, DType::i64, device); };
  Batch batch;
  switch (spec.kind) {
    case BatchSpec::Kind::images:
    case BatchSpec::Kind::rows: {
      Shape shape{samples};
      for (const int64_t extent : spec.sample) shape.push_back(extent);
      batch.input = Tensor::empty(shape, DType::f32, device);
      batch.target = spec.mixes || spec.has_several_labels() || spec.has_values()
                         ? Tensor::empty({samples, spec.classes}, DType::f32, device)
                     : spec.target_of_each_pixel() ? ids({samples, spec.sample[0], spec.sample[1]})
                                                   : ids({samples});
      batch.samples = ids({samples});
      if (spec.mixes) batch.floats = FloatTargets::shares;
      if (spec.has_values()) batch.floats = FloatTargets::values;
      break;
    }
    case BatchSpec::Kind::sequences: {
      const Shape tokens{samples, spec.sample[0]};
      batch.input = ids(tokens);
      batch.target = spec.has_several_labels() || spec.has_values()
                         ? Tensor::empty({samples, spec.classes}, DType::f32, device)
                         : ids(spec.target_of_each_token() ? tokens : Shape{samples});
      if (spec.has_values()) batch.floats = FloatTargets::values;
      if (!spec.target_of_each_token()) batch.samples = ids({samples});
      for (const std::string& name : spec.token_extras)
        batch.extras.emplace_back(name, ids(tokens));
      break;
    }
    case BatchSpec::Kind::graph:
      batch.input = Tensor::empty({spec.sample[0], spec.is_sparse() ? 0 : spec.sample[1]},
                                  DType::f32, device);
      batch.target = spec.has_several_labels()
                         ? Tensor::empty({spec.sample[0], spec.classes}, DType::f32, device)
                         : ids({spec.sample[0]});
      batch.extras = spec.extras;
      batch.held = true;
      break;
  }
  return batch;
}

bool is_large_input(const BatchSpec& spec, int64_t samples) {
  constexpr int64_t kLarge = int64_t{64} << 20;
  const bool dense = spec.kind == BatchSpec::Kind::images || spec.kind == BatchSpec::Kind::rows;
  return dense && samples * spec.sample.numel() * static_cast<int64_t>(sizeof(float)) >= kLarge;
}

const char* target_name(BatchSpec::Target target) {
  using Target = BatchSpec::Target;
  switch (target) {
    case Target::class_of_sample:
      return "class_of_sample";
    case Target::labels:
      return "labels";
    case Target::values:
      return "values";
    case Target::class_of_pixel:
      return "class_of_pixel";
    case Target::class_of_token:
      return "class_of_token";
    case Target::boxes:
      return "boxes";
    case Target::views:
      return "views";
  }
  return "";
}

const char* unit_of(const BatchSpec& spec) {
  return spec.kind == BatchSpec::Kind::images  ? "images"
         : spec.kind == BatchSpec::Kind::rows  ? "rows"
         : spec.kind == BatchSpec::Kind::graph ? "nodes"
                                               : "tokens";
}

int64_t units_of(const BatchSpec& spec, const Batch& batch) {
  return spec.kind == BatchSpec::Kind::sequences ? batch.input.numel() : batch.input.size(0);
}

}  // namespace frugal::train
