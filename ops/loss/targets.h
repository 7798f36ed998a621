// Checks of losses whose targets are class numbers.
#pragma once
#include <span>

#include "ops/checks.h"

namespace frugal::ops {

// The shape of the rows of logits [..., C].  Errors: fewer than 2 axes, no class, or a target that
// is not [...] i64 on the device of the logits.
inline Shape check_targets(const char* op, const Tensor& logits, const Tensor& target) {
  check_real(op, "logits", logits);
  FRUGAL_CHECK(logits.dim() >= 2, "[{}] expected logits with at least 2 axes, got {}", op,
               describe(logits));
  FRUGAL_CHECK(logits.size(-1) > 0, "[{}] expected at least one class, got logits {}", op,
               describe(logits));
  const Shape rows(std::span(logits.shape().begin(), static_cast<size_t>(logits.dim() - 1)));
  check_shape(op, "target", target, rows);
  FRUGAL_CHECK(target.dtype() == DType::i64 && target.device() == logits.device(),
               "[{}] expected target of dtype i64 on {}, got {}", op, logits.device().str(),
               describe(target));
  return rows;
}

}  // namespace frugal::ops
