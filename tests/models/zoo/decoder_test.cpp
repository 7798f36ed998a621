#include "models/zoo/decoder.h"

#include <map>

#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

using Weights = std::map<std::string, std::vector<double>>;
using Row = std::vector<double>;
using Rows = std::vector<Row>;  // a row for each token

// What a decoder is, from the published description of its family. Nothing here is asked of
// DecoderOptions, which has to agree.
struct Facts {
  DecoderOptions options;
  std::vector<int64_t> windows, turns;  // one for each layer; a window of 0: none
  bool from_one = false;                // scales of norms are counted from 1
  bool norms_behind = false, query_norms = false, tied = false;
  double embedding_scale = 1, score_scale = 0, score_cap = 0, logit_cap = 0;
  std::function<double(double)> act = [](double x) { return x / (1 + std::exp(-x)); };
  // The angle of pair i of a layer for each step of the position.
  std::function<double(int64_t layer, int64_t i)> speed = {};
  double gain = 1;
  int64_t width = 12, heads = 4, shared = 2, d = 4, inner = 10, vocabulary = 11;
};

constexpr int64_t kLayers = 3, kShortText = 7;
constexpr double kEps = 1e-3;

double usual_speed(double base, int64_t i, int64_t d) {
  return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
}

// ---- the reference, in plain loops

Row product(const Weights& w, const std::string& name, const Row& x) {
  const Row& weight = w.at(name + ".weight");
  const auto bias = w.find(name + ".bias");
  Row y(weight.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o) {
    y[o] = bias == w.end() ? 0 : bias->second[o];
    for (size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
  }
  return y;
}

Row normed(const Weights& w, const std::string& name, const Row& x, const Facts& f) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double by = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * by * (w.at(name + ".weight")[i] + (f.from_one ? 1 : 0));
  return y;
}

double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

// Heads of one token, normed and turned.
Rows heads_of(const Weights& w, const Facts& f, const std::string& norm, const Row& x,
              int64_t layer, int64_t place) {
  Rows heads;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(f.d)) {
    Row head(x.begin() + static_cast<int64_t>(begin),
             x.begin() + static_cast<int64_t>(begin) + f.d);
    if (f.query_norms) head = normed(w, norm, head, f);
    const auto half = static_cast<size_t>(f.d / 2);
    for (size_t i = 0; i < half && f.turns[static_cast<size_t>(layer)] != 0; ++i) {
      const double angle = static_cast<double>(place) * f.speed(layer, static_cast<int64_t>(i));
      const double a = head[i], b = head[i + half];
      head[i] = f.gain * (a * std::cos(angle) - b * std::sin(angle));
      head[i + half] = f.gain * (b * std::cos(angle) + a * std::sin(angle));
    }
    heads.push_back(head);
  }
  return heads;
}

Rows attended(const Weights& w, const Facts& f, int64_t layer, const Rows& x) {
  const std::string at = fmt::format("model.layers.{}.self_attn.", layer);
  const int64_t window = f.windows[static_cast<size_t>(layer)];
  std::vector<Rows> q, k, v;
  for (size_t t = 0; t < x.size(); ++t) {
    const auto place = static_cast<int64_t>(t);
    q.push_back(heads_of(w, f, at + "q_norm", product(w, at + "q_proj", x[t]), layer, place));
    k.push_back(heads_of(w, f, at + "k_norm", product(w, at + "k_proj", x[t]), layer, place));
    Facts plain = f;
    plain.query_norms = false;
    plain.turns.assign(f.turns.size(), 0);
    v.push_back(heads_of(w, plain, "", product(w, at + "v_proj", x[t]), layer, place));
  }
  Rows out;
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
    Row all;
    for (int64_t head = 0; head < f.heads; ++head) {
      const auto own = static_cast<size_t>(head),
                 other = static_cast<size_t>(head * f.shared / f.heads);
      const int64_t first = window > 0 ? std::max<int64_t>(t - window + 1, 0) : 0;
      double total = 0;
      Row sum(static_cast<size_t>(f.d), 0);
      for (int64_t s = first; s <= t; ++s) {
        double score = 0;
        for (size_t i = 0; i < sum.size(); ++i)
          score += q[static_cast<size_t>(t)][own][i] * k[static_cast<size_t>(s)][other][i];
        const double weight = std::exp(capped(score * f.score_scale, f.score_cap));
        total += weight;
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += weight * v[static_cast<size_t>(s)][other][i];
      }
      for (const double value : sum) all.push_back(value / total);
    }
    out.push_back(product(w, at + "o_proj", all));
  }
  return out;
}

