// Files of weights that other tools wrote: loaded, they give the outputs of those tools.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "autograd/record.h"
#include "data/formats/safetensors.h"
#include "models/state.h"
#include "models/zoo/bert.h"
#include "models/zoo/densenet.h"
#include "models/zoo/gpt2.h"
#include "tests/apps/run.h"

using namespace frugal;
using namespace frugal::apps;
using namespace frugal::models;

namespace {

constexpr int64_t kBatch = 2, kTokens = 6, kWidth = 8, kVocab = 10, kPlaces = 8, kClasses = 3;

struct Golden {
  std::string file;  // bytes of the file
  std::vector<double> output;
};

std::string from_base64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int value = c >= 'a'   ? c - 'a' + 26
                      : c >= 'A' ? c - 'A'
                      : c >= '0' ? c - '0' + 52
                      : c == '+' ? 62
                                 : 63;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  return bytes;
}

std::map<std::string, Golden> golden() {  // golden/files.py
  std::istringstream text(
#include "tests/models/golden/files.inc"
  );
  std::map<std::string, Golden> cases;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name, what, bytes;
    words >> name >> what;
    if (what == "file") {
      words >> bytes;
      cases[name].file = from_base64(bytes);
    }
    for (double number; what == "output" && words >> number;) cases[name].output.push_back(number);
  }
  return cases;
}

NamedTensors read(const TempFolder& folder, const std::string& bytes) {
  write_file(folder / "model.safetensors", bytes);
  return data::SafetensorsFile::open(folder / "model.safetensors").read_all();
}

Tensor tokens(const std::function<int64_t(int64_t)>& rule) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < kBatch * kTokens; ++i) values.push_back(rule(i));
  return Tensor::from(values, {kBatch, kTokens});
}

// Our [N, H, W, C] of the script's [N, C, H, W].
Tensor image() {
  constexpr int64_t kSide = 32, kChannels = 3;
  const Tensor x = Tensor::empty({kBatch, kSide, kSide, kChannels});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t c = i % kChannels, pixel = i / kChannels % (kSide * kSide),
                  n = i / (kChannels * kSide * kSide);
    const int64_t there = (n * kChannels + c) * kSide * kSide + pixel;
    x.mut<float>()[i] = static_cast<float>(there * 7919 % 257) / 257 - 0.5f;
  }
  return x;
}

void check(Module& net, const Golden& golden, const Tensor& input, const NamedTensors& extras) {
  const TempFolder folder;
  const NamedTensors state = read(folder, golden.file);
  load_state_dict(net, state);
  NoGrad no_grad;
  Context context;
  context.training = false;
  context.extras = extras;
  const std::vector<double> y = net.forward(Variable(input), context).value().to_vector();
  REQUIRE(y.size() == golden.output.size());
  for (size_t i = 0; i < y.size(); ++i)
    CHECK(std::abs(y[i] - golden.output[i]) < 1e-5 * (1 + std::abs(golden.output[i])));
}

Gpt2 gpt2() {
  Init init;
  return Gpt2(init, {1, kWidth, 2, kVocab, kPlaces});
}

Bert bert() {
  Init init;
  BertOptions options{1, kWidth, 2};
  options.intermediate = 12;
  options.vocab_size = kVocab;
  options.max_positions = kPlaces;
  options.num_classes = kClasses;
  return Bert(init, options);
}

}  // namespace

TEST_CASE("weights that PyTorch wrote give its outputs") {
  const auto cases = golden();
  REQUIRE(cases.size() == 3);
  const Tensor ids = tokens([](int64_t i) { return (7 * i + 3) % kVocab; });
  Init init;
  Bert classifier = bert();
  check(classifier, cases.at("bert"), ids,
        {{"attention_mask", tokens([](int64_t i) { return i >= 10 ? 0 : 1; })},
         {"token_type_ids", tokens([](int64_t i) { return i / 4 % 2; })}});
  Gpt2 language = gpt2();
  check(language, cases.at("gpt2"), ids, {});
  DenseNetOptions dense;
  dense.depths = {1, 1, 1, 1};
  dense.growth = 2;
  dense.stem_channels = 4;
  dense.bottleneck = 2;
  dense.num_classes = kClasses;
  DenseNet densenet(init, dense);
  check(densenet, cases.at("densenet"), image(), {});
}

