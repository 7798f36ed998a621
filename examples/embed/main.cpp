// A network with an op of its own learns XOR; what backward needs is kept in 4 bits.
#include <frugal/frugal.h>

#include <cmath>
#include <cstdio>

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

int main(int, char** argv) {
  limit_spinning(argv);  // waiting threads leave the core to other processes
  Tensor x = Tensor::empty({512, 2}), target = Tensor::empty({512, 1});
  for (int64_t i = 0; i < 512; ++i) {
    const bool a = i & 1, b = i & 2;
    x.mut<float>()[2 * i] = float(a) + 0.1f * normal({1, 0}, uint64_t(2 * i));
    x.mut<float>()[2 * i + 1] = float(b) + 0.1f * normal({1, 0}, uint64_t(2 * i + 1));
    target.mut<float>()[i] = float(a != b);
  }

  models::Init init;
  models::Linear hidden(init, 2, 32), output(init, 32, 1);
  ParameterGroup all;
  for (Module* layer : {static_cast<Module*>(&hidden), static_cast<Module*>(&output)})
    for (auto& p : layer->parameters()) all.parameters.emplace_back(p.name, *p.parameter);
  optim::Sgd sgd({all}, {.momentum = 0.9});
  compress::FixedPolicy policy({.level = "L1", .min_elements = 1024});
  Context context;

  int64_t packed = 0;
  double loss_value = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    begin_step(step);
    PolicyScope scope(&policy);
    Variable y = output.forward(snake(hidden.forward(Variable(x), context)), context);
    Variable loss = mse_loss(y, Variable(target));
    packed = allocator(kCpu).report().of(Category::packed);
    loss_value = loss.value().item();
    backward(loss);
    sgd.step(0.05);
    for (auto& [name, parameter] : all.parameters) parameter.zero_grad();
  }
  std::printf("loss %.4f, %lld bytes packed\n", loss_value, static_cast<long long>(packed));
  return loss_value < 0.05 && packed > 0 ? 0 : 1;
}
