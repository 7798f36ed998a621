#include "ops/dense/packed_linear.h"

#include "autograd/packed_functions.h"
#include "autograd/record.h"
#include "ops/dense/matmul.h"

namespace frugal {

Variable packed_linear(const Variable& x, const ops::PackedMatrix& weight, const Variable& bias) {
  std::vector<Save> saves;
  if (x.requires_grad())
    for (const auto& [ending, tensor] : weight.parts()) saves.push_back({*tensor, Role::weight});
  return record(
      "packed_linear", {x, bias},
      ops::packed_linear(x.value(), weight, bias.defined() ? bias.value() : Tensor()), saves,
      [format = weight.format, rows = weight.rows, columns = weight.columns](const Backward& b) {
        Grads grads(2);
        if (b.needs(1)) grads[1] = ops::linear_backward_bias(b.dy());
        if (!b.needs(0)) return grads;
        ops::PackedMatrix packed{format, rows, columns, b.saved(0), {}, {}, {}};
        if (format != ops::MatrixFormat::bf16) packed.scales = b.saved(1);
        if (format == ops::MatrixFormat::nf4) {
          packed.scale_blocks = b.saved(2);
          packed.scale_mean = b.saved(3);
        }
        grads[0] = ops::packed_linear_backward_input(b.dy(), packed);
        return grads;
      });
}

}  // namespace frugal
