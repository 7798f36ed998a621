#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/commands.h"
#include "apps/cli/given_path.h"
#include "apps/cli/report.h"
#include "apps/config/data/make_tokenizer.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/run_encoding.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "core/log.h"
#include "core/words/nouns.h"
#include "data/text/token_stream.h"
#include "models/generate.h"

namespace frugal::apps {
namespace {

// The run to continue texts with: its folder, or a configuration and weights.
StoredRun run_of(const GenerateArguments& arguments) {
  must_be_there("RUN", arguments.config);
  if (is_folder(arguments.config)) return read_run(arguments.config, arguments.sets);
  StoredRun run;
  run.config = load_config(arguments.config, arguments.sets);
  resolve(run.config);
  run.description.spec = batch_spec(run.config);
  run.description.text.tokenizer = tokenizer_of(run.config);
  if (arguments.chat) {
    const auto known = std::make_shared<RunEncoding>();
    known->samples = Tokenizers().samples(run.config);
    run.config.data.known = known;
  }
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
  const std::string& printed() const { return printed_; }

 private:
  void print(size_t bytes) {
    std::fwrite(held_.data(), 1, bytes, stdout);
    printed_.append(held_, 0, bytes);
    held_.erase(0, bytes);
  }
  std::vector<std::string> stops_;
  std::string held_, printed_;
};

// Writes texts with a network, a token at a time.
struct Writer {
  models::LanguageModel& model;
  data::SampleEncoder encoder;
  models::GenerateOptions options;
  std::vector<std::string> stops;
  models::SeenText seen = {};

  // What comes behind `begin`, up to the end of a text or one of `stops`; it is printed, and a line
  // end behind it.
  std::string write(const data::TokenIds& begin) {
    const std::vector<int64_t> ids(begin.begin(), begin.end());
    data::TokenStream text(*encoder.tokenizer, begin);
    UpToStop out(stops);
    bool stopped = false;
    models::generate(
        model, Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}), options,
        [&](int64_t id) {
          if (id == encoder.end) return false;
          // Outputs beyond the tokenizer's tokens stand for nothing.
          if (id < encoder.tokenizer->size())
            stopped = !out.add(text.add(static_cast<int32_t>(id)));
          return std::fflush(stdout) == 0 && !stopped;
        },
        &seen);
    if (!stopped) stopped = !out.add(text.finish());
    if (!stopped) out.finish();
    std::fputs("\n", stdout);
    std::fflush(stdout);
    return out.printed();
  }
};

void continue_text(Writer& writer, const std::string& prompt) {
  data::TokenIds begin = writer.encoder.tokenizer->encode(prompt);
  if (begin.empty()) throw ConfigError("", "--prompt: expected a text of at least one token");
  const data::TokenIds before = writer.encoder.tokenizer->before_text();
  begin.insert(begin.begin(), before.begin(), before.end());
  if (const int64_t most = writer.model.context_length(); static_cast<int64_t>(begin.size()) > most)
    log().warn(
        "[generate] the prompt has {}, and the network sees {}: it does not know the "
        "beginning",
        with_noun(begin.size(), "token"), most);
  std::fputs(prompt.c_str(), stdout);
  std::fflush(stdout);  // what follows comes a token at a time
  writer.write(begin);
}

// The next line of the input that is not blank; nothing: the input ends.
std::optional<std::string> next_message() {
  const bool asks = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  for (std::string line;;) {
    if (asks) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, line)) {
      if (asks) std::fputs("\n", stdout);
      return std::nullopt;
    }
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return line;
  }
}

// Answers `arguments.prompt`, or each line of the input, knowing what was said before.
void chat(Writer writer, const GenerateArguments& arguments) {
  writer.stops.push_back(writer.encoder.chat->answer_end().value_or(""));
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto say = [&](const char* role, const std::string& text) {
    messages.push_back({{"role", role}, {"content", text}});
  };
  if (!arguments.system.empty()) say("system", arguments.system);
  bool told = false;
  std::optional<std::string> message = arguments.prompt ? arguments.prompt : next_message();
  while (message) {
    say("user", *message);
    const data::TokenIds ids = data::prompt_ids(writer.encoder, {messages, nullptr});
    const auto room = writer.model.context_length() - static_cast<int64_t>(ids.size());
    if (room < 0 && !told)
      log().warn(
          "[generate] the conversation has {}, and the network sees {}: it no longer knows the "
          "beginning",
          with_noun(ids.size(), "token"), writer.model.context_length());
    told = told || room < 0;
    say("assistant", writer.write(ids));
    ++writer.options.seed;  // other draws for the next answer
    message = arguments.prompt ? std::nullopt : next_message();
  }
}

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
  const data::SampleEncoder encoder = sample_encoder(run);
  if (arguments.chat && !encoder.chat)
    throw ConfigError("",
                      "--chat: expected a run whose tokenizer's folder has a chat template "
                      "(chat_template.jinja, or chat_template in tokenizer_config.json), got none");
  try {
    const auto model = std::dynamic_pointer_cast<models::LanguageModel>(stored_network(
        run, arguments.checkpoint.empty() ? arguments.weights : arguments.checkpoint, device));
    models::prepare_to_generate(*model);
    Writer writer{*model, encoder, {}, arguments.stop};
    writer.options.tokens = arguments.tokens;
    writer.options.temperature = arguments.temperature;
    writer.options.top_k = arguments.top_k;
    writer.options.top_p = arguments.top_p;
    writer.options.min_p = arguments.min_p;
    writer.options.repetition_penalty = arguments.repetition_penalty;
    writer.options.seed = arguments.seed;
    if (arguments.chat) return chat(std::move(writer), arguments);
    continue_text(writer, arguments.prompt.value_or("\n"));
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
