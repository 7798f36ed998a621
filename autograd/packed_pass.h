// PackedPass: elementwise work on a saved tensor x that a codec does while it packs or unpacks x,
// so that nobody reads or writes x once more.
//
// A pass says what is computed, by shape, and names no op. An op that wants a fusion makes a pass;
// a codec runs the shapes that it has kernels for and declines all others, and then the op runs
// kernels of its own. Both ways give the same bits. A codec meets passes in two places:
//   Codec::pack_and_run()  x is the tensor that is packed;
//   Packed::run()          x is what unpack() would give, which then never is in memory as a whole.
#pragma once
#include <variant>

#include "autograd/saved_tensor.h"
#include "ops/options.h"

namespace frugal {

struct PackedPass {
  // x is seen as [rows, C], C its last axis. m is 1 where the bit of `mask` is set, else 0.
  // Operands that lie like x are contiguous, of x's dtype, and of `rows` alone where those are set.

  // out = f(x), or with dy, dy f'(x). Packed::run() takes away what the variance of x adds to it on
  // average, where that variance is known (ops/dense/elementwise.h).
  struct Map {
    ops::Unary f;
    Tensor dy = {};  // like x
  };
  // out = z = (x - a[0]) a[1] + a[2] + residual, by column. pack_and_run(), with `rectify`, writes
  // 0 where z <= 0 and tells by a mask which elements it kept. run() gives m z.
  struct Affine {
    Tensor a;              // [3, C] f32
    Tensor residual = {};  // like x
    bool rectify = false;
  };
  // out = m y k[1] + (x - k[0]) k[2] + k[3], by column.
  struct Combine {
    Tensor y;  // like x
    Tensor k;  // [4, C] f32
  };
  // The sums over rows of m y and of m y (x - center), by column, for each chunk of `chunk_rows`
  // rows. m y goes to `out`, where that is defined.
  struct Sums {
    Tensor y;        // like x
    Tensor center;   // [C] f32
    Tensor partial;  // [chunks, 2, C] f32, is written
    int64_t chunk_rows;
  };
  // out = the expected squared error of each element of unpack(), averaged over where a value may
  // lie between two levels.
  struct Variance {};

  // Which elements m keeps: those whose bit the codes carry, those whose bit is set in `bits` (the
  // layout by rows of ops/dense/bitmask.h), or all. SavedTensor::run() fills this in.
  struct Mask {
    bool in_codes = false;
    Tensor bits = {};
    bool keeps_all() const { return !in_codes && !bits.defined(); }
  };

  std::variant<Map, Affine, Combine, Sums, Variance> what;
  // Like x: where the result goes, which may be an operand that lies like x. Undefined: it is made,
  // except by Sums.
  Tensor out = {};
  Rows rows = {};    // the items of x's leading axis that the pass computes with
  Mask mask = {};    // which elements of x run() keeps
  Tensor kept = {};  // what `rectify` kept (ops/dense/bitmask.h); undefined where the codes tell

  bool is_variance() const { return std::holds_alternative<Variance>(what); }
  bool rectifies() const {
    const auto* affine = std::get_if<Affine>(&what);
    return affine != nullptr && affine->rectify;
  }
};

// The result of a pass over x, by the mask that is kept in `mask`, if that is defined. Undefined
// where x is to be unpacked instead.
Tensor run_over(const SavedTensor& x, PackedPass pass, const SavedTensor& mask = {});
Tensor run_over(const Packed& x, PackedPass pass);

// Undefined if x has no variance (it is kept without loss), or nobody knows the variance.
Tensor variance_of(const SavedTensor& x);
Tensor variance_of(const Packed& x);

}  // namespace frugal
