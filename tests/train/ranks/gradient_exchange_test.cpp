// What several ranks cannot do with their gradients is refused before a step.
#include "train/ranks/gradient_exchange.h"

#include <doctest/doctest.h>

#include "distributed/communicator.h"
#include "models/zoo/mlp.h"
#include "optim/optimizers.h"
#include "train/option_error.h"

namespace frugal::train {
namespace {

TEST_CASE("gradients of several ranks: options that contradict each other") {
  models::Init init;
  models::Mlp model(init, {4, {3}, 2, 0.0});
  optim::Sgd sgd(one_group(model.parameters()), {});
  RanksOptions options;
  options.communicator = distributed::imagined(2);
  const Ranks ranks(options);
  const auto make = [&](bool in_backward) {
    GradientExchange(ranks, model, sgd, options, in_backward, 0);
  };
  CHECK_NOTHROW(make(true));
  options.compress_gradients = 4;
  CHECK_THROWS_WITH_AS(make(true),
                       "ranks.compress_gradients: expected 0 with in_backward, which drops each "
                       "gradient at once",
                       OptionError);
  options.compress_gradients = 0;
  options.share_gradients = true;
  CHECK_THROWS_WITH_AS(make(false),
                       "ranks.share_gradients: expected an optimizer that is sharded beside "
                       "gradients that are",
                       OptionError);
}

}  // namespace
}  // namespace frugal::train
