// The gradient of a cross-entropy, or the probabilities, take the place of logits that nobody else
// holds. Losses that keep their gradient scale it where it lies.
#include <doctest/doctest.h>

#include <functional>

#include "autograd/checkpoint.h"
#include "autograd/detection_functions.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/node.h"
#include "autograd/segmentation_functions.h"
#include "core/rng.h"

using namespace frugal;

namespace {

Variable leaf(const Shape& shape, Device device = kCpu) {
  const Tensor x = Tensor::empty(shape, DType::f32, device);
  if (device.type != DeviceType::meta)
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] = uniform({3, 0}, static_cast<uint64_t>(i));
  return Variable(x, true);
}

constexpr int64_t kLogitRows = 6, kClasses = 5;

// Keeps everything raw, and says that it might not.
class RawButLossy final : public SavePolicy {
 public:
  Decision decide(const SaveInfo&, const Tensor&) override { return {}; }
  bool lossy() const override { return true; }
};

// The gradient of `loss` of x.
template <class F>
std::vector<double> gradient(F loss) {
  Variable x = leaf({kLogitRows, kClasses});
  backward(loss(x));
  return x.grad().to_vector();
}

}  // namespace

TEST_CASE("cross_entropy: backward takes no tensor of the logits' size") {
  const Shape shape{4096, 30522};
  const Tensor target = Tensor::empty({4096}, DType::i64, kMeta);
  const int64_t size = 4 * shape.numel();
  for (const bool held : {false, true}) {
    Variable x = leaf(shape, kMeta), kept;
    const int64_t before = allocator(kMeta).report().live_total;
    allocator(kMeta).reset_peak();
    Variable logits = scale(x, 2);
    const Variable loss = cross_entropy(logits, target);
    if (held) kept = logits;
    logits = {};
    CHECK(allocator(kMeta).report().peak_total - before < size + size / 100);
    backward(loss);
    // The logits, and the gradient of what they are made from; and of themselves.
    const int64_t peak = allocator(kMeta).report().peak_total - before;
    CHECK(peak > (held ? 3 : 2) * size);
    CHECK(peak < (held ? 3 : 2) * size + size / 100);
  }
}

TEST_CASE("cross_entropy: probabilities take the place of logits that are moved in") {
  RawButLossy policy;
  const PolicyScope scope(&policy);
  const Shape shape{4096, 30522};
  const Tensor on_meta = Tensor::empty({4096}, DType::i64, kMeta);
  const int64_t size = 4 * shape.numel();
  for (const bool moved : {false, true}) {
    Variable x = leaf(shape, kMeta);
    const int64_t before = allocator(kMeta).report().live_total;
    allocator(kMeta).reset_peak();
    Variable logits = scale(x, 2);
    const Variable loss =
        moved ? cross_entropy(std::move(logits), on_meta) : cross_entropy(logits, on_meta);
    const int64_t peak = allocator(kMeta).report().peak_total - before;
    CHECK(peak > (moved ? 1 : 2) * size - 1);
    CHECK(peak < (moved ? 1 : 2) * size + size / 100);
  }

  const Tensor target = Tensor::from<int64_t>({0, 1, 2, 3, 4, 0}, {kLogitRows});
  Variable held;
  const auto wanted = gradient([&](const Variable& x) {
    held = scale(x, 2);
    return cross_entropy(held, target);
  });
  CHECK(gradient([&](const Variable& x) { return cross_entropy(scale(x, 2), target); }) == wanted);
  // Somebody else has the bytes.
  Tensor view;
  CHECK(gradient([&](const Variable& x) {
          Variable y = scale(x, 2);
          view = y.value().slice(0, 0, 1);
          return cross_entropy(std::move(y), target);
        }) == wanted);
  const auto logits = held.value().to_vector();
  CHECK(view.to_vector() == std::vector<double>(logits.begin(), logits.begin() + kClasses));
  // A leaf of the caller stays as it is.
  Variable x = leaf({kLogitRows, kClasses});
  const auto values = x.value().to_vector();
  backward(cross_entropy(x, target));
  CHECK(x.value().to_vector() == values);
}

TEST_CASE("cross_entropy: who else needs the logits finds them, and gradients are the same") {
  const Tensor target = Tensor::from<int64_t>({0, 1, 2, 3, 4, 0}, {kLogitRows});
  const auto alone =
      gradient([&](const Variable& x) { return cross_entropy(scale(x, 2), target); });

  // A handle of the caller.
  Variable logits;
  std::vector<double> values;
  CHECK(gradient([&](const Variable& x) {
          logits = scale(x, 2);
          values = logits.value().to_vector();
          return cross_entropy(logits, target);
        }) == alone);
  CHECK(logits.value().to_vector() == values);
  logits = {};

  // A view of the bytes.
  Tensor view;
  CHECK(gradient([&](const Variable& x) {
          const Variable y = scale(x, 2);
          view = y.value().slice(0, 0, 1);
          return cross_entropy(y, target);
        }) == alone);
  CHECK(view.to_vector() == std::vector<double>(values.begin(), values.begin() + kClasses));

  // Another op that has saved them, walked before or after.
  const auto square = gradient([](const Variable& x) {
    const Variable y = scale(x, 2);
    return sum(mul(y, y));
  });
  for (const bool first : {false, true}) {
    const auto both = gradient([&](const Variable& x) {
      const Variable y = scale(x, 2);
      if (first) {
        const Variable penalty = sum(mul(y, y));
        return add(cross_entropy(y, target), penalty);
      }
      const Variable loss = cross_entropy(y, target);
      return add(loss, sum(mul(y, y)));
    });
    for (size_t i = 0; i < both.size(); ++i)
      CHECK(both[i] == doctest::Approx(alone[i] + square[i]).epsilon(1e-5));
  }

  // An op whose own output they are, and which needs them in its backward.
  const auto through = [&](bool hold) {
    Variable held;
    return gradient([&](const Variable& x) {
      const Variable y = exp(x);
      if (hold) held = y;
      return cross_entropy(y, target);
    });
  };
  CHECK(through(false) == through(true));

  // A leaf, and one inside a checkpoint.
  Variable x = leaf({kLogitRows, kClasses});
  const std::vector<double> before = x.value().to_vector();
  backward(cross_entropy(x, target));
  CHECK(x.value().to_vector() == before);
  CHECK(gradient([&](const Variable& v) {
          return checkpoint(
              [&](const Variables& inputs) { return cross_entropy(scale(inputs[0], 2), target); },
              {v});
        }) == alone);
}

