#include "ops/graph_attention_loops.h"

// See simd_loops.cpp.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/graph_attention_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/graph_attention-inl.h"

// Plain loops: the compiler vectorises them for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

using View = GraphAttention<float>;

HWY_ATTR void Sums(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  attention::sums(a, row, begin, end, out);
}
HWY_ATTR void Values(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  attention::values(a, row, begin, end, out);
}
HWY_ATTR void Target(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  attention::target(a, row, begin, end, out);
}
HWY_ATTR void Source(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  attention::source(a, row, begin, end, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(Sums);
HWY_EXPORT(Values);
HWY_EXPORT(Target);
HWY_EXPORT(Source);

void attention_sums(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                    float* out) {
  HWY_DYNAMIC_DISPATCH(Sums)(a, row, begin, end, out);
}
void attention_values(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Values)(a, row, begin, end, out);
}
void attention_target(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Target)(a, row, begin, end, out);
}
void attention_source(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Source)(a, row, begin, end, out);
}

void attention_sums(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                    double* out) {
  attention::sums(a, row, begin, end, out);
}
void attention_values(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  attention::values(a, row, begin, end, out);
}
void attention_target(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  attention::target(a, row, begin, end, out);
}
void attention_source(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  attention::source(a, row, begin, end, out);
}

}  // namespace frugal::ops::simd
#endif
