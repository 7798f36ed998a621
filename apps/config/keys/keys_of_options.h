// The training library knows no configuration: its messages name an option by its owner.
#pragma once
#include <string>

namespace frugal::apps {

// A message with the path of the key in the place of each option of the library, and the option of
// the command line in the place of each of a run's folder: "train.keep_best" for
// "trainer.keep_best", "--resume" for "run_folder.resume".
std::string with_keys(const std::string& message);

}  // namespace frugal::apps
