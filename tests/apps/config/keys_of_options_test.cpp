// Messages of the training library, as the program shows them.
#include "apps/config/keys/keys_of_options.h"

#include <doctest/doctest.h>

namespace frugal::apps {

TEST_CASE("a message of the library names keys where it named options") {
  const auto shown = [](const char* message, const char* expected) {
    CHECK(with_keys(message) == expected);
  };
  shown("trainer.keep_best: expected at least 1, got 0",
        "train.keep_best: expected at least 1, got 0");
  shown("budget.memory: too few. What fits: loader.batch_size = 12, or trainer.in_backward = true",
        "compression.memory_budget: too few. What fits: data.batch_size = 12, or "
        "optim.in_backward = true");
  shown("trainer.cuda_graphs, ranks.share_gradients.", "cuda_graphs, distributed.sharding.");
  shown("planner.recompute choice.offload", "compression.budget.recompute compression.offload");
  shown(
      "run_folder.path: runs/a is not empty; run_folder.resume continues it, "
      "run_folder.overwrite replaces it, another run_folder.path starts anew",
      "--out runs/a is not empty; --resume continues it, --overwrite replaces it, another --out "
      "starts anew");
  // What a user wrote stays, and so does what is no option.
  shown("got 'trainer.keep_best', xtrainer.keep_best and trainer.keep",
        "got 'trainer.keep_best', xtrainer.keep_best and trainer.keep");
}

}  // namespace frugal::apps
