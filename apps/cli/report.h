// Reports for people and for scripts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "compress/offload/payload_store.h"
#include "core/memory.h"
#include "train/trainer.h"

namespace frugal::apps {

// {"activation_bytes", "packed_bytes", "peak_bytes", "at_peak": {category: bytes},
// "host_peak_rss"}; activation_bytes counts packed ones too.
Json memory_json(const StepMemory& memory);

// {"loss", "accuracy", "samples", NAME, "details"}: without accuracy where the data's metric has
// none, and with the metric under its name.
Json to_json(const Evaluation& evaluation, const BatchSpec& spec);
// "alpha" and the bounds are null with other optimizers than SGD, "bits" where none can be set.
Json to_json(const Convergence& convergence);
Json to_json(const std::optional<Convergence>& convergence);  // null before the first measurement
Json to_json(const PlanReport& plan);
Json to_json(const Compression::Widths& widths);
Json to_json(const RanksReport& report);

// summary.json. `offload`: what this process wrote and read, if anything lay in a file.
Json summary_json(const Config& config, const RunState& state, const Speed& speed,
                  const std::optional<compress::OffloadStats>& offload = {});

// Prints the document to stdout, indented by 2. ascii: other characters are escaped.
void print_json(const Json& document, bool ascii = false);

// While this lives, what this thread would print as JSON goes into `document` instead. So a program
// that embeds the commands gets what they find.
class TakenJson {
 public:
  TakenJson();
  ~TakenJson();
  TakenJson(const TakenJson&) = delete;
  TakenJson& operator=(const TakenJson&) = delete;
  Json document;

 private:
  Json* previous_;
};

// Columns padded to their widest cell; the first row is a heading. Columns after the first are
// right-aligned. Names of the first column that leave the others no room have lines of their own.
std::string table(const std::vector<std::vector<std::string>>& rows);

// One run, or several side by side with multiples of the first. Names head the columns.
// Errors: a summary that lacks a key.
std::string summary_table(const std::vector<std::string>& names,
                          const std::vector<Json>& summaries);

// What a line of the metrics of type "convergence" says.
std::string noise_text(const Json& convergence, int64_t step);

// Why gradients are kept until a step ends, as lines without the end of the last. Empty where they
// are not, where optim.in_backward says so, and where they take little. plan: of the memory budget,
// or null.
std::string kept_gradients(const Config& config, const Planner* plan = nullptr);

// What held the memory, and which settings to lower.
std::string explain(const OutOfMemory& error, const Config& config);

// "resnet20, L1, recipes", "resnet20, budget 1/16 activations", "resnet20, actnn L3".
std::string run_title(const Config& config);

}  // namespace frugal::apps
