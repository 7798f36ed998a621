#include "ops/dense/shape.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/copy.h"

// Gradients that are views of dy cost nothing; ops that need them contiguous copy them. Only
// contiguous outputs have a recipe, because a rebuild gives elements in the order of the shape.
namespace frugal {
namespace {

// y, which may be a view of x. A view of a parameter is kept as the parameter is.
Variable as_view(const Variable& x, Variable y) {
  if (x.is_held() && y.value().storage() == x.value().storage()) y.set_held();
  return y;
}

}  // namespace

// Shares x's storage when x is contiguous, so that saving both keeps one entry.
Variable reshape(const Variable& x, const Shape& shape) {
  const Tensor y = ops::reshape(x.value(), shape);
  return as_view(x, record(
                        "reshape", {x}, y, {for_recipe(x)},
                        [from = x.shape()](const Backward& b) {
                          return Grads{b.take_gradient().reshaped(from)};
                        },
                        linear_recipe([to = y.shape()](const Slots& s) {
                          return ops::reshape(s.unpack(0), to);
                        })));
}

Variable transpose(const Variable& x, int a, int b) {
  const auto describe = [&](TracedOp& t) {
    t.set("a", a);
    t.set("b", b);
  };
  return as_view(x,
                 record({"transpose", describe}, {x}, x.value().transpose(a, b), {},
                        [a, b](const Backward& back) { return Grads{back.dy().transpose(a, b)}; }));
}

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end) {
  const auto describe = [&](TracedOp& t) {
    t.set("axis", axis);
    t.set("begin", begin);
    t.set("end", end);
  };
  return as_view(x, record({"slice", describe}, {x}, x.value().slice(axis, begin, end), {},
                           [shape = x.shape(), axis, begin](const Backward& b) {
                             return Grads{ops::slice_backward(b.dy(), shape, axis, begin)};
                           }));
}

Variable concat(const Variables& xs, int axis) {
  std::vector<Tensor> values;
  std::vector<Save> saves;
  std::vector<int64_t> extents;
  for (const Variable& x : xs) {
    FRUGAL_CHECK(x.defined(), "[concat] expected every input to be a tensor, got an undefined one");
    values.push_back(x.value());
    saves.push_back(for_recipe(x));
  }
  const Tensor y = ops::concat(values, axis);
  for (const Variable& x : xs) extents.push_back(x.size(axis));
  return record(
      {"concat", [&](TracedOp& t) { t.set("axis", axis); }}, xs, y, saves,
      [axis, extents](const Backward& b) {
        // What is only added to a sum needs no bytes of its own. A view keeps all of dy alive until
        // the last input has used its part, and is copied by who writes over it. A part that is
        // most of dy stays a view, and then so do the others.
        const auto lives_on = [&](size_t i) {
          return b.needs(static_cast<int>(i)) && !b.partial(static_cast<int>(i)).defined();
        };
        bool copies = true;
        for (size_t i = 0; i < extents.size(); ++i)
          copies = copies && !(lives_on(i) && 2 * extents[i] > b.dy().size(axis));
        Grads grads;
        int64_t begin = 0;
        for (size_t i = 0; i < extents.size(); ++i) {
          const Tensor part = b.dy().slice(axis, begin, begin + extents[i]);
          grads.push_back(!b.needs(static_cast<int>(i)) ? Tensor()
                          : copies && lives_on(i)       ? ops::clone(part)
                                                        : part);
          begin += extents[i];
        }
        return grads;
      },
      linear_recipe(
          [axis](const Slots& s) {
            std::vector<Tensor> parts;
            for (int i = 0; i < s.size(); ++i) parts.push_back(s.unpack(i));
            return ops::concat(parts, axis);
          },
          normalize_axis("concat", axis, y.dim()) != 0));
}

Variable pad(const Variable& x, const std::vector<std::pair<int64_t, int64_t>>& padding,
             double value) {
  const auto describe = [&](TracedOp& t) {
    std::vector<int64_t> before, after;
    for (const auto& [first, last] : padding) {
      before.push_back(first);
      after.push_back(last);
    }
    t.set("before", before);
    t.set("after", after);
    t.set("value", value);
  };
  return record(
      {"pad", describe}, {x}, ops::pad(x.value(), padding, value), {for_recipe(x)},
      [padding](const Backward& b) { return Grads{ops::pad_backward(b.dy(), padding)}; },
      linear_recipe(
          [padding, value](const Slots& s) { return ops::pad(s.unpack(0), padding, value); }));
}

// The gradient is cast back. Integers have no gradient, so a cast to an integer dtype ends the
// graph.
Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = ops::cast(x.value(), dtype);
  if (!is_floating(dtype)) return Variable(y);
  return record("cast", {x}, y, {},
                [from = x.dtype()](const Backward& b) { return Grads{ops::cast(b.dy(), from)}; });
}

}  // namespace frugal
