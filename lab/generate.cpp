// The time of a token that `frugal generate` writes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/report.h"
#include "apps/json.h"
#include "core/parallel.h"
#include "core/words/nouns.h"
#include "lab/commands.h"
#include "models/freeze.h"
#include "models/generate.h"
#include "models/pack.h"
#include "models/zoo/decoder.h"
#include "ops/dense/copy.h"
#include "train/statistics.h"

namespace frugal::lab {

using namespace apps;

namespace {

using models::Decoder, models::LanguageModel;

// Its hidden states are made of the whole text for each token.
class WithoutPast : public LanguageModel {
 public:
  explicit WithoutPast(std::shared_ptr<LanguageModel> model) : model_(std::move(model)) {}
  Variable hidden(const Tensor& ids, Context& context) override {
    return model_->hidden(ids, context);
  }
  Head head(Variable hidden) override { return model_->head(std::move(hidden)); }
  int64_t context_length() const override { return model_->context_length(); }

 private:
  std::shared_ptr<LanguageModel> model_;
};

// SmolLM2-135M's shape, or `layers` of it. The values are numbers of bf16, as in published files.
std::unique_ptr<Decoder> make_decoder(int64_t layers) {
  models::DecoderOptions shape;
  shape.layers = layers, shape.hidden = 576, shape.heads = 9, shape.kv_heads = 3;
  shape.inner = 1536, shape.vocab_size = 49152, shape.context_length = 2048, shape.tied = true;
  models::Init init;
  auto model = std::make_unique<Decoder>(init, shape);
  for (const Module::NamedParameter& p : model->parameters())
    ops::copy_into(p.parameter->value(),
                   ops::cast(ops::cast(p.parameter->value(), DType::bf16), DType::f32));
  return model;
}

struct Way {
  std::string name;
  std::shared_ptr<LanguageModel> model;
  std::vector<double> seconds = {}, each = {};  // a text takes `seconds`, its median token `each`
  std::vector<double> tokens = {};
};

std::vector<Way> all_ways(int64_t layers) {
  const std::shared_ptr<Decoder> whole = make_decoder(layers), ready = make_decoder(layers);
  models::prepare_to_generate(*ready);
  std::vector<Way> ways = {{"whole text for each token", std::make_shared<WithoutPast>(whole)},
                           {"f32", whole},
                           {"numbers of bf16", ready}};
  for (const ops::MatrixFormat format : {ops::MatrixFormat::int8, ops::MatrixFormat::nf4}) {
    const std::shared_ptr<Decoder> packed = make_decoder(layers);
    frugal::freeze(*packed, {"model.layers."});
    models::pack(*packed, {format, {}});
    ways.push_back({"frozen " + std::string(ops::name_of(format)), packed});
  }
  return ways;
}

void write_text(Way& way, int64_t tokens) {
  models::GenerateOptions options;
  options.tokens = tokens;
  options.temperature = 0;
  std::vector<double> times;
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const Tensor prompt = Tensor::from(std::vector<int64_t>{5, 6, 7, 8}, {1, 4});
  way.tokens = models::generate(*way.model, prompt, options, [&](int64_t) {
                 const auto now = std::chrono::steady_clock::now();
                 times.push_back(seconds(last, now));
                 last = now;
                 return true;
               }).to_vector();
  way.seconds.push_back(seconds(begin, last));
  way.each.push_back(median(times));
}

}  // namespace

void study_generate(const LabArguments& arguments) {
  const int64_t rounds = arguments.repeats == 0 ? 3 : arguments.repeats;
  std::vector<Way> ways = all_ways(arguments.network_layers);
  for (int64_t round = 0; round < rounds; ++round)
    for (Way& way : ways) write_text(way, arguments.tokens);
  Json list = Json::array();
  std::vector<std::vector<std::string>> lines = {
      {"weights", "a text", "a token", "times faster", "text"}};
  const double slowest = median(ways.front().seconds);
  for (const Way& way : ways) {
    const double took = median(way.seconds), ms = 1000 * median(way.each);
    const bool same = way.tokens == ways.front().tokens;
    list.push_back({{"weights", way.name},
                    {"seconds", took},
                    {"ms_per_token", ms},
                    {"faster", slowest / took},
                    {"same_text", same}});
    lines.push_back({way.name, fmt::format("{:.3f} s", took), fmt::format("{:.2f} ms", ms),
                     fmt::format("{:.1f}", slowest / took), same ? "the same" : "another"});
  }
  if (arguments.json)
    return print_json({{"tokens", arguments.tokens},
                       {"layers", arguments.network_layers},
                       {"threads", num_threads()},
                       {"repeats", rounds},
                       {"results", list}});
  std::printf("%s, %s, %s, medians of %lld\n%s", with_noun(arguments.tokens, "token").c_str(),
              with_noun(arguments.network_layers, "layer").c_str(),
              with_noun(num_threads(), "thread").c_str(), static_cast<long long>(rounds),
              table(lines).c_str());
}

}  // namespace frugal::lab
