// SharedStatistics: batch norm over the batches of all ranks.
#pragma once
#include "distributed/communicator.h"
#include "ops/image/batch_statistics.h"

namespace frugal::distributed {

// While it lives, batch norms in training use the statistics of all ranks' batches
// (ops/image/batch_statistics.h). One gather of 1 + 2 C numbers for each batch norm in each pass.
// A channel of its own (Communicator::channel()) lets them pass the sums of gradients. Does nothing
// where there is one rank.
class SharedStatistics {
 public:
  explicit SharedStatistics(CommunicatorPtr communicator);

 private:
  std::unique_ptr<ops::SharedStatistics> scope_;
};

}  // namespace frugal::distributed
