#include "models/adapters/adapters.h"

#include "autograd/operators.h"
#include "autograd/saved_totals.h"
#include "models/registry.h"
#include "ops/dense/elementwise.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

using Type = AdapterType;

std::shared_ptr<Module> tiny(const std::string& name, Device device = kCpu, uint64_t seed = 3) {
  Init init;
  init.rng = Rng(seed);
  init.device = device;
  if (name == "decoder")
    return models::make("decoder",
                        {{"layers", 2},
                         {"width", 16},
                         {"heads", 4},
                         {"kv_heads", 2},
                         {"feed_forward", 24},
                         {"vocab_size", 19},
                         {"max_positions", 16},
                         {"attention_bias", true}},
                        init);
  if (name == "gpt2")
    return models::make("gpt2",
                        {{"layers", 2},
                         {"width", 16},
                         {"heads", 4},
                         {"vocab_size", 19},
                         {"dropout", 0},
                         {"attention_dropout", 0},
                         {"max_positions", 16}},
                        init);
  if (name == "bert")
    return models::make("bert_tiny",
                        {{"layers", 2},
                         {"width", 16},
                         {"heads", 4},
                         {"vocab_size", 19},
                         {"dropout", 0},
                         {"attention_dropout", 0},
                         {"max_positions", 16},
                         {"num_classes", 3}},
                        init);
  return models::make(name, {{"in_features", 12}, {"hidden", 20}, {"num_classes", 5}}, init);
}

Tensor ids_of(Device device = kCpu) {
  const Tensor ids = Tensor::empty({2, 9}, DType::i64, device);
  if (device == kMeta) return ids;
  for (int64_t i = 0; i < ids.numel(); ++i) ids.mut<int64_t>()[i] = (7 * i + 3) % 19;
  return ids;
}

Variable outputs(Module& network, const Tensor& ids, bool training = true) {
  Rng rng(11);
  Context context;
  context.training = training;
  context.rng = &rng;
  context.device = ids.device();
  return network.forward(Variable(ids), context);
}

AdapterOptions of(Type type, std::vector<std::string> targets = {}) {
  AdapterOptions options;
  options.type = type;
  options.rank = 3;
  options.alpha = 6;
  if (!targets.empty()) {
    options.targets = std::move(targets);
    options.is_pattern = false;
  }
  return options;
}

AdapterOptions of_pattern(const std::string& pattern) {
  AdapterOptions options = of(Type::lora, {pattern});
  options.is_pattern = true;
  return options;
}

void adapt(Module& network, const AdapterOptions& options) {
  Init init;
  init.rng = Rng(5);
  init.device = network.device();
  add_adapters(network, init, options);
}

// Gives the adapters values as a training would.
void move_adapters(Module& network) {
  uint64_t stream = 0;
  for (const auto& p : network.parameters()) {
    if (!is_of_adapter(p.name)) continue;
    Tensor values = ops::cast(p.parameter->value(), DType::f32);
    const bool length = p.name.ends_with("magnitude_vector");
    for (int64_t i = 0; i < values.numel(); ++i) {
      const double drawn = 0.1 * normal({9, stream}, static_cast<uint64_t>(i));
      values.mut<float>()[i] = static_cast<float>(length ? values.data<float>()[i] + drawn : drawn);
    }
    ++stream;
    ops::copy_into(p.parameter->value(), ops::cast(values, p.parameter->dtype()));
    p.parameter->value().bump_version();
  }
}

std::vector<std::string> adapted_names(Module& network) {
  std::vector<std::string> names;
  for (const AdaptedLayer& each : adapted_layers(network)) names.push_back(each.name);
  return names;
}

}  // namespace

TEST_CASE("adapters: the first outputs are the base's to the bit, and later ones are not") {
  for (const char* name : {"decoder", "gpt2", "bert"})
    for (const Type type : {Type::lora, Type::rslora, Type::dora, Type::rsdora}) {
      CAPTURE(name);
      CAPTURE(static_cast<int>(type));
      const auto base = tiny(name), network = tiny(name);
      adapt(*network, of(type));
      const Tensor before = outputs(*base, ids_of()).value();
      CHECK(before.to_vector<float>() == outputs(*network, ids_of()).value().to_vector<float>());
      move_adapters(*network);
      CHECK(largest_difference(before, outputs(*network, ids_of()).value()) > 1e-4);
    }
}

