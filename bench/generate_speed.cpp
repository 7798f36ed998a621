// The time of a token that `frugal generate` writes: a decoder of SmolLM2-135M's shape with random
// weights that are numbers of bf16, as in published files, beside the same without cached keys and
// values, and with frozen weights in few bits.
// cmake --build build/release --target frugal_generate_speed
// build/release/bin/frugal_generate_speed [TOKENS [ROUNDS]]   256 tokens, 3 rounds
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "models/freeze.h"
#include "models/generate.h"
#include "models/pack.h"
#include "models/zoo/decoder.h"
#include "ops/dense/copy.h"

using namespace frugal;
using namespace frugal::models;

namespace {

// Its hidden states are made of the whole text for each token.
class WithoutPast : public LanguageModel {
 public:
  explicit WithoutPast(LanguageModel& model) : model_(model) {}
  Variable hidden(const Tensor& ids, Context& context) override {
    return model_.hidden(ids, context);
  }
  Head head(Variable hidden) override { return model_.head(std::move(hidden)); }
  int64_t context_length() const override { return model_.context_length(); }

 private:
  LanguageModel& model_;
};

std::unique_ptr<Decoder> make_decoder() {
  DecoderOptions shape;
  shape.layers = 30, shape.hidden = 576, shape.heads = 9, shape.kv_heads = 3, shape.inner = 1536;
  shape.vocab_size = 49152, shape.context_length = 2048, shape.tied = true;
  Init init;
  auto model = std::make_unique<Decoder>(init, shape);
  for (const Module::NamedParameter& p : model->parameters())
    ops::copy_into(p.parameter->value(),
                   ops::cast(ops::cast(p.parameter->value(), DType::bf16), DType::f32));
  return model;
}

struct Measured {
  double seconds = 0, median = 0;  // all tokens take `seconds`, and one takes `median`
  std::vector<double> tokens;
};

Measured measure(LanguageModel& model, int64_t tokens) {
  using Clock = std::chrono::steady_clock;
  GenerateOptions options;
  options.tokens = tokens;
  options.temperature = 0;
  std::vector<double> times;
  const auto begin = Clock::now();
  auto last = begin;
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const Tensor text = generate(model, Tensor::from(std::vector<int64_t>{5, 6, 7, 8}, {1, 4}),
                               options, [&](int64_t) {
                                 const auto now = Clock::now();
                                 times.push_back(seconds(last, now));
                                 last = now;
                                 return true;
                               });
  std::sort(times.begin(), times.end());
  return {seconds(begin, last), times.at(times.size() / 2), text.to_vector()};
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 256;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  if (tokens < 1 || rounds < 1) {
    std::fputs("usage: frugal_generate_speed [TOKENS [ROUNDS]], both at least 1\n", stderr);
    return 2;
  }
  const std::unique_ptr<Decoder> whole = make_decoder(), ready = make_decoder();
  WithoutPast without(*whole);
  prepare_to_generate(*ready);
  std::vector<std::pair<std::string, LanguageModel*>> all = {
      {"whole text for each token", &without}, {"f32", whole.get()}, {"bf16 numbers", ready.get()}};
  std::vector<std::unique_ptr<Decoder>> packed;
  for (const ops::MatrixFormat format : {ops::MatrixFormat::int8, ops::MatrixFormat::nf4}) {
    packed.push_back(make_decoder());
    freeze(*packed.back(), {"model.layers."});
    pack(*packed.back(), {format, {}});
    all.emplace_back("frozen " + std::string(ops::name_of(format)), packed.back().get());
  }
  std::vector<double> text;
  for (int round = 0; round < rounds; ++round)
    for (const auto& [name, model] : all) {
      const Measured m = measure(*model, tokens);
      if (text.empty()) text = m.tokens;
      std::printf("%-26s %8.3f s  %7.2f ms a token%s\n", name.c_str(), m.seconds, 1e3 * m.median,
                  m.tokens == text ? "" : "  (another text)");
      std::fflush(stdout);
    }
}
