#include "ops/loss/soft_cross_entropy.h"

#include <limits>

#include "ops/cuda/cuda_row_teams.h"

// The host reads nothing back, so it cannot refuse a wrong share. The loss is NaN instead.
namespace frugal::ops {
namespace {

using namespace cuda;

constexpr int kSoftBlock = 1024;
constexpr float kNoShare = std::numeric_limits<float>::quiet_NaN();

__global__ void __launch_bounds__(kSoftBlock)
    count_soft_rows(const float* target, int64_t rows, int64_t width, double* counted) {
  double count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kSoftBlock)
    if (!(target[row * width] < 0)) count += 1;
  count = block_sum(count);
  if (threadIdx.x == 0) *counted = count;
}

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    soft_rows(const typename Kind::T* logits, const float* target, int64_t rows, int64_t width,
              float sharp, float even, int64_t step, const double* counted,
              typename Kind::T* gradient, double* partial) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  __shared__ double of_teams[Kind::kTeams];
  const int64_t begin = blockIdx.x * step, end = begin + step < rows ? begin + step : rows;
  const double all = *counted;
  const auto factor = static_cast<float>(all == 0 ? 0 : 1 / all);
  double loss = 0;
  for (int64_t row = begin + Kind::team(); row < end; row += Kind::kTeams) {
    const Row<Kind> from(logits + row * width, width);
    const float* shares = target + row * width;
    typename Kind::T* to = gradient + row * width;
    if (shares[0] < 0) {  // all threads of the team agree
      from.map(to, [](int64_t, float) { return 0.0f; });
      continue;
    }
    float top = kLeast;
    from.each([&](int64_t, float v) { top = v > top ? v : top; });
    const float most = Kind::across(top, kLeast, Larger{});
    const double total =
        from.template sum<double>([most](int64_t, float v) { return expf(v - most); });
    const auto log_sum = static_cast<float>(static_cast<double>(most) + ::log(total));
    const auto share_of = [=](int64_t column) {
      const float share = shares[column];
      return share >= 0 ? sharp * share + even : kNoShare;
    };
    loss += from.template sum<double>([=](int64_t column, float v) {
      const float share = share_of(column);
      return share == 0 ? 0.0f : share * (log_sum - v);  // 0 times an infinite term would be NaN
    });
    const auto sum_of_shares = static_cast<float>(
        from.template sum<double>([=](int64_t column, float) { return share_of(column); }));
    from.map(to, [=](int64_t column, float v) {
      return factor * (sum_of_shares * expf(v - log_sum) - share_of(column));
    });
  }
  if (Kind::lane() == 0) of_teams[Kind::team()] = loss;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int team = 1; team < Kind::kTeams; ++team) loss += of_teams[team];
  partial[blockIdx.x] = loss;
}

__global__ void __launch_bounds__(kSoftBlock)
    finish_soft_loss(const double* partial, int64_t n, const double* counted, float* loss) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kSoftBlock) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = static_cast<float>(total / *counted);
}

}  // namespace

void soft_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                               const SoftCrossEntropyResult& result, double label_smoothing) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  const CategoryScope scope(Category::workspace);
  const Tensor counted = Tensor::empty({}, DType::f64, logits.device());
  launch(count_soft_rows, {dim3(1), kSoftBlock}, target.data<float>(), rows, width,
         counted.mut<double>());
  const auto even = static_cast<float>(label_smoothing / static_cast<double>(width));
  const auto sharp = static_cast<float>(1 - label_smoothing);
  with_activation(logits.dtype(), [&]<class T>(T) {
    with_row_kind<T>(width, {&logits, &result.gradient}, [&]<class Kind>(Kind) {
      // At most a few thousand partial sums.
      const int64_t step = std::max<int64_t>(ceil_div(rows, 4096), Kind::kTeams);
      const int64_t blocks = ceil_div(rows, step);
      const Tensor partial = Tensor::empty({blocks}, DType::f64, logits.device());
      if (blocks > 0)
        launch(soft_rows<Kind>, {as_blocks(blocks), Kind::kThreads}, logits.data<T>(),
               target.data<float>(), rows, width, sharp, even, step, counted.data<double>(),
               result.gradient.mut<T>(), partial.mut<double>());
      launch(finish_soft_loss, {dim3(1), kSoftBlock}, partial.data<double>(), blocks,
             counted.data<double>(), result.loss.mut<float>());
    });
  });
}

}  // namespace frugal::ops
