// Detection on CUDA beside the CPU's, where the op table does not reach.
#include "ops/detection/match.h"
#include "tests/cuda/compare.h"

namespace frugal::ops {

TEST_CASE("matches on CUDA: counts of another sum reach no box beyond the last") {
  if (!gpu::available()) return;
  Tensor all = Tensor::empty({8, 4});
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t k = 0; k < 4; ++k)
      all.mut<float>()[4 * i + k] = static_cast<float>(10 * i + (k < 2 ? 0 : 8));
  const Tensor there = gpu::there(all), boxes = there.slice(0, 0, 5);
  for (const auto& counts : {std::vector<int64_t>{3, 5}, {-2, 9}, {9, -1}}) {
    const Tensor number = Tensor::from<int64_t>(counts, {2});
    fails("[match_boxes] expected counts with the sum 5",
          [&] { match_boxes(all.slice(0, 0, 5), number, all, {}); });
    for (const double match : match_boxes(boxes, gpu::there(number), there, {}).to_vector())
      CHECK(match < 5);
  }
}

}  // namespace frugal::ops
