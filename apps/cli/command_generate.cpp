#include <algorithm>
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/config/data/make_tokenizer.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "data/text/token_stream.h"
#include "models/generate.h"

namespace frugal::apps {
namespace {

// The run to continue texts with: its folder, or a configuration and weights.
StoredRun run_of(const GenerateArguments& arguments) {
  if (is_folder(arguments.config)) return read_run(arguments.config, arguments.sets);
  StoredRun run;
  run.config = load_config(arguments.config, arguments.sets);
  resolve(run.config);
  run.description.spec = batch_spec(run.config);
  run.description.text.tokenizer = tokenizer_of(run.config);
  return run;
}

// Prints a text as it comes, up to the first of some texts. What may be the beginning of one of
// them waits until it is known.
class UpToStop {
 public:
  explicit UpToStop(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase(stops_, "");
  }
  // False: a text has come at which printing ends.
  bool add(const std::string& piece) {
    held_ += piece;
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
    if (first != std::string::npos) {
      print(first);
      held_.clear();
      return false;
    }
    size_t waits = 0;
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > waits; --n)
        if (held_.ends_with(stop.substr(0, n))) waits = n;
    print(held_.size() - waits);
    return true;
  }
  void finish() { print(held_.size()); }

 private:
  void print(size_t bytes) {
    std::fwrite(held_.data(), 1, bytes, stdout);
    held_.erase(0, bytes);
  }
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace

void generate_command(const GenerateArguments& arguments) {
  const StoredRun run = run_of(arguments);
  const Config& config = run.config;
  const Device device = set_up_computing_device(config.run, "generated");
  const auto tokenizer = run.description.text.tokenizer;
  if (family_of(config.model) != Family::decoder || tokenizer == nullptr)
    throw ConfigError("model.name", fmt::format("expected a language model and text, got {} and {}",
                                                config.model.name, config.data.name));
  if (run.folder.empty() && arguments.checkpoint.empty())
    throw ConfigError("",
                      "generate: expected the folder of a run, or a configuration and "
                      "--checkpoint with its weights");
  try {
    const auto model = std::dynamic_pointer_cast<models::LanguageModel>(stored_network(
        run, arguments.checkpoint.empty() ? arguments.weights : arguments.checkpoint, device));
    models::prepare_to_generate(*model);
    data::TokenIds begin = tokenizer->encode(arguments.prompt);
    if (begin.empty()) throw ConfigError("", "--prompt: expected a text of at least one token");
    const data::TokenIds before = tokenizer->before_text();
    begin.insert(begin.begin(), before.begin(), before.end());
    const std::vector<int64_t> ids(begin.begin(), begin.end());
    models::GenerateOptions options;
    options.tokens = arguments.tokens;
    options.temperature = arguments.temperature;
    options.top_k = arguments.top_k;
    options.top_p = arguments.top_p;
    options.min_p = arguments.min_p;
    options.repetition_penalty = arguments.repetition_penalty;
    options.seed = arguments.seed;
    data::TokenStream text(*tokenizer, begin);
    UpToStop printed(arguments.stop);
    std::fputs(arguments.prompt.c_str(), stdout);
    std::fflush(stdout);  // what follows comes a token at a time
    bool stopped = false;
    models::generate(*model, Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}), options,
                     [&](int64_t id) {
                       // Outputs beyond the tokenizer's tokens stand for nothing.
                       if (id < tokenizer->size())
                         stopped = !printed.add(text.add(static_cast<int32_t>(id)));
                       return std::fflush(stdout) == 0 && !stopped;
                     });
    if (!stopped) stopped = !printed.add(text.finish());
    if (!stopped) printed.finish();
    std::fputs("\n", stdout);
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
