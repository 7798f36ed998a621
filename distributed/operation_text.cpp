#include "distributed/operation_text.h"

namespace frugal::distributed {

std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::max:
      return "max";
    case Reduction::min:
      break;
  }
  return "min";
}

std::string text_of(const char* op, const Tensor& x, const std::string& how,
                    const std::string& what) {
  return fmt::format("{} of {} {}{}{}{}", op, x.numel(), frugal::name_of(x.dtype()), how,
                     what.empty() ? "" : ": ", what);
}

void check_reducible(const char* op, const Tensor& x) {
  const DType dtype = x.dtype();
  FRUGAL_CHECK(
      dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i64 || dtype == DType::bf16,
      "[{}] expected f32, f64, i64 or bf16, got {}", op, describe(x));
}

void check_contiguous(const char* op, const Tensor& x) {
  FRUGAL_CHECK(x.is_contiguous(), "[{}] expected a contiguous tensor, got {} with strides {}", op,
               describe(x), x.strides());
}

void check_root(int root, int ranks) {
  FRUGAL_CHECK(root >= 0 && root < ranks, "[broadcast] expected a root from 0 to {}, got {}",
               ranks - 1, root);
}

void check_all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                      const Bounds& receive_bounds, int rank, int ranks) {
  check_bounds("all_to_all", send_bounds, send.numel(), ranks);
  check_bounds("all_to_all", receive_bounds, receive.numel(), ranks);
  FRUGAL_CHECK(send.dtype() == receive.dtype() && send.device() == receive.device(),
               "[all_to_all] expected two tensors of one dtype on one device, got {} and {}",
               describe(send), describe(receive));
  const auto r = static_cast<size_t>(rank);
  const int64_t mine = send_bounds[r + 1] - send_bounds[r];
  FRUGAL_CHECK(mine == receive_bounds[r + 1] - receive_bounds[r],
               "[all_to_all] expected to get {} elements from this rank itself, got {}", mine,
               receive_bounds[r + 1] - receive_bounds[r]);
  check_contiguous("all_to_all", send);
  check_contiguous("all_to_all", receive);
}

}  // namespace frugal::distributed