// The logits of all tokens, one after the other.
Row logits_of(const Weights& w, const Facts& f, const std::vector<int64_t>& tokens) {
  Rows x;
  const Row& table = w.at("model.embed_tokens.weight");
  for (const int64_t token : tokens) {
    Row row(table.begin() + token * f.width, table.begin() + (token + 1) * f.width);
    for (double& value : row) value *= f.embedding_scale;
    x.push_back(row);
  }
  const auto add = [](Row& to, const Row& term) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += term[i];
  };
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    Rows y;
    for (const Row& row : x) y.push_back(normed(w, at + "input_layernorm", row, f));
    y = attended(w, f, layer, y);
    for (size_t t = 0; t < x.size(); ++t) {
      if (f.norms_behind) y[t] = normed(w, at + "post_attention_layernorm", y[t], f);
      add(x[t], y[t]);
      const char* before =
          f.norms_behind ? "pre_feedforward_layernorm" : "post_attention_layernorm";
      const Row z = normed(w, at + before, x[t], f);
      Row gate = product(w, at + "mlp.gate_proj", z);
      const Row up = product(w, at + "mlp.up_proj", z);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = f.act(gate[i]) * up[i];
      Row branch = product(w, at + "mlp.down_proj", gate);
      if (f.norms_behind) branch = normed(w, at + "post_feedforward_layernorm", branch, f);
      add(x[t], branch);
    }
  }
  Row all;
  for (const Row& row : x) {
    const Row z =
        product(w, f.tied ? "model.embed_tokens" : "lm_head", normed(w, "model.norm", row, f));
    for (const double value : z) all.push_back(capped(value, f.logit_cap));
  }
  return all;
}

// ---- the families

Facts facts(DecoderFamily family) {
  Facts f;
  f.options.family = family;
  f.options.layers = kLayers;
  f.options.hidden = f.width;
  f.options.heads = f.heads;
  f.options.kv_heads = f.shared;
  f.options.head_size = f.d;
  f.options.inner = f.inner;
  f.options.vocab_size = f.vocabulary;
  f.options.context_length = 16;
  f.options.eps = kEps;
  f.options.rotary.base = 50;
  f.windows = {0, 0, 0};
  f.turns = {1, 1, 1};
  f.score_scale = 0.5;
  f.speed = [](int64_t, int64_t i) { return usual_speed(50, i, 4); };
  return f;
}

Facts llama3() {
  Facts f = facts(DecoderFamily::llama);
  RotaryOptions& rotary = f.options.rotary;
  rotary.scaling = RotaryOptions::Scaling::llama3;
  rotary.factor = 4;
  rotary.first_length = 20;
  rotary.low = 1;
  rotary.high = 4;
  // Pair 0 turns 3.2 times within 20 positions, which lies between, and pair 1 0.45 times.
  f.speed = [](int64_t, int64_t i) {
    const double own = usual_speed(50, i, 4);
    if (i == 1) return own / 4;
    const double share = (20 / (2 * std::numbers::pi) - 1) / 3;
    return (1 - share) * own / 4 + share * own;
  };
  return f;
}

