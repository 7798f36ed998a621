// From a configuration to the optimizer and its schedule.
#pragma once
#include <memory>

#include "apps/config/config.h"
#include "distributed/communicator.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace frugal::apps {

// Makes the optimizer. With distributed.sharding and several ranks (config.distributed.ranks), it
// keeps the state of one rank. `ranks`: null: they are imagined, for plans.
std::unique_ptr<Optimizer> make_optimizer(const Config& config, Module& model,
                                          const distributed::CommunicatorPtr& ranks = {});
// Warns of keys of the schedule that a run of `steps` steps does not come to.
void warn_of_unreached(const Config& config, int64_t steps_per_epoch, int64_t steps);
optim::SchedulePtr make_schedule(const Config& config, int64_t steps_per_epoch, int64_t steps);

}  // namespace frugal::apps