TEST_CASE("adapters: a merged network gives what base and adapter give, and has the base's names") {
  for (const char* name : {"decoder", "gpt2", "bert"})
    for (const Type type : {Type::lora, Type::dora}) {
      CAPTURE(name);
      const auto network = tiny(name);
      to_dtype(*network, DType::f64);
      adapt(*network, of(type));
      move_adapters(*network);
      network->leave_out_frozen(true);
      const Tensor apart = outputs(*network, ids_of(), false).value();
      merge_adapters(*network);
      CHECK(largest_difference(apart, outputs(*network, ids_of(), false).value()) < 1e-12);
      CHECK(adapted_layers(*network).empty());
      CHECK(lines_of(*network) == lines_of(*tiny(name)));
    }
}

TEST_CASE("adapters: only they are trained, and what the options name") {
  const auto trained = [](const AdapterOptions& options) {
    const auto network = tiny("decoder");
    adapt(*network, options);
    std::set<std::string> names;
    for (const auto& p : network->parameters())
      if (p.parameter->requires_grad()) names.insert(p.name);
    return names;
  };
  AdapterOptions options = of(Type::lora, {"layers.1.self_attn.q_proj"});
  const std::string q = "model.layers.1.self_attn.q_proj.";
  const std::set<std::string> own{q + "lora_A.weight", q + "lora_B.weight"};
  CHECK(trained(options) == own);
  options.bias = TrainedBiases::lora_only;
  std::set<std::string> more = own;
  more.insert(q + "bias");
  CHECK(trained(options) == more);
  options.bias = TrainedBiases::all;
  CHECK(trained(options).size() == own.size() + 8);  // q, k, v and o of two layers
  options = of(Type::dora, {"layers.1.self_attn.q_proj"});
  options.trained = {"lm_head", "model.norm"};
  more = own;
  more.insert({q + "lora_magnitude_vector", "lm_head.weight", "model.norm.weight"});
  CHECK(trained(options) == more);
}

TEST_CASE("adapters: targets are read as PEFT reads them") {
  const auto chosen = [](const AdapterOptions& options) {
    const auto network = tiny("decoder");
    adapt(*network, options);
    return adapted_names(*network);
  };
  using Names = std::vector<std::string>;
  const std::string first = "model.layers.0.", second = "model.layers.1.";
  CHECK(chosen(of(Type::lora, {"q_proj"})) ==
        Names{first + "self_attn.q_proj", second + "self_attn.q_proj"});
  CHECK(chosen(of(Type::lora, {"1.mlp.up_proj", "model.layers.0.mlp.up_proj"})) ==
        Names{first + "mlp.up_proj", second + "mlp.up_proj"});
  CHECK(chosen(of_pattern("all-linear")).size() == 14);  // all but lm_head
  CHECK(chosen(of_pattern(".*\\.1\\..*_proj")).size() == 7);
  CHECK(chosen(of_pattern("model.layers.[0-9]+.self_attn.[qv]_proj")).size() == 4);
  // A pattern fits whole names, and the end of a word is no name.
  for (const AdapterOptions& none : {of_pattern("q_proj"), of(Type::lora, {"proj"})})
    CHECK_THROWS_WITH_AS(chosen(none), doctest::Contains("which fits none"), OptionError);

  AdapterOptions options = of(Type::lora, {"q_proj", "up_proj"});
  options.ranks = {"layers.0.self_attn.q_proj=2", "model\\..*\\.1\\..*=4", "q_proj=5"};
  options.alphas = {"up_proj=1"};
  const auto network = tiny("decoder");
  adapt(*network, options);
  std::vector<int64_t> ranks;
  std::vector<double> scales;
  for (const AdaptedLayer& each : adapted_layers(*network)) {
    ranks.push_back(each.layer->adapter()->a.size(0));
    scales.push_back(each.layer->adapter()->scale);
  }
  CHECK(ranks == std::vector<int64_t>{2, 3, 4, 4});
  CHECK(scales == std::vector<double>{3, 1.0 / 3, 1.5, 0.25});
  options.type = Type::rslora;
  CHECK(options.scale_of("model.layers.1.mlp.up_proj") == 0.5);
}

