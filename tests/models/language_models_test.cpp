// Tiny BERT, RoBERTa, DistilBERT and GPT-2 against numbers made with PyTorch:
// golden/language_models.py.
#include <map>
#include <sstream>

#include "models/zoo/bert.h"
#include "models/zoo/gpt2.h"
#include "ops/dense/copy.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

constexpr int64_t kBatch = 2, kTokens = 6, kVocab = 20;

using Golden = std::map<std::string, std::vector<double>>;  // numbers of one case, by tensor

std::map<std::string, Golden> golden() {
  std::istringstream text(
#include "tests/models/golden/language_models.inc"
  );
  std::map<std::string, Golden> cases;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name, tensor;
    words >> name >> tensor;
    for (double number; words >> number;) cases[name][tensor].push_back(number);
  }
  return cases;
}

// The script's `filled`.
void fill(Module& net) {
  NamedTensors state = state_dict(net);
  std::sort(state.begin(), state.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t k = 0; k < state.size(); ++k) {
    auto& [name, tensor] = state[k];
    const bool norm = tensor.dim() == 1 && name.ends_with(".weight");
    std::vector<double> values;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const int64_t mixed = 7919 * i * i + 104729 * i + 1299709 * static_cast<int64_t>(k);
      values.push_back(static_cast<double>(mixed % 65537) / 65537 - 0.5 + (norm ? 1 : 0));
    }
    tensor = Tensor::from(values, tensor.shape());
  }
  to_dtype(net, DType::f64);
  load_state_dict(net, state);
}

Tensor by_rule(const std::function<int64_t(int64_t)>& rule) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < kBatch * kTokens; ++i) values.push_back(rule(i));
  return Tensor::from(values, {kBatch, kTokens});
}

void check_close(double got, double expected) {
  CHECK(std::abs(got - expected) < 1e-7 * (1 + std::abs(expected)));
}

void check(Module& net, const Golden& expected) {
  fill(net);
  Context context;
  context.extras = {{"attention_mask", by_rule([](int64_t i) { return i >= 10 ? 0 : 1; })},
                    {"token_type_ids", by_rule([](int64_t i) { return i / 4 % 2; })}};
  const Variable x(by_rule([](int64_t i) { return (7 * i + 3) % kVocab; }));
  const Variable logits = net.forward(x, context);
  REQUIRE(logits.dtype() == DType::f64);
  const std::vector<double> got = logits.value().to_vector();
  REQUIRE(got.size() == expected.at("logits").size());
  for (size_t i = 0; i < got.size(); ++i) check_close(got[i], expected.at("logits")[i]);
  backward(sum(mul(logits, logits)));
  const auto parameters = net.parameters();
  CHECK(parameters.size() + 1 == expected.size());
  for (const auto& p : parameters) {
    CAPTURE(p.name);
    REQUIRE(expected.contains(p.name));
    const std::vector<double> g = to_file_layout(p.parameter->grad(), p.layout).to_vector();
    double total = 0, wave = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      total += g[i];
      wave += g[i] * std::sin(static_cast<double>(i + 1));
    }
    check_close(total, expected.at(p.name)[0]);
    check_close(wave, expected.at(p.name)[1]);
  }
}

BertOptions bert(BertHead head, const char* name = "bert_base") {
  BertOptions options = bert_options(name);
  options.layers = 2, options.hidden = 16, options.heads = 2;
  options.intermediate = 24;
  options.vocab_size = kVocab;
  options.max_positions = 12;
  options.head = head;
  options.num_classes = 3;
  options.dropout = options.attention_dropout = options.pooler_dropout = 0;
  return options;
}

}  // namespace

TEST_CASE("encoders and gpt2: logits and gradients are PyTorch's") {
  const auto cases = golden();
  REQUIRE(cases.size() == 7);
  Init init;
  for (const std::string kind : {"bert", "roberta", "distilbert"}) {
    CAPTURE(kind);
    const std::string name = kind + "_base";
    Bert classifier(init, bert(BertHead::classification, name.c_str()));
    check(classifier, cases.at(kind + "_classification"));
    Bert masked_lm(init, bert(BertHead::masked_lm, name.c_str()));
    check(masked_lm, cases.at(kind + "_masked_lm"));
  }
  Gpt2Options options{2, 16, 2, kVocab, 12};
  options.dropout = options.attention_dropout = 0;
  Gpt2 gpt2(init, options);
  check(gpt2, cases.at("gpt2"));
}
