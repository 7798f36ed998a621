#include "compress/policies/actnn_ranges.h"

#include "core/cuda/cuda_kernel.h"
#include "core/finite.h"

namespace frugal::compress {
namespace {

using namespace frugal::cuda;

constexpr float kInfinity = __builtin_inff();

struct Extremes {
  float mn = kInfinity, mx = -kInfinity;
  __device__ void add(float x) {  // NaN is passed over
    mn = x < mn ? x : mn;
    mx = x > mx ? x : mx;
  }
  __device__ double square() const {
    const double range = static_cast<double>(mx) - static_cast<double>(mn);
    return is_finite(range) ? range * range : 0;
  }
};

// How samples are cut. The last one may be longer than the others.
struct Cut {
  int64_t count, size, numel, cols, group, every_rows;
  int64_t groups;  // groups of the longest sample
  __device__ int64_t elements(int64_t n) const { return n + 1 == count ? numel - n * size : size; }
};

// terms[n, g, c], a thread for each: neighbours read neighbouring columns.
template <class T>
__global__ void column_terms_kernel(Cut cut, const T* x, double* terms) {
  for (int64_t i = first_index(); i < cut.count * cut.groups * cut.cols; i += index_stride()) {
    const int64_t c = i % cut.cols, g = i / cut.cols % cut.groups, n = i / cut.cols / cut.groups;
    const int64_t rows = cut.elements(n) / cut.cols, first = g * cut.group;
    double term = 0;
    if (first < rows) {
      const int64_t take = std::min(cut.group, rows - first);
      const int64_t every = std::max<int64_t>(take / cut.every_rows, 1), looks = take / every;
      const T* from = x + n * cut.size + first * cut.cols + c;
      Extremes all;
#pragma unroll 8
      for (int64_t r = 0; r < looks; ++r) all.add(load(from[r * every * cut.cols]));
      term = static_cast<double>(take) * all.square();
    }
    terms[i] = term;
  }
}

__global__ void add_terms_kernel(int64_t sums, int64_t groups, int64_t cols, const double* terms,
                                 double* to) {
  for (int64_t i = first_index(); i < sums; i += index_stride()) {
    double sum = 0;
    for (int64_t g = 0; g < groups; ++g) sum += terms[(i / cols * groups + g) * cols + i % cols];
    to[i] = sum;
  }
}

}  // namespace

void range_sums_kernel(Cuda, const RangeJob& job, double* sums) {
  const Samples& samples = job.samples;
  const int64_t longest = samples.numel - (samples.count - 1) * samples.size();
  const int64_t cols = samples.cols, rows = longest / cols;
  const Cut cut{samples.count,
                samples.size(),
                samples.numel,
                cols,
                job.group,
                RangeJob::kLookedRows,
                (rows + job.group - 1) / job.group};
  int current = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&current));
  const Device device{DeviceType::cuda, current};
  const CategoryScope scope(Category::workspace);
  const int64_t count = cut.count * cols;
  const Tensor terms = Tensor::empty({count * cut.groups}, DType::f64, device);
  const Tensor added = Tensor::empty({count}, DType::f64, device);
  double* each = terms.mut<double>();
  with_activation(job.dtype, [&]<class T>(T) {
    const T* x = static_cast<const T*>(job.x);
    launch(column_terms_kernel<T>, {blocks_for(terms.numel())}, cut, x, each);
  });
  launch(add_terms_kernel, {blocks_for(count)}, count, cut.groups, cols, each, added.mut<double>());
  frugal::copy_bytes(sums, kCpu, added.raw(), device, added.nbytes());
}

}  // namespace frugal::compress
