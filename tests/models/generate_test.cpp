#include "models/generate.h"

#include <limits>
#include <map>
#include <set>

#include "models/pack.h"
#include "models/zoo/gpt2.h"
#include "ops/dense/copy.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

// Its logits are a table's row of the last token alone.
class Table : public LanguageModel {
 public:
  explicit Table(std::vector<std::vector<float>> rows) : rows_(std::move(rows)) {}
  Variable hidden(const Tensor& tokens, Context& context) override {
    CHECK(!context.training);
    longest = std::max(longest, tokens.size(1));
    CHECK(tokens.size(1) <= context_length());
    Tensor out = Tensor::zeros({1, tokens.size(1), 1});
    for (int64_t t = 0; t < tokens.size(1); ++t)
      out.mut<float>()[t] = static_cast<float>(tokens.item(t));
    return Variable(out);
  }
  Head head(Variable hidden) override {
    CHECK(hidden.shape() == Shape{1, 1, 1});  // one position alone
    const auto& row = rows_.at(static_cast<size_t>(hidden.value().item()));
    return {Variable(Tensor::full({1, 1, 1}, 1, DType::f32, kCpu)),
            Variable(Tensor::from(row, {static_cast<int64_t>(row.size()), 1})),
            {}};
  }
  int64_t context_length() const override { return 4; }
  int64_t longest = 0;

 private:
  std::vector<std::vector<float>> rows_;
};

Tensor prompt(const std::vector<int64_t>& tokens) {
  return Tensor::from(tokens, {1, static_cast<int64_t>(tokens.size())});
}

}  // namespace

TEST_CASE("generate: at temperature 0 the likeliest token, the first of equals") {
  Table model({{0, 1, 2}, {5, 5, 1}, {0, 9, 0}});
  GenerateOptions options;
  options.temperature = 0;
  options.tokens = 6;
  const Tensor y = generate(model, prompt({0}), options);
  CHECK(y.shape() == Shape{1, 6});
  CHECK(y.to_vector() == std::vector<double>{2, 1, 0, 2, 1, 0});
  CHECK(model.longest == 4);  // the window
  options.tokens = 0;
  CHECK(generate(model, prompt({0}), options).shape() == Shape{1, 0});
}

TEST_CASE("generate: tokens are drawn as often as their probabilities say") {
  const float ln2 = 0.6931472f;
  Table model({{0, ln2, 2 * ln2, -ln2},
               {0, ln2, 2 * ln2, -ln2},
               {0, ln2, 2 * ln2, -ln2},
               {0, ln2, 2 * ln2, -ln2}});
  GenerateOptions options;
  options.tokens = 6000;
  const auto frequencies = [&] {
    std::map<int64_t, double> seen;
    for (const double token : generate(model, prompt({0}), options).to_vector())
      seen[static_cast<int64_t>(token)] += 1 / 6000.0;
    return seen;
  };
  // Five standard errors are below 0.033.
  auto seen = frequencies();
  const double total = 1 + 2 + 4 + 0.5;
  for (const auto& [token, weight] : std::map<int64_t, double>{{0, 1}, {1, 2}, {2, 4}, {3, 0.5}})
    CHECK(std::abs(seen[token] - weight / total) < 0.033);
  options.top_k = 2;
  seen = frequencies();
  CHECK(seen.size() == 2);
  CHECK(std::abs(seen[2] - 4.0 / 6) < 0.033);
  options.top_k = 0;
  options.temperature = 0.5;  // squares the ratios
  seen = frequencies();
  CHECK(std::abs(seen[2] - 16 / (1 + 4 + 16 + 0.25)) < 0.033);
}

TEST_CASE("generate: top_p of a vocabulary takes the likeliest tokens that reach it") {
  // Equal logits but one that is lower: the first 800 of 2,000 tokens, more than are sorted at
  // once, have 0.4 of the probability, and token 5 is in the rest.
  std::vector<float> row(2000, 1);
  row[5] = -30;
  Table model(std::vector<std::vector<float>>(2000, row));
  GenerateOptions options;
  options.tokens = 4000;
  options.top_p = 799.5 / 1999;
  std::set<double> seen;
  for (const double token : generate(model, prompt({0}), options).to_vector()) seen.insert(token);
  CHECK(*seen.rbegin() <= 800);
  CHECK(*seen.rbegin() > 700);  // 4,000 draws miss the last 100 with the likelihood 0.875^4000
  CHECK(seen.count(5) == 0);
  CHECK(seen.size() > 700);  // each of 800 is missed with the likelihood 0.0067
}

