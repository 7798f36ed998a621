#include "ops/optimizer/clip.h"

#include <algorithm>
#include <cmath>

#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/optimizer/sgd.h"
#include "ops/optimizer/trained.h"

namespace frugal::ops {
namespace {

template <class T, class F>
bool any(const Tensor& x, const F& counts) {
  return std::any_of(x.data<T>(), x.data<T>() + x.numel(), counts);
}

void check_norm(const char* op, const Tensor& norm, Device device) {
  check_shape(op, "the norm", norm, {});
  FRUGAL_CHECK(norm.dtype() == DType::f64 && norm.device() == device,
               "[{}] expected the norm of dtype f64 on {}, got {}", op, device.str(),
               describe(norm));
}

}  // namespace

void joint_norm_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm) {
  double sum = 0;
  for (const Tensor& x : tensors) {
    double one = 0;
    sum_of_squares_kernel(Cpu{}, x, one);
    sum += one;
  }
  *norm.mut<double>() = std::sqrt(sum);
}

void clip_to_kernel(Cpu, const std::vector<Tensor>& tensors, const Tensor& norm, double most) {
  const double factor = clip_factor(*norm.data<double>(), most);
  if (factor == 1) return;
  for (const Tensor& x : tensors) scale_inplace_kernel(Cpu{}, x, factor);
}

void may_step_kernel(Cpu, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag) {
  const bool fine =
      std::isfinite(*loss.data<float>()) ||
      !(target.dtype() == DType::i64 ? any<int64_t>(target, [&](int64_t t) { return t != ignored; })
                                     : any<float>(target, [](float t) { return !(t < 0); }));
  *flag.mut<uint8_t>() = fine && (!norm.defined() || std::isfinite(*norm.data<double>())) ? 1 : 0;
}

Tensor joint_norm(const std::vector<Tensor>& tensors) {
  const CategoryScope scope(Category::workspace);
  if (tensors.empty()) return Tensor::zeros({}, DType::f64);
  const Device device = tensors.front().device();
  std::vector<Tensor> dense;
  for (const Tensor& x : tensors) {
    check_trained("joint_norm", x, device);
    dense.push_back(contiguous(x));
  }
  const Tensor norm = Tensor::empty({}, DType::f64, device);
  dispatch(device, [&](auto backend) { joint_norm_kernel(backend, dense, norm); });
  return norm;
}

void clip_to(const std::vector<Tensor>& tensors, const Tensor& norm, double most) {
  if (tensors.empty()) return;
  const Device device = tensors.front().device();
  check_norm("clip_to", norm, device);
  for (const Tensor& x : tensors) {
    check_trained("clip_to", x, device);
    FRUGAL_CHECK(x.is_contiguous(), "[clip_to] expected contiguous tensors, got {}", describe(x));
  }
  dispatch(device, [&](auto backend) { clip_to_kernel(backend, tensors, norm, most); });
  for (const Tensor& x : tensors) x.bump_version();
}

Tensor may_step(const Tensor& loss, const Tensor& target, int64_t ignored, const Tensor& norm) {
  check_shape("may_step", "the loss", loss, {});
  FRUGAL_CHECK(loss.dtype() == DType::f32, "[may_step] expected a loss of dtype f32, got {}",
               describe(loss));
  const Device device = loss.device();
  if (norm.defined()) check_norm("may_step", norm, device);
  check_defined("may_step", "the target", target);
  FRUGAL_CHECK(
      (target.dtype() == DType::i64 || target.dtype() == DType::f32) && target.device() == device,
      "[may_step] expected a target of dtype i64 or f32 on {}, got {}", device.str(),
      describe(target));
  const CategoryScope scope(Category::workspace);
  const Tensor flag = Tensor::empty({}, DType::u8, device);
  const Tensor dense = contiguous(target);
  dispatch(device,
           [&](auto backend) { may_step_kernel(backend, loss, dense, ignored, norm, flag); });
  return flag;
}

}  // namespace frugal::ops