Facts gemma(DecoderFamily family) {
  Facts f = facts(family);
  f.from_one = f.norms_behind = f.tied = true;
  f.embedding_scale = std::sqrt(12.0);
  f.act = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  f.options.attention_scale = f.score_scale = 0.3;
  f.options.window = 3;
  return f;
}

std::map<std::string, Facts> families() {
  std::map<std::string, Facts> all;
  all["llama 3"] = llama3();
  all["mistral"] = facts(DecoderFamily::mistral);
  all["mistral"].options.window = 4;
  all["mistral"].windows = {4, 4, 4};
  all["qwen 2"] = facts(DecoderFamily::qwen2);
  all["qwen 2"].options.window = 2;
  all["qwen 2"].options.windows = {0, 1, 0};
  all["qwen 2"].windows = {0, 2, 0};
  all["qwen 3"] = facts(DecoderFamily::qwen3);
  all["qwen 3"].query_norms = true;
  all["smollm 3"] = facts(DecoderFamily::smollm3);
  all["smollm 3"].tied = true;
  all["smollm 3"].options.rotations = {1, 0, 1};
  all["smollm 3"].turns = {1, 0, 1};
  Facts& second = all["gemma 2"] = gemma(DecoderFamily::gemma2);
  second.windows = {3, 0, 3};
  second.score_cap = 50;
  second.logit_cap = 30;
  second.options.cap = second.logit_cap = 1.5;
  second.options.attention_cap = second.score_cap = 0.8;
  Facts& third = all["gemma 3"] = gemma(DecoderFamily::gemma3);
  third.windows = {3, 3, 3};
  third.query_norms = true;
  third.options.windows = {1, 1, 0};
  third.windows = {3, 3, 0};
  third.options.local_base = 20;
  third.speed = [](int64_t layer, int64_t i) { return usual_speed(layer == 2 ? 50 : 20, i, 4); };
  return all;
}

// Values in [-0.7, 0.7), which are exact in f32.
void draw(Module& net) {
  uint64_t number = 0;
  for (const auto& p : net.parameters()) {
    ++number;
    float* values = p.parameter->value().mut<float>();
    for (int64_t i = 0; i < p.parameter->value().numel(); ++i)
      values[i] = 1.4f * uniform({number, 3}, static_cast<uint64_t>(i)) - 0.7f;
  }
}

Weights weights_of(Module& net) {
  Weights all;
  for (const auto& p : net.parameters()) all[p.name] = p.parameter->value().to_vector();
  return all;
}

double drawn(uint64_t stream, size_t i) {
  return 2 * static_cast<double>(uniform({stream, 4}, i)) - 1;
}

double sum_of_products(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Decoder made(const DecoderOptions& options, uint64_t seed = 1) {
  Init init;
  init.rng = Rng(seed);
  return Decoder(init, options);
}

}  // namespace

TEST_CASE("decoder: logits and gradients follow the descriptions of the families") {
  const Tensor tokens = ids({1, kShortText}, 11, 3);
  const std::vector<int64_t> list = [&] {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < kShortText; ++i) all.push_back(static_cast<int64_t>(tokens.item(i)));
    return all;
  }();
  for (const auto& [name, f] : families()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    const Weights weights = [&f = f] {
      Decoder net = made(f.options);
      draw(net);
      return weights_of(net);
    }();
    Context context;
    const Row expected = logits_of(weights, f, list);
    Row by(expected.size());
    for (size_t i = 0; i < by.size(); ++i) by[i] = drawn(1, i);
    std::vector<double> gradients;  // along one direction for each parameter, in f64
    for (const DType dtype : {DType::f64, DType::f32}) {
      const bool fine = dtype == DType::f64;
      Decoder net = made(f.options);
      draw(net);
      if (fine) to_dtype(net, dtype);
      const Variable y = net.forward(Variable(tokens), context);
      REQUIRE(y.shape() == Shape{1, kShortText, 11});
      const Row got = y.value().to_vector();
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(std::abs(got[i] - expected[i]) < (fine ? 1e-12 : 2e-5));
      backward(y, ops::cast(Tensor::from(by, y.shape()), dtype));
      size_t at = 0;
      for (const auto& p : net.parameters()) {
        CAPTURE(p.name);
        Row direction(weights.at(p.name).size());
        for (size_t i = 0; i < direction.size(); ++i) direction[i] = drawn(2, i);
        const double along = sum_of_products(p.parameter->grad().to_vector(), direction);
        if (fine) {
          constexpr double kStep = 1e-5;
          const auto moved = [&, &f = f](double step) {
            Weights other = weights;
            for (size_t i = 0; i < direction.size(); ++i) other[p.name][i] += step * direction[i];
            return sum_of_products(logits_of(other, f, list), by);
          };
          const double difference = (moved(kStep) - moved(-kStep)) / (2 * kStep);
          CHECK(std::abs(along - difference) < 1e-6 * (1 + std::abs(difference)));
          gradients.push_back(along);
        } else {
          CHECK(std::abs(along - gradients[at]) < 1e-3 * (1 + std::abs(gradients[at])));
        }
        ++at;
      }
    }
  }
}