TEST_CASE("sigmoid_focal_loss: the gradient takes the place of logits that are moved in") {
  const Shape shape{1 << 16, kClasses};
  const Tensor on_meta = Tensor::zeros({shape[0]}, DType::i64, kMeta);
  const int64_t size = 4 * shape.numel();
  for (const bool moved : {false, true}) {
    const Variable x = leaf(shape, kMeta);
    Variable logits = scale(x, 2);
    const int64_t before = allocator(kMeta).report().live_total;
    allocator(kMeta).reset_peak();
    const Variable loss = moved ? sigmoid_focal_loss(std::move(logits), on_meta)
                                : sigmoid_focal_loss(logits, on_meta);
    const int64_t peak = allocator(kMeta).report().peak_total - before;
    CHECK(peak < (moved ? 0 : size) + size / 100);
    CHECK(peak >= (moved ? 0 : size));
  }

  const Tensor classes = Tensor::from<int64_t>({0, 1, 2, 3, 4, -1}, {kLogitRows});
  Variable held;
  const auto wanted = gradient([&](const Variable& x) {
    held = scale(x, 2);
    return sigmoid_focal_loss(held, classes);
  });
  const auto logits = held.value().to_vector();
  const auto moved = [&](const Variable& x) { return sigmoid_focal_loss(scale(x, 2), classes); };
  CHECK(gradient(moved) == wanted);
  // The loss is that of the logits, too.
  const Variable x = leaf({kLogitRows, kClasses});
  CHECK(moved(x).value().item() == sigmoid_focal_loss(held, classes).value().item());
  CHECK(held.value().to_vector() == logits);
  // Somebody else has the bytes.
  Tensor view;
  CHECK(gradient([&](const Variable& leaf_of_loss) {
          Variable y = scale(leaf_of_loss, 2);
          view = y.value().slice(0, 0, 1);
          return sigmoid_focal_loss(std::move(y), classes);
        }) == wanted);
  CHECK(view.to_vector() == std::vector<double>(logits.begin(), logits.begin() + kClasses));
  // An op that needs its own output in its backward.
  const auto through = [&](bool hold) {
    Variable kept;
    return gradient([&](const Variable& v) {
      Variable y = exp(v);
      if (hold) kept = y;
      return sigmoid_focal_loss(std::move(y), classes);
    });
  };
  CHECK(through(false) == through(true));
  // A leaf of the caller, and logits without a gradient, stay as they are.
  Variable own = leaf({kLogitRows, kClasses});
  const auto values = own.value().to_vector();
  backward(sigmoid_focal_loss(own, classes));
  CHECK(own.value().to_vector() == values);
}

TEST_CASE("losses that keep their gradient scale it where it lies") {
  using Loss = std::function<Variable(const Variable&, Device)>;
  const std::vector<std::pair<const char*, Loss>> losses = {
      {"binary_cross_entropy",
       [](const Variable& x, Device device) {
         return binary_cross_entropy(x, Tensor::zeros(x.shape(), DType::f32, device));
       }},
      {"soft_cross_entropy",
       [](const Variable& x, Device device) {
         return soft_cross_entropy(x, Tensor::full(x.shape(), 0.2, DType::f32, device), 0);
       }},
      {"focal_cross_entropy",
       [](const Variable& x, Device device) {
         return focal_cross_entropy(x, Tensor::zeros({x.size(0)}, DType::i64, device), {}, {});
       }},
      {"sigmoid_focal_loss",
       [](const Variable& x, Device device) {
         return sigmoid_focal_loss(x, Tensor::zeros({x.size(0)}, DType::i64, device));
       }},
      {"smooth_l1_loss",
       [](const Variable& x, Device device) {
         return smooth_l1_loss(x, Tensor::zeros(x.shape(), DType::f32, device));
       }},
  };
  for (const auto& [name, loss] : losses) {
    const auto& this_name = name;
    CAPTURE(this_name);
    const Shape shape{1 << 16, kClasses};
    const Variable x = leaf(shape, kMeta);
    const Variable made = loss(x, kMeta);
    const int64_t before = allocator(kMeta).report().live_total;
    allocator(kMeta).reset_peak();
    backward(made);
    CHECK(allocator(kMeta).report().peak_total - before < shape.numel());  // a fourth of the size

    // The product is that of a gradient which somebody else holds, too.
    const auto wanted =
        gradient([&loss = loss](const Variable& y) { return scale(loss(y, kCpu), 3); });
    Variable y = leaf({kLogitRows, kClasses});
    const Variable sum = scale(loss(y, kCpu), 3);
    const std::shared_ptr<Node> producer = sum.producer()->inputs[0].node;
    const SavedTensor other = producer->slots[0];
    const std::vector<double> kept = other.unpack().to_vector();
    backward(sum);
    CHECK(y.grad().to_vector() == wanted);
    CHECK(other.unpack().to_vector() == kept);
  }
}
