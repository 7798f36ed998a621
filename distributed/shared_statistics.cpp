#include "distributed/shared_statistics.h"

#include <algorithm>

namespace frugal::distributed {

SharedStatistics::SharedStatistics(CommunicatorPtr communicator) {
  if (communicator->size() == 1) return;
  scope_ = std::make_unique<ops::SharedStatistics>([communicator](const Tensor& row) {
    const int64_t n = row.numel();
    const Tensor all = Tensor::empty({communicator->size(), n}, DType::f64);
    std::copy_n(row.data<double>(), n, all.mut<double>() + communicator->rank() * n);
    Bounds bounds;
    for (int64_t r = 0; r <= communicator->size(); ++r) bounds.push_back(r * n);
    communicator->all_gather(all, bounds, "statistics of a batch norm");
    return all;
  });
}

}  // namespace frugal::distributed