TEST_CASE("decoder: parameter counts are the published ones") {
  const auto count = [](DecoderFamily family, int64_t layers, int64_t hidden, int64_t heads,
                        int64_t shared, int64_t inner, int64_t vocabulary, bool tied,
                        int64_t head_size = 0) {
    DecoderOptions o;
    o.family = family;
    o.layers = layers;
    o.hidden = hidden;
    o.heads = heads;
    o.kv_heads = shared;
    o.inner = inner;
    o.vocab_size = vocabulary;
    o.tied = tied;
    o.head_size = head_size;
    Init init = meta_init();
    Decoder net(init, o);
    return parameter_count(net);
  };
  using F = DecoderFamily;
  CHECK(count(F::llama, 30, 576, 9, 3, 1536, 49152, true) == 134515008);           // SmolLM2-135M
  CHECK(count(F::llama, 22, 2048, 32, 4, 5632, 32000, false) == 1100048384);       // TinyLlama
  CHECK(count(F::llama, 16, 2048, 32, 8, 8192, 128256, true) == 1235814400);       // Llama-3.2-1B
  CHECK(count(F::llama, 32, 4096, 32, 32, 11008, 32000, false) == 6738415616);     // Llama-2-7B
  CHECK(count(F::mistral, 32, 4096, 32, 8, 14336, 32000, false) == 7241732096);    // Mistral-7B
  CHECK(count(F::qwen2, 24, 896, 14, 2, 4864, 151936, true) == 494032768);         // Qwen2.5-0.5B
  CHECK(count(F::qwen3, 28, 1024, 16, 8, 3072, 151936, true, 128) == 596049920);   // Qwen3-0.6B
  CHECK(count(F::smollm3, 36, 2048, 16, 4, 11008, 128256, true) == 3075098624);    // SmolLM3-3B
  CHECK(count(F::gemma2, 26, 2304, 8, 4, 9216, 256000, true, 256) == 2614341888);  // Gemma 2 2B
  CHECK(count(F::gemma3, 26, 1152, 4, 1, 6912, 262144, true, 256) == 999885952);   // Gemma 3 1B
}

