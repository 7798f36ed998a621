#include "models/zoo/swin_window.h"

#include "autograd/functions.h"
#include "core/memory.h"
#include "models/init.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr float kApart = -100;

// Rolls x along `axis`: item i moves to i - by, around the end.
Variable turn(const Variable& x, int axis, int64_t by) {
  const int64_t n = x.size(axis);
  by = ((by % n) + n) % n;
  if (by == 0) return x;
  return concat({slice(x, axis, by, n), slice(x, axis, 0, by)}, axis);
}

// The band of a row in the rolled image: 0 for rows in windows that the seam does not cut, 1 for
// rows before the seam, 2 for rows after it.
int64_t band(int64_t row, int64_t rows, int64_t side, int64_t shift) {
  if (shift == 0 || row < rows - side) return 0;
  return row < rows - shift ? 1 : 2;
}

}  // namespace

Windows::Windows(const Shape& image, int64_t side, int64_t shift)
    : n_(image[0]),
      height_(image[1]),
      width_(image[2]),
      channels_(image[3]),
      side_(side),
      rows_((height_ + side - 1) / side),
      columns_((width_ + side - 1) / side),
      row_shift_(rows_ > 1 ? shift : 0),
      column_shift_(columns_ > 1 ? shift : 0) {}

bool Windows::padded() const { return rows_ * side_ != height_ || columns_ * side_ != width_; }

Variable Windows::part(const Variable& x) const {
  Variable y = x;
  if (padded())
    y = pad(x, {{0, 0}, {0, rows_ * side_ - height_}, {0, columns_ * side_ - width_}, {0, 0}});
  y = turn(turn(y, 1, row_shift_), 2, column_shift_);
  y = reshape(y, {n_, rows_, side_, columns_, side_, channels_});
  y = transpose(transpose(y, 1, 2), 2, 4);  // [N, side, side, columns, rows, C]
  return reshape(y, {n_, tokens(), count(), channels_});
}

Variable Windows::join(const Variable& y) const {
  Variable x = reshape(y, {n_, side_, side_, columns_, rows_, channels_});
  x = transpose(transpose(x, 2, 4), 1, 2);
  x = reshape(x, {n_, rows_ * side_, columns_ * side_, channels_});
  x = turn(turn(x, 1, -row_shift_), 2, -column_shift_);
  return padded() ? slice(slice(x, 1, 0, height_), 2, 0, width_) : x;
}

Tensor Windows::apart(int64_t heads, Device device, DType dtype) const {
  if (row_shift_ == 0 && column_shift_ == 0) return {};
  const Tensor out =
      Tensor::zeros({count() * heads, tokens(), tokens()}, DType::f32, drawn_on(device));
  const auto region = [&](int64_t window, int64_t token) {
    const int64_t row = window % rows_ * side_ + token / side_;
    const int64_t column = window / rows_ * side_ + token % side_;
    return 3 * band(row, rows_ * side_, side_, row_shift_) +
           band(column, columns_ * side_, side_, column_shift_);
  };
  if (float* values = out.mut<float>(); values != nullptr)
    for (int64_t each = 0; each < count() * heads; ++each)
      for (int64_t a = 0; a < tokens(); ++a)
        for (int64_t b = 0; b < tokens(); ++b, ++values)
          if (region(each / heads, a) != region(each / heads, b)) *values = kApart;
  return to_device(ops::cast(out, dtype), device);
}

Tensor relative_positions(int64_t side, Device device) {
  CategoryScope scope(Category::parameter);
  const int64_t tokens = side * side, offsets = 2 * side - 1;
  const Tensor out = Tensor::empty({tokens * tokens}, DType::i64, drawn_on(device));
  int64_t* values = out.mut<int64_t>();
  if (values == nullptr) return out;
  for (int64_t a = 0; a < tokens; ++a)
    for (int64_t b = 0; b < tokens; ++b)
      *values++ = (a / side - b / side + side - 1) * offsets + a % side - b % side + side - 1;
  return to_device(out, device);
}

}  // namespace frugal::models