TEST_CASE("adapters: what cannot be meant is an error that names it") {
  const auto fails = [](const AdapterOptions& options, const std::string& at,
                        const std::string& part) {
    CAPTURE(part);
    const auto network = tiny("decoder");
    try {
      adapt(*network, options);
      FAIL("no error");
    } catch (const OptionError& e) {
      CHECK(e.path() == at);
      CHECK_MESSAGE(e.reason().find(part) != std::string::npos, e.reason());
    }
  };
  fails(of(Type::lora, {"q_porj"}), "targets", "got \"q_porj\", which fits none");
  fails(of(Type::lora, {"lm_head"}), "targets", "no output head, got \"lm_head\"");
  fails(of(Type::dora, {"q_proj", "embed_tokens"}), "targets",
        "expected linear layers with lengths of rows, got the embedding model.embed_tokens");
  fails(of(Type::lora, {"q_proj", "norm"}), "targets", "which fits model.norm");
  fails(of_pattern("(q_proj"), "targets", "expected a regular expression");
  AdapterOptions options = of(Type::lora);
  options.rank = 17;
  fails(options, "rank", "expected at most");
  options = of(Type::lora);
  options.ranks = {"q_proj"};
  fails(options, "rank_pattern", "PATTERN=NUMBER");
  options.ranks = {"q_proj=1.5"};
  fails(options, "rank_pattern", "whole numbers");
  options = of(Type::lora);
  options.trained = {"lm_haed"};
  fails(options, "modules_to_save", "got \"lm_haed\"");
  options.trained = {"q_proj"};
  fails(options, "modules_to_save", "without an adapter");
}

TEST_CASE("adapters: an embedding adds rows of A times B, with the gradients of the formula") {
  constexpr int64_t kTokens = 7, kChannels = 5, kRank = 2;
  constexpr double kScale = 1.5;
  const Tensor ids = Tensor::of({{1, 3, 3}, {0, 6, 1}}, DType::i64);
  const Tensor weights = Tensor::rand({2, 3, kChannels}, {8, 1});  // what the loss multiplies by
  for (const DType dtype : {DType::f64, DType::f32}) {
    EmbeddingTable table(Tensor::rand({kTokens, kChannels}, {1, 2}), false);
    to_dtype(table, dtype);
    Init init;
    init.rng = Rng(4);
    table.add_adapter(init, kRank, kScale);
    CHECK(table.rows(ids).value().item(4) == table.weight().value().item(kChannels + 4));
    move_adapters(table);
    const auto& adapter = *table.adapter();
    const Variable y = table.rows(ids);
    backward(sum(mul(y, Variable(ops::cast(weights, dtype)))));
    // A sum here has at most 6 * kChannels terms, each of which is a product of three numbers.
    const double step = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    const auto is_near = [&](double value, double expected, double magnitude) {
      CHECK(std::fabs(value - expected) <= (6 * kChannels + 4) * step * magnitude);
    };
    const Tensor &a = adapter.a.value(), &b = adapter.b.value(), &w = table.weight().value();
    std::vector<double> da(kTokens * kRank, 0), db(kChannels * kRank, 0), most_a(da), most_b(db);
    for (int64_t t = 0; t < ids.numel(); ++t) {
      const auto id = ids.data<int64_t>()[t];
      for (int64_t c = 0; c < kChannels; ++c) {
        double sum = w.item(id * kChannels + c), most = std::fabs(sum);
        const double g = weights.item(t * kChannels + c);
        for (int64_t r = 0; r < kRank; ++r) {
          const double of_a = a.item(id * kRank + r), of_b = b.item(c * kRank + r);
          sum += kScale * of_a * of_b;
          most += std::fabs(kScale * of_a * of_b);
          const auto at_a = static_cast<size_t>(id * kRank + r),
                     at_b = static_cast<size_t>(c * kRank + r);
          da[at_a] += kScale * g * of_b;
          db[at_b] += kScale * g * of_a;
          most_a[at_a] += std::fabs(kScale * g * of_b);
          most_b[at_b] += std::fabs(kScale * g * of_a);
        }
        is_near(y.value().item(t * kChannels + c), sum, most);
      }
    }
    for (size_t i = 0; i < da.size(); ++i)
      is_near(adapter.a.grad().item(static_cast<int64_t>(i)), da[i], most_a[i]);
    for (size_t i = 0; i < db.size(); ++i)
      is_near(adapter.b.grad().item(static_cast<int64_t>(i)), db[i], most_b[i]);
  }
}

