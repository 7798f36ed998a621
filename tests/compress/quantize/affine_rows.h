// PackedPass::Affine as the tests of codecs run it.
#pragma once
#include "autograd/packed_pass.h"

namespace frugal::compress {

// (x - a[0]) a[1] + a[2] of rows of x where the bit that the codes carry is set, else 0.
inline Tensor affine_rows(const Packed& packed, int64_t begin, int64_t end, const Tensor& a) {
  PackedPass pass{PackedPass::Affine{a}};
  pass.rows = {begin, end, 1};  // the codec knows of how many
  pass.mask.in_codes = true;
  return run_over(packed, pass);
}

}  // namespace frugal::compress
