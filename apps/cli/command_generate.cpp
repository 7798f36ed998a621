#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/config/make_model.h"
#include "apps/config/make_tokenizer.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "data/formats/safetensors.h"
#include "models/generate.h"
#include "models/state.h"
#include "train/weights.h"

namespace frugal::apps {

void generate_command(const GenerateArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  const Device device = set_up_computing_device(config.run, "generated");
  const auto tokenizer = tokenizer_of(config);
  if (family_of(config.model) != Family::decoder || tokenizer == nullptr)
    throw ConfigError("model.name", fmt::format("expected a language model and text, got {} and {}",
                                                config.model.name, config.data.name));
  const auto file = open_weights(arguments.checkpoint);
  try {
    const auto model = std::dynamic_pointer_cast<models::LanguageModel>(
        make_model(config, batch_spec(config), device));
    load_weights(*model, file);
    const data::TokenIds begin = tokenizer->encode(arguments.prompt);
    if (begin.empty()) throw ConfigError("", "--prompt: expected a text of at least one token");
    const std::vector<int64_t> ids(begin.begin(), begin.end());
    models::GenerateOptions options;
    options.tokens = arguments.tokens;
    options.temperature = arguments.temperature;
    options.top_k = arguments.top_k;
    options.seed = arguments.seed;
    std::fputs(arguments.prompt.c_str(), stdout);
    std::fflush(stdout);  // what follows comes a token at a time
    models::generate(*model, Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}), options,
                     [&](int64_t id) {
                       // Outputs beyond the tokenizer's tokens stand for nothing.
                       if (id < tokenizer->size())
                         std::fputs(tokenizer->decode({static_cast<int32_t>(id)}).c_str(), stdout);
                       return std::fflush(stdout) == 0;
                     });
    std::fputs("\n", stdout);
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