TEST_CASE("decoder: parameters have Hugging Face's names") {
  DecoderOptions o = facts(DecoderFamily::qwen2).options;
  o.layers = 1;
  Decoder qwen = made(o);
  CHECK(lines_of(qwen) == std::set<std::string>{
                              "lm_head.weight [11, 12]",
                              "model.embed_tokens.weight [11, 12]",
                              "model.layers.0.input_layernorm.weight [12]",
                              "model.layers.0.mlp.down_proj.weight [12, 10]",
                              "model.layers.0.mlp.gate_proj.weight [10, 12]",
                              "model.layers.0.mlp.up_proj.weight [10, 12]",
                              "model.layers.0.post_attention_layernorm.weight [12]",
                              "model.layers.0.self_attn.k_proj.bias [8]",
                              "model.layers.0.self_attn.k_proj.weight [8, 12]",
                              "model.layers.0.self_attn.o_proj.weight [12, 16]",
                              "model.layers.0.self_attn.q_proj.bias [16]",
                              "model.layers.0.self_attn.q_proj.weight [16, 12]",
                              "model.layers.0.self_attn.v_proj.bias [8]",
                              "model.layers.0.self_attn.v_proj.weight [8, 12]",
                              "model.norm.weight [12]",
                          });
  o.family = DecoderFamily::gemma3;
  Decoder gemma = made(o);
  const auto lines = lines_of(gemma);
  CHECK(lines.size() == 15);
  for (const char* line :
       {"model.layers.0.self_attn.q_norm.weight [4]", "model.layers.0.self_attn.k_norm.weight [4]",
        "model.layers.0.pre_feedforward_layernorm.weight [12]",
        "model.layers.0.post_feedforward_layernorm.weight [12]"})
    CHECK_MESSAGE(lines.contains(line), line);
}

TEST_CASE("decoder: which layers have windows and turn positions") {
  const auto layers = [](DecoderFamily family, const auto& of) {
    DecoderOptions o;
    o.family = family;
    o.window = 9;
    std::string text;
    for (int64_t i = 0; i < 12; ++i) text += of(o, i) ? '1' : '0';
    return text;
  };
  const auto windowed = [](const DecoderOptions& o, int64_t i) { return o.window_of(i) == 9; };
  const auto turned = [](const DecoderOptions& o, int64_t i) { return o.turns(i); };
  CHECK(layers(DecoderFamily::mistral, windowed) == "111111111111");
  CHECK(layers(DecoderFamily::gemma2, windowed) == "101010101010");
  CHECK(layers(DecoderFamily::gemma3, windowed) == "111110111110");
  CHECK(layers(DecoderFamily::llama, turned) == "111111111111");
  CHECK(layers(DecoderFamily::smollm3, turned) == "111011101110");
  DecoderOptions o;
  CHECK(o.window_of(0) == 0);
  o.family = DecoderFamily::gemma2;
  CHECK(o.window_of(0) == 4096);
}

TEST_CASE("decoder: tokens that follow cached ones get the states of the whole sequence") {
  for (const auto& [name, f] : families()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Decoder net = made(f.options);
    draw(net);
    Context context;
    context.training = false;
    NoGrad no_grad;
    const Tensor tokens = ids({1, 9}, 11, 5);
    const Tensor whole = net.hidden(tokens, context).value();
    Past past;
    int64_t at = 0;
    for (const int64_t count : {4, 1, 1, 3}) {
      const Tensor some = ops::contiguous(tokens.slice(1, at, at + count));
      const Tensor got = net.continued(some, past, context).value();
      CHECK(largest_difference(got, ops::contiguous(whole.slice(1, at, at + count))) < 1e-4);
      at += count;
    }
    CHECK(past.tokens == 9);
    CHECK(past.keys.at(0).shape() == Shape{1, 9, 2, 4});
  }
}

namespace {

// A model whose logits are made of the whole text each time.
class WithoutPast : public LanguageModel {
 public:
  explicit WithoutPast(LanguageModel& model) : model_(model) {}
  Variable hidden(const Tensor& tokens, Context& context) override {
    return model_.hidden(tokens, context);
  }
  Head head(Variable hidden) override { return model_.head(std::move(hidden)); }
  int64_t context_length() const override { return model_.context_length(); }

 private:
  LanguageModel& model_;
};

}  // namespace

