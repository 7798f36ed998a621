// A network with an op of its own learns XOR; what backward needs is kept in 4 bits.
#include <frugal/frugal.h>

#include <cmath>
#include <cstdio>
#include <iostream>

using namespace frugal;

Tensor map(const Tensor& x, double (*f)(double)) {
  Tensor y = Tensor::empty(x.shape());
  for (int64_t i = 0; i < x.numel(); ++i) y.mut<float>()[i] = float(f(x.data<float>()[i]));
  return y;
}
double snake_of(double x) { return x + std::sin(x) * std::sin(x); }
double snake_slope(double x) { return 1 + std::sin(2 * x); }

// y = x + sin(x)^2, any shape, f32. Saves: x. Ref: Ziyin et al. 2020.
Variable snake(const Variable& x) {
  return record("snake", {x}, map(x.value(), snake_of), {save(x)}, [](const Backward& b) {
    Tensor dx = map(b.saved(0), snake_slope);
    for (int64_t i = 0; i < dx.numel(); ++i) dx.mut<float>()[i] *= b.dy().data<float>()[i];
    return Grads{dx};
  });
}

// The op as a layer.
class Snake : public Module {
 public:
  Variable forward(Variable x, Context&) override { return snake(x); }
};

int main(int, char** argv) {
  limit_spinning(argv);  // waiting threads leave the core to other processes
  // Points near the corners of a square, and whether their corner's coordinates differ.
  const Tensor corners = Tensor::of({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  const Tensor answers = Tensor::of({{0}, {1}, {1}, {0}});
  const Tensor x = ops::reshape(corners + 0.1 * Tensor::randn({128, 4, 2}, {1, 0}), {512, 2});
  const Tensor target = ops::reshape(ops::broadcast_to(answers, {128, 4, 1}), {512, 1});

  models::Sequential net{models::Linear(2, 32), Snake(), models::Linear(32, 1)};
  optim::Sgd sgd(net.parameters(), {.momentum = 0.9});
  compress::FixedPolicy policy({.bits = 4, .min_elements = 1024});
  Context context;

  int64_t packed = 0;
  double loss_value = 0;
  for (int step = 0; step < 300; ++step) {
    PolicyScope scope(&policy);
    Variable loss = mse_loss(net.forward(Variable(x), context), Variable(target));
    packed = allocator(kCpu).report().of(Category::packed);
    loss_value = loss.value().item();
    backward(loss);
    sgd.step(0.05);
    sgd.zero_grad();
  }
  std::cout << "weights of the last layer:\n" << *net.parameters()[2].parameter << '\n';
  std::printf("loss %.4f, %lld bytes packed\n", loss_value, static_cast<long long>(packed));
  return loss_value < 0.05 && packed > 0 ? 0 : 1;
}