TEST_CASE("adapters: networks with an adapter of their embedding") {
  for (const char* name : {"decoder", "gpt2"}) {
    CAPTURE(name);
    const bool tied = std::string(name) == "gpt2";
    const auto base = tiny(name), network = tiny(name);
    to_dtype(*base, DType::f64);
    to_dtype(*network, DType::f64);
    adapt(*network, of(Type::lora, {tied ? "wte" : "embed_tokens"}));
    CHECK(adapted_layers(*network).size() == 1);
    const Tensor before = outputs(*base, ids_of(), false).value();
    CHECK(largest_difference(before, outputs(*network, ids_of(), false).value()) == 0);
    move_adapters(*network);
    const Tensor apart = outputs(*network, ids_of(), false).value();
    CHECK(largest_difference(before, apart) > 1e-4);
    CHECK(merge_adapters(*network) == tied);
    CHECK(largest_difference(apart, outputs(*network, ids_of(), false).value()) < 1e-12);
    if (!tied) {
      CHECK(lines_of(*network) == lines_of(*base));
      continue;
    }
    // The head has the weight from before, and files of it fit a network that says so.
    const auto state = state_dict(*network);
    CHECK(find_tensor(state, "lm_head.weight").to_vector<double>() ==
          find_tensor(state_dict(*base), "transformer.wte.weight").to_vector<double>());
  }
}

TEST_CASE("adapters: files leave out the frozen base where it lies elsewhere") {
  const auto network = tiny("decoder"), other = tiny("decoder", kCpu, 4);
  adapt(*network, of(Type::dora, {"q_proj"}));
  adapt(*other, of(Type::dora, {"q_proj"}));
  move_adapters(*network);
  const auto base = state_dict(*tiny("decoder"));
  // The base has no adapters, and theirs keep their values.
  load_state_dict(*other, base, "", {.without_adapters = true});
  for (const auto& each : {network, other}) each->leave_out_frozen(true);
  const auto state = state_dict(*network);
  CHECK(state.size() == 6);
  CHECK(state_views(*network).size() == 6);
  load_state_dict(*other, state);
  CHECK(outputs(*network, ids_of()).value().to_vector<float>() ==
        outputs(*other, ids_of()).value().to_vector<float>());
  CHECK_THROWS_WITH_AS(load_state_dict(*other, base), doctest::Contains("unexpected ("), Error);
  other->leave_out_frozen(false);
  CHECK_THROWS_WITH_AS(load_state_dict(*other, base), doctest::Contains("missing (6)"), Error);
}

TEST_CASE("adapters: a magnitude follows the weights that are loaded after it was made") {
  const auto base = tiny("decoder", kCpu, 8), network = tiny("decoder");
  adapt(*network, of(Type::dora));
  load_state_dict(*network, state_dict(*base), "", {.without_adapters = true});
  const std::vector<float> expected = outputs(*base, ids_of()).value().to_vector<float>();
  CHECK(outputs(*network, ids_of()).value().to_vector<float>() != expected);
  reset_magnitudes(*network);
  CHECK(outputs(*network, ids_of()).value().to_vector<float>() == expected);
}

namespace {

// What one layer of a decoder on meta keeps for backward, without its parameters.
int64_t kept_with(const std::vector<std::string>& targets) {
  const auto network = tiny("decoder", kMeta);
  AdapterOptions options = of(Type::lora, targets);
  options.rank = 8;
  adapt(*network, options);
  const Tensor ids = ids_of(kMeta);
  const auto live = [] {
    const MemoryReport report = allocator(kMeta).report();
    return report.of(Category::activation) + report.of(Category::packed);
  };
  const int64_t before = live();
  const Variable y = outputs(*network, ids);
  return live() - before - y.value().nbytes();
}

}  // namespace

TEST_CASE("adapters: x is kept once for all that read it") {
  const std::string at = "layers.1.self_attn.";
  const int64_t one = kept_with({at + "q_proj"}),
                three = kept_with({at + "q_proj", at + "k_proj", at + "v_proj"});
  // x a^T of two more adapters: 18 tokens, 8 numbers each. These are whole units of the allocator.
  CHECK(three - one == 2 * 18 * 8 * 4);
}