TEST_CASE("decoder: texts are the same with and without cached keys and values") {
  for (const auto& [name, f] : families()) {
    const auto& this_name = name;
    CAPTURE(this_name);
    Decoder net = made(f.options);
    draw(net);
    WithoutPast plain(net);
    GenerateOptions options;
    options.tokens = 24;  // beyond the 16 that the network sees
    for (const double temperature : {0.0, 1.0}) {
      options.temperature = temperature;
      const Tensor start = ids({1, 3}, 11, 2);
      CHECK(generate(net, start, options).to_vector() ==
            generate(plain, start, options).to_vector());
    }
  }
  // The base of all positions grows with a text beyond the 8 tokens of its first length.
  DecoderOptions longer = families().at("mistral").options;
  longer.rotary.scaling = RotaryOptions::Scaling::dynamic;
  longer.rotary.factor = 8;
  longer.rotary.first_length = 8;
  Decoder net = made(longer);
  draw(net);
  WithoutPast plain(net);
  const GenerateOptions options{.tokens = 12, .temperature = 0};
  for (uint64_t seed = 1; seed < 9; ++seed) {
    const Tensor start = ids({1, 3}, 11, seed);
    CHECK(generate(net, start, options).to_vector() == generate(plain, start, options).to_vector());
  }
}

TEST_CASE("decoder: a conversation whose beginning is kept has the same texts") {
  for (const auto& [name, f] : families()) {
    CAPTURE(name);
    Decoder net = made(f.options);
    draw(net);
    WithoutPast plain(net);
    const GenerateOptions options{.tokens = 3, .temperature = 0};
    SeenText seen;
    std::vector<int64_t> said;
    for (int64_t turn = 0; turn < 5; ++turn) {  // the last one is longer than the 16 tokens
      CAPTURE(turn);
      said.push_back((3 * turn + 1) % 11);
      said.push_back((5 * turn + 2) % 11);
      const Tensor text = Tensor::from(said, {1, static_cast<int64_t>(said.size())});
      const Tensor answer = generate(net, text, options, {}, &seen);
      CHECK(answer.to_vector() == generate(plain, text, options).to_vector());
      // The template writes one of the three tokens in another way.
      said.push_back(static_cast<int64_t>(answer.item(0)));
      said.push_back(static_cast<int64_t>(answer.item(1) + 1) % 11);
    }
  }
}

TEST_CASE("decoder: steps learn, weights go out and in, checkpointing gives the same gradients") {
  const DecoderOptions options = families().at("gemma 2").options;
  Decoder net = made(options), copy = made(options, 5);
  const Variable x(ids({3, 8}, 11, 1));
  const Tensor target = ids({24}, 11, 2);
  const auto loss = [&](const Variable& y) {
    return cross_entropy(reshape(y, {24, y.size(2)}), target);
  };
  check_trains(net, copy, x, {}, loss, 0.1);
}

TEST_CASE("decoder: what does not fit is refused") {
  Init init = meta_init();
  const auto refused = [&](const char* part, const auto& change) {
    DecoderOptions o = facts(DecoderFamily::llama).options;
    change(o);
    CHECK_THROWS_WITH_AS(Decoder(init, o), doctest::Contains(part), Error);
  };
  refused("heads that divide the width 12", [](auto& o) { o.head_size = 0, o.heads = 5; });
  refused("heads that divide the 4 of queries", [](auto& o) { o.kv_heads = 3; });
  refused("even number of channels", [](auto& o) { o.head_size = 0, o.heads = o.kv_heads = 12; });
  refused("an entry for each of 3 layers, got 2", [](auto& o) { o.windows = {1, 0}; });
  refused("an entry for each of 3 layers, got 1", [](auto& o) { o.rotations = {1}; });
  refused("the length of sequences",
          [](auto& o) { o.rotary.scaling = RotaryOptions::Scaling::yarn; });
  Decoder net = made(facts(DecoderFamily::llama).options);
  Context context;
  CHECK_THROWS_WITH_AS(net.forward(Variable(ids({1, 17}, 11, 1)), context),
                       doctest::Contains("1 to 16 tokens"), Error);
}
