#include "bench/op_table/op_table.h"

#include "core/rng.h"
#include "ops/dense/copy.h"

namespace frugal::op_table {

const std::vector<Op>& rows() {
  static const std::vector<Op> table = [] {
    std::vector<Op> all;
    add_dense(all);
    add_norm(all);
    add_elementwise(all);
    add_reduce(all);
    add_loss(all);
    add_pool(all);
    add_shape(all);
    add_transformer(all);
    add_graph(all);
    add_detection(all);
    add_contrastive(all);
    add_adapters(all);
    return all;
  }();
  return table;
}

Variables make_inputs(const Case& c, DType dtype, Device device, uint64_t seed) {
  Variables inputs;
  for (const Input& input : c.inputs) {
    CategoryScope scope(input.parameter ? Category::parameter : Category::activation);
    if (device.type == DeviceType::meta) {
      inputs.push_back(Variable(Tensor::empty(input.shape, dtype, device), true));
    } else {
      // Drawn in f32, so that both dtypes hold the same numbers.
      Tensor values = Tensor::empty(input.shape);
      const RngKey key{seed, inputs.size()};
      for (int64_t i = 0; i < values.numel(); ++i)
        values.mut<float>()[i] = static_cast<float>(
            input.lo + (input.hi - input.lo) * uniform(key, static_cast<uint64_t>(i)));
      const bool stays = input.parameter && dtype == DType::bf16;
      inputs.push_back(
          Variable(to_device(stays ? values : ops::cast(values, dtype), device), true));
    }
    if (input.parameter) inputs.back() = Variable::parameter(inputs.back().value());
  }
  return inputs;
}

Saved nothing() {
  return [](int64_t) { return std::vector<int64_t>{}; };
}

Saved bytes(int64_t n) {
  return [n](int64_t) { return std::vector<int64_t>{n}; };
}

Case one(const std::string& name, const Shape& shape, std::function<Variable(const Variable&)> f,
         Saved saved) {
  return {.name = name,
          .inputs = {{shape}},
          .run = [f](const Variables& v) { return f(v[0]); },
          .saved = std::move(saved)};
}

Saved elements(std::vector<int64_t> counts) {
  return [counts = std::move(counts)](int64_t element) {
    std::vector<int64_t> bytes;
    for (int64_t count : counts) bytes.push_back(count * element);
    return bytes;
  };
}

Tensor beside(const Variable& x, const Tensor& values) { return to_device(values, x.device()); }

DType parameter_dtype(const Variable& x) {
  return x.dtype() == DType::bf16 ? DType::f32 : x.dtype();
}

Tensor f32(const Shape& shape) { return Tensor::zeros(shape); }
Variable leaf(const Shape& shape) { return Variable(f32(shape), true); }

}  // namespace frugal::op_table