TEST_CASE("what is written here has the names, shapes and values of the file that was read") {
  const auto cases = golden();
  const TempFolder folder;
  const NamedTensors there = read(folder, cases.at("gpt2").file);
  Gpt2 net = gpt2();
  load_state_dict(net, there);
  data::write_safetensors(folder / "ours", state_dict(net));
  const auto ours = data::SafetensorsFile::open(folder / "ours");
  CHECK(ours.names().size() == there.size());
  for (const auto& [name, tensor] : there) {
    const auto& this_name = name;
    CAPTURE(this_name);
    REQUIRE(ours.contains(name));
    CHECK(ours.read(name).shape() == tensor.shape());
    CHECK(ours.read(name).to_vector() == tensor.to_vector());
  }
}

TEST_CASE("files load under the names of their publication") {
  const TempFolder folder;
  const NamedTensors today = read(folder, golden().at("gpt2").file);
  const std::string prefix = "transformer.";
  NamedTensors published;
  for (const auto& [name, tensor] : today) {
    REQUIRE(name.starts_with(prefix));
    published.emplace_back(name.substr(prefix.size()), tensor);
    if (name == "transformer.wte.weight") published.emplace_back("lm_head.weight", tensor);
  }
  published.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, kPlaces, kPlaces}));
  published.emplace_back("h.0.attn.masked_bias", Tensor::zeros({}));
  Gpt2 net = gpt2();
  load_state_dict(net, published);
  const auto agrees = [&] {
    const NamedTensors here = state_dict(net);
    CHECK(here.size() == today.size());
    for (const auto& [name, tensor] : here)
      for (const auto& [there, expected] : today)
        if (name == there) CHECK(tensor.to_vector() == expected.to_vector());
  };
  agrees();
  // A head of its own is refused, because this model has none.
  for (auto& [name, tensor] : published)
    if (name == "lm_head.weight" || name == "ln_f.bias") tensor = Tensor::zeros(tensor.shape());
  CHECK_THROWS_WITH_AS(load_state_dict(net, published), doctest::Contains("lm_head.weight"), Error);
  agrees();
  // A tensor that is there under both names is refused.
  published = today;
  published.emplace_back("ln_f.bias", Tensor::zeros({kWidth}));
  CHECK_THROWS_WITH_AS(load_state_dict(net, published), doctest::Contains("ln_f.bias"), Error);
}

TEST_CASE("layer norms load as gamma and beta, and BERT's head for next sentences is left out") {
  const TempFolder folder;
  const NamedTensors today = read(folder, golden().at("bert").file);
  NamedTensors published = {{"cls.seq_relationship.bias", Tensor::zeros({2})},
                            {"bert.embeddings.position_ids", Tensor::zeros({1, 4}, DType::i64)}};
  for (const auto& [name, tensor] : today) {
    const size_t at = name.find("LayerNorm.");
    published.emplace_back(at == std::string::npos
                               ? name
                               : name.substr(0, at) + (name.ends_with("weight") ? "LayerNorm.gamma"
                                                                                : "LayerNorm.beta"),
                           tensor);
  }
  Bert net = bert();
  load_state_dict(net, published);
  int norms = 0;
  for (const auto& [name, tensor] : state_dict(net))
    for (const auto& [there, expected] : today)
      if (name == there) {
        norms += name.find("LayerNorm.") != std::string::npos;
        CHECK(tensor.to_vector() == expected.to_vector());
      }
  CHECK(norms == 6);
}