TEST_CASE("generate: the seed decides, the listener ends it") {
  Init init;
  Gpt2 net(init, {1, 8, 2, 12, 6});
  GenerateOptions options;
  options.tokens = 20;
  const auto run = [&](uint64_t seed) {
    options.seed = seed;
    return generate(net, prompt({1, 2}), options).to_vector();
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
  std::vector<double> told;
  const Tensor y = generate(net, prompt({1, 2}), options, [&](int64_t token) {
    told.push_back(static_cast<double>(token));
    return told.size() < 5;
  });
  CHECK(y.to_vector() == told);
  CHECK(told.size() == 5);
}

namespace {

// Counts the tokens that its layers compute; may forget that it keeps the past.
class Counting : public Gpt2 {
 public:
  Counting(Init& init, bool keeps) : Gpt2(init, {2, 8, 2, 12, 9}), keeps_(keeps) {}
  int64_t past_length() const override { return keeps_ ? context_length() : 0; }
  Variable hidden(const Tensor& ids, Context& context) override {
    computed += ids.size(1);
    return Gpt2::hidden(ids, context);
  }
  Variable continued(const Tensor& ids, Past& past, Context& context) override {
    computed += ids.size(1);
    return Gpt2::continued(ids, past, context);
  }
  int64_t computed = 0;

 private:
  bool keeps_;
};

}  // namespace

TEST_CASE("generate: the keys and values of a token are computed once") {
  Init one, other;
  Counting keeps(one, true), forgets(other, false);
  GenerateOptions options;
  options.tokens = 7;  // with the prompt 9, all that the network sees
  const auto text = [&](Counting& net) {
    return generate(net, prompt({1, 2}), options).to_vector();
  };
  CHECK(text(keeps) == text(forgets));
  CHECK(keeps.computed == 2 + 6);
  CHECK(forgets.computed == 2 + 3 + 4 + 5 + 6 + 7 + 8);
  // Beyond, positions move, and all is computed again.
  keeps.computed = 0;
  options.tokens = 10;
  CHECK(text(keeps) == text(forgets));
  CHECK(keeps.computed == 9 + 2 * 9);
}

TEST_CASE("generate: tokens that an earlier call has seen are not computed again") {
  Init one, other;
  Counting keeps(one, true), forgets(other, false);
  GenerateOptions options;
  options.tokens = 2;
  SeenText seen;
  // What was computed for the prompt's answer, which is that of a model that has seen nothing.
  const auto computed = [&](const std::vector<int64_t>& begin) {
    CAPTURE(begin.size());
    keeps.computed = 0;
    CHECK(generate(keeps, prompt(begin), options, {}, &seen).to_vector() ==
          generate(forgets, prompt(begin), options).to_vector());
    CHECK(seen.past.tokens == static_cast<int64_t>(seen.ids.size()));
    return keeps.computed;
  };
  CHECK(computed({1, 2, 3}) == 3 + 1);
  std::vector<int64_t> next = seen.ids;  // the prompt and the first of its two new tokens
  CHECK(next.size() == 4);
  next.push_back(7);
  CHECK(computed(next) == 1 + 1);
  CHECK(computed(next) == 1 + 1);       // what follows the last token is not kept
  CHECK(computed({1, 2, 5}) == 1 + 1);  // another end
  CHECK(computed({1}) == 1 + 1);        // a beginning alone
  CHECK(computed({2, 2, 5}) == 3 + 1);  // another beginning
  CHECK(computed({2, 2, 5, 4, 3, 2, 1, 0}) == 5 + 1);
  CHECK(computed({2, 2, 5, 4, 3, 2, 1, 0, 6}) == 1 + 9);  // the answer leaves the window
  CHECK(seen.ids.empty());
  CHECK(computed({1, 2, 3}) == 3 + 1);
  CHECK(computed({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) == 9 + 9);  // longer than the window
  CHECK(computed({1, 2, 3}) == 3 + 1);
  // Nothing is left of a text at which a call has failed.
  CHECK_THROWS_WITH_AS(generate(keeps, prompt({1, 2, 99}), options, {}, &seen),
                       doctest::Contains("99"), Error);
  CHECK(seen.ids.empty());
  CHECK(computed({1, 2, 3}) == 3 + 1);
}

TEST_CASE("generate: weights that are numbers of bf16 are read as such, and the tokens stay") {
  const auto make = [](bool exact) {
    Init init;
    auto net = std::make_shared<Gpt2>(init, Gpt2Options{2, 8, 2, 12, 9});
    if (exact)
      for (const Module::NamedParameter& p : net->parameters())
        ops::copy_into(p.parameter->value(),
                       ops::cast(ops::cast(p.parameter->value(), DType::bf16), DType::f32));
    return net;
  };
  GenerateOptions options;
  options.tokens = 7;
  for (const bool exact : {true, false}) {
    CAPTURE(exact);
    const auto whole = make(exact), ready = make(exact);
    prepare_to_generate(*ready);
    CHECK(packed_weights(*ready) == (exact ? 2 * 12 * 8 * 8 : 0));  // 2 layers
    CHECK(ready->packed_head().defined() == exact);
    CHECK(generate(*ready, prompt({1, 2}), options).to_vector() ==
          generate(*whole, prompt({1, 2}), options).to_vector());
  }
}

TEST_CASE("append: rows follow each other, and few tokens copy those before") {
  Tensor past;
  std::vector<double> expected;
  int64_t copies = 0;
  uint64_t storage = 0;
  for (int64_t n = 0; n < 300; ++n) {
    const Tensor own = Tensor::rand({1, 1 + n % 3, 2, 4}, {5, static_cast<uint64_t>(n)});
    for (const double value : own.to_vector()) expected.push_back(value);
    CHECK(&append(past, own) == &past);
    if (past.storage()->id() != storage) ++copies;
    storage = past.storage()->id();
  }
  CHECK(past.shape() == Shape{1, 600, 2, 4});
  CHECK(past.is_contiguous());
  CHECK(past.to_vector() == expected);
  CHECK(copies <= 8);
}

TEST_CASE("gpt2: hidden states of tokens in parts are those of all at once") {
  Init init;
  Gpt2 net(init, {2, 8, 2, 12, 9});
  NoGrad no_grad;
  Context context;
  context.training = false;
  const std::vector<int64_t> ids = {3, 1, 4, 1, 5};
  const std::vector<double> whole = net.hidden(prompt(ids), context).value().to_vector();
  Past past;
  std::vector<double> parts;
  for (const auto& part : std::vector<std::vector<int64_t>>{{3, 1}, {4}, {1, 5}})
    for (const double value : net.continued(prompt(part), past, context).value().to_vector())
      parts.push_back(value);
  CHECK(past.tokens == 5);
  REQUIRE(parts.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(parts[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  CHECK_THROWS_WITH_AS(net.continued(prompt(ids), past, context), doctest::Contains("1 to 4"),
                       Error);
}

TEST_CASE("generate: mistakes are refused") {
  Table model({{0, 1}, {1, 0}}), broken({{0, std::numeric_limits<float>::quiet_NaN()}});
  GenerateOptions options;
  CHECK_THROWS_WITH_AS(generate(model, Tensor::zeros({1, 0}, DType::i64)),
                       doctest::Contains("at least one token"), Error);
  CHECK_THROWS_WITH_AS(generate(model, Tensor::zeros({2, 3}, DType::i64)),
                       doctest::Contains("[1, T]"), Error);
  CHECK_THROWS_WITH_AS(generate(model, Tensor::zeros({1, 3})), doctest::Contains("i64"), Error);
  CHECK_THROWS_WITH_AS(generate(broken, prompt({0})), doctest::Contains("finite logits"), Error);
  options.temperature = -1;
  CHECK_THROWS_WITH_AS(generate(model, prompt({0}), options), doctest::Contains("temperature"),
                       Error);
  options.temperature = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(generate(model, prompt({0}), options), doctest::Contains("temperature"),
                       Error);
  options = {};
  options.top_k = -1;
  CHECK_THROWS_WITH_AS(generate(model, prompt({0}), options), doctest::Contains("top_k"), Error);
  options = {};
  options.tokens = -1;
  CHECK_THROWS_WITH_AS(generate(model, prompt({0}), options), doctest::Contains("tokens"), Error);
}

TEST_CASE("generate: top_p, min_p and the repetition penalty leave out tokens") {
  // Probabilities 0.5, 0.3, 0.15 and 0.05 after every token.
  const auto log = [](double p) { return static_cast<float>(std::log(p)); };
  Table model(std::vector<std::vector<float>>(4, {log(0.15), log(0.5), log(0.05), log(0.3)}));
  const auto drawn = [&](const GenerateOptions& options) {
    std::set<int64_t> all;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      GenerateOptions own = options;
      own.seed = seed;
      own.tokens = 4;
      const Tensor y = generate(model, prompt({0}), own);
      for (int64_t i = 0; i < y.numel(); ++i) all.insert(static_cast<int64_t>(y.item(i)));
    }
    return all;
  };
  CHECK(drawn({}) == std::set<int64_t>{0, 1, 2, 3});
  CHECK(drawn({.top_p = 0.4}) == std::set<int64_t>{1});
  CHECK(drawn({.top_p = 0.7}) == std::set<int64_t>{1, 3});
  CHECK(drawn({.top_p = 0.9}) == std::set<int64_t>{0, 1, 3});
  CHECK(drawn({.min_p = 0.5}) == std::set<int64_t>{1, 3});
  CHECK(drawn({.min_p = 0.2}) == std::set<int64_t>{0, 1, 3});
  CHECK(drawn({.top_k = 3, .top_p = 0.99, .min_p = 0.5}) == std::set<int64_t>{1, 3});
  // All logits are below 0, so a token that was there becomes less likely.
  GenerateOptions greedy{.tokens = 4, .temperature = 0, .repetition_penalty = 100};
  CHECK(generate(model, prompt({0}), greedy).to_vector() == std::vector<double>{1, 3, 2, 1});
  for (const GenerateOptions& bad :
       {GenerateOptions{.top_p = 0}, GenerateOptions{.top_p = 1.5}, GenerateOptions{.min_p = -1},
        GenerateOptions{.repetition_penalty = 0}})
    CHECK_THROWS_WITH_AS(generate(model, prompt({0}), bad), doctest::Contains("[generate]"), Error);
}
