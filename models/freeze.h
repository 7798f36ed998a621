// Frozen parameters: they require no gradient, so no step changes them, and nothing is saved for
// them.
#pragma once
#include <string>
#include <vector>

#include "core/option.h"
#include "models/module.h"

namespace frugal {

// The entry of freeze() that stands for every parameter but those of the last layer.
constexpr const char* kAllButHead = "all but head";

struct FreezeOptions {
  // Batch norms whose parameters are frozen use their running statistics, unchanged. False: they
  // use the batch's, and their running statistics move.
  bool keep_statistics = true;

  static std::vector<by_name::Option<FreezeOptions>> list() {
    return {{{"freeze_statistics", by_name::range::flag(),
              "freeze: batch norms of frozen layers use their running statistics and leave them; "
              "false: they use the batch's."},
             &FreezeOptions::keep_statistics}};
  }
};

// Freezes the parameters that fit one of the patterns (models/name_pattern.h). A pattern behind "!"
// takes parameters out again: {"all but head", "!layer4."} trains layer4 and the head. Later
// entries go before earlier ones. Returns the names of what is frozen.
//   freeze(model, {kAllButHead});
// Errors: a pattern that fits no parameter; kAllButHead for a network without a head
// (Module::head_prefix); nothing is left to train.
std::vector<std::string> freeze(Module& model, const std::vector<std::string>& patterns,
                                const FreezeOptions& options = {});

// Trains again what freeze() froze. Parameters that the network itself holds fixed, such as the
// copy of models::SelfSupervised, stay so. Returns whether there was anything.
bool thaw(Module& model);

}  // namespace frugal
