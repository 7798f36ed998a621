// Frozen weights in few bits: which they are, what networks with them compute, and their states.
#include "models/pack.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/engine.h"
#include "models/activations.h"
#include "models/adapters/adapters.h"
#include "models/dense.h"
#include "models/freeze.h"
#include "models/layers.h"
#include "models/matrix_weight.h"
#include "models/registry.h"
#include "models/state.h"
#include "models/zoo/decoder.h"
#include "models/zoo/gpt2.h"
#include "ops/dense/copy.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using ops::MatrixFormat;

namespace {

constexpr MatrixFormat kFormats[] = {MatrixFormat::bf16, MatrixFormat::int8, MatrixFormat::nf4};

DecoderOptions tiny() {
  DecoderOptions o;
  o.layers = 2, o.hidden = 32, o.heads = 4, o.kv_heads = 2, o.inner = 48, o.vocab_size = 40;
  o.context_length = 16;
  o.tied = false;
  return o;
}

// Norms, embeddings and the head train.
std::shared_ptr<Module> decoder(Init& init) {
  auto net = std::make_shared<Decoder>(init, tiny());
  freeze(*net, {"model.layers.", "!*norm.weight"});
  return net;
}

std::shared_ptr<Module> packed_decoder(MatrixFormat format, uint64_t seed = 1) {
  Init init{Rng(seed)};
  return make_packed(decoder, init, {format, {}});
}

const Tensor* find(const NamedTensors& state, const std::string& name) {
  const auto found = std::find_if(state.begin(), state.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == state.end() ? nullptr : &found->second;
}

void check_equal(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].first);
    CHECK(a[i].first == b[i].first);
    CHECK(a[i].second.dtype() == b[i].second.dtype());
    CHECK(a[i].second.to_vector() == b[i].second.to_vector());
  }
}

constexpr const char* kWeight = "model.layers.1.mlp.down_proj.weight";  // [32, 48]

// The logits of a small batch in f64, and the gradients of all that trains.
std::vector<std::vector<double>> outputs_and_gradients(Module& net) {
  to_dtype(net, DType::f64);
  Context context;
  const Tensor ids = Tensor::from<int64_t>({3, 1, 4, 1, 5, 9, 2, 6}, {2, 4});
  const Variable y = net.forward(Variable(ids), context);
  backward(sum(mul(y, y)));
  std::vector<std::vector<double>> all = {y.value().to_vector()};
  for (const auto& p : net.parameters())
    if (p.parameter->requires_grad()) all.push_back(p.parameter->grad().to_vector());
  return all;
}

}  // namespace

TEST_CASE("packed weights are no parameters: their parts are buffers and in states") {
  const auto net = packed_decoder(MatrixFormat::nf4);
  for (const auto& p : net->parameters()) {
    CAPTURE(p.name);
    CHECK((p.name.find("norm") != std::string::npos || p.name == "lm_head.weight" ||
           p.name == "model.embed_tokens.weight"));
  }
  size_t parts = 0;
  for (const auto& b : net->buffers()) parts += b.packed ? 1 : 0;
  CHECK(parts == 2 * 7 * 4);
  const NamedTensors state = state_dict(*net);
  const std::string name = kWeight;
  REQUIRE(find(state, name) != nullptr);
  CHECK(find(state, name)->shape() == Shape{32 * 48 / 2, 1});
  CHECK(find(state, name)->dtype() == DType::u8);
  CHECK(find(state, name + ".absmax")->shape() == Shape{32 * 48 / 64});
  CHECK(find(state, name + ".nested_absmax")->shape() == Shape{1});
  CHECK(find(state, name + ".nested_offset")->shape() == Shape{1});
}

TEST_CASE("make_packed draws what make draws, and packs it") {
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    Init init{Rng(5)};
    const auto whole = decoder(init);
    pack(*whole, {format, {}});
    check_equal(state_dict(*packed_decoder(format, 5)), state_dict(*whole));
  }
}

TEST_CASE("make_packed holds one whole weight at a time") {
  DecoderOptions o = tiny();
  o.layers = 8, o.hidden = 256, o.inner = 512, o.vocab_size = 8;
  const auto make = [&](Init& init) {
    auto net = std::make_shared<Decoder>(init, o);
    freeze(*net, {"model.layers."});
    return net;
  };
  const int64_t before = allocator(kCpu).report().live_total;
  allocator(kCpu).reset_peak();
  Init init{Rng(1)};
  const auto net = make_packed(make, init, {MatrixFormat::nf4, {}});
  const MemoryReport report = allocator(kCpu).report();
  const int64_t largest = 512 * 256 * 4;            // bytes of the largest weight in f32
  CHECK(report.live_total - before < 8 * largest);  // all in f32: 36 times
  CHECK(report.peak_total - report.live_total < 3 * largest / 2);
}

TEST_CASE("a network on meta takes the bytes of the packed one") {
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    const auto taken = [&](Device device) {
      const int64_t before = allocator(device).report().live_total;
      Init init{Rng(1), device};
      const auto net = make_packed(decoder, init, {format, {}});
      return allocator(device).report().live_total - before;
    };
    CHECK(taken(kMeta) == taken(kCpu));
  }
}

TEST_CASE("packed networks compute what networks with the unpacked weights compute, in f64") {
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    const auto packed = packed_decoder(format);
    Init init{Rng(2)};
    const auto whole = decoder(init);
    load_state_dict(*whole, state_dict(*packed));
    const auto a = outputs_and_gradients(*packed), b = outputs_and_gradients(*whole);
    REQUIRE(a.size() == b.size());
    REQUIRE(a.size() == 1 + 2 + 5);  // logits; embedding and head; norms
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t k = 0; k < a[i].size(); ++k)
        CHECK(a[i][k] == doctest::Approx(b[i][k]).epsilon(1e-10));
  }
}

TEST_CASE("adapters beside packed weights are those beside the unpacked ones, in f64") {
  for (const AdapterType type : {AdapterType::lora, AdapterType::dora}) {
    CAPTURE(static_cast<int>(type));
    const auto make = [&](Init& init) {
      auto net = std::make_shared<Decoder>(init, tiny());
      AdapterOptions adapters;
      adapters.type = type;
      adapters.rank = 2;
      add_adapters(*net, init, adapters);
      return net;
    };
    Init first{Rng(1)}, second{Rng(2)};
    const auto packed = make_packed(make, first, {MatrixFormat::nf4, {}});
    reset_magnitudes(*packed);
    size_t parts = 0;
    for (const auto& b : packed->buffers()) parts += b.packed ? 1 : 0;
    CHECK(parts == 2 * 7 * 4);
    uint64_t seed = 0;
    for (const auto& p : packed->parameters())  // an adapter that starts anew changes nothing
      if (p.name.ends_with("lora_B.weight"))
        ops::copy_into(p.parameter->value(), Tensor::randn(p.parameter->shape(), {9, ++seed}));
    const std::shared_ptr<Module> whole = make(second);
    load_state_dict(*whole, state_dict(*packed));
    const auto a = outputs_and_gradients(*packed), b = outputs_and_gradients(*whole);
    REQUIRE(a.size() == b.size());
    REQUIRE(a.size() > 2 * 7 * 2);
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t k = 0; k < a[i].size(); ++k)
        CHECK(a[i][k] == doctest::Approx(b[i][k]).epsilon(1e-9));
  }
}

TEST_CASE("states: whole weights are packed, and packed ones unpacked or taken as they are") {
  Init init{Rng(3)};
  const auto whole = decoder(init);
  const NamedTensors values = state_dict(*whole);
  for (const MatrixFormat format : kFormats) {
    CAPTURE(ops::name_of(format));
    const auto net = packed_decoder(format, 4);
    load_state_dict(*net, values);
    Init again{Rng(3)};
    const auto same = make_packed(decoder, again, {format, {}});
    check_equal(state_dict(*net), state_dict(*same));
    const auto copy = packed_decoder(format, 8);
    load_state_dict(*copy, state_dict(*net));
    check_equal(state_dict(*copy), state_dict(*net));
    // A whole network unpacks it.
    Init other{Rng(9)};
    const auto back = decoder(other);
    load_state_dict(*back, state_dict(*net));
    Tensor expected;
    for (const auto& m : net->matrices())
      if (m.name == kWeight) expected = ops::unpack_matrix(m.weight->packed);
    CHECK(find(state_dict(*back), kWeight)->to_vector() == expected.to_vector());
  }
  // A network of another format packs it again.
  const auto int8 = packed_decoder(MatrixFormat::int8), nf4 = packed_decoder(MatrixFormat::nf4, 2);
  load_state_dict(*nf4, state_dict(*int8));
  for (const auto& m : int8->matrices()) {
    if (!m.weight->packed.defined()) continue;
    const auto expected = ops::pack_matrix(ops::unpack_matrix(m.weight->packed), MatrixFormat::nf4);
    CHECK(find(state_dict(*nf4), m.name)->to_vector() == expected.codes.to_vector());
  }
}

TEST_CASE("states: weights that files hold transposed") {
  const auto make = [](Init& init) {
    Gpt2Options o;
    o.layers = 1, o.hidden = 16, o.heads = 2, o.vocab_size = 20, o.context_length = 8;
    auto net = std::make_shared<Gpt2>(init, o);
    freeze(*net, {"*.c_*.weight"});
    return net;
  };
  Init init{Rng(3)};
  const auto whole = make(init);
  Init first{Rng(3)}, second{Rng(4)};
  const auto packed = make_packed(make, first, {MatrixFormat::int8, {}});
  const auto net = make_packed(make, second, {MatrixFormat::int8, {}});
  load_state_dict(*net, state_dict(*whole));
  check_equal(state_dict(*net), state_dict(*packed));
  load_state_dict(*whole, state_dict(*packed));
  Context context;
  context.training = false;
  const Variable ids(Tensor::from<int64_t>({3, 1, 4, 1}, {1, 4}));
  const std::vector<double> a = whole->forward(ids, context).value().to_vector(),
                            b = packed->forward(ids, context).value().to_vector();
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
}

TEST_CASE("states: wrong shapes and missing parts are errors") {
  const auto net = packed_decoder(MatrixFormat::nf4);
  NamedTensors state = state_dict(*net);
  NamedTensors without = state;
  std::erase_if(without, [](const auto& e) { return e.first.ends_with("nested_offset"); });
  CHECK_THROWS_WITH_AS(load_state_dict(*net, without), doctest::Contains("nested_offset"), Error);
  Init init{Rng(3)};
  NamedTensors whole = state_dict(*decoder(init));
  for (auto& [name, tensor] : whole)
    if (name == kWeight) tensor = Tensor::zeros({32, 47});
  CHECK_THROWS_WITH_AS(load_state_dict(*net, whole),
                       doctest::Contains("expected [32, 48], got [32, 47]"), Error);
}

TEST_CASE("which weights are packed") {
  const auto names = [](const std::vector<std::string>& frozen,
                        const std::vector<std::string>& layers) {
    Init init{Rng(0), kMeta};
    const auto net = std::make_shared<Decoder>(init, tiny());
    freeze(*net, frozen);
    return packable_names(*net, {MatrixFormat::nf4, layers});
  };
  CHECK(names({"model.layers."}, {}).size() == 14);
  CHECK(names({"model.layers.0."}, {}).size() == 7);
  CHECK(names({"model.layers."}, {"*.q_proj.weight"}).size() == 2);
  CHECK(names({"model.layers."}, {"!*.q_proj.weight"}).size() == 12);
  CHECK(names({"model.layers."}, {"model.layers.1.", "!*down_proj.weight"}).size() == 6);
  const auto refused = [&](const std::vector<std::string>& frozen,
                           const std::vector<std::string>& layers, const char* part) {
    CHECK_THROWS_WITH_AS(names(frozen, layers), doctest::Contains(part), Error);
  };
  refused({}, {}, "expected weights of linear layers that do not train");
  refused({"*norm.weight"}, {}, "got none: freeze some first");
  refused({"model.layers.0."}, {"model.layers.1."}, "which trains");
  refused({"model.layers.", "lm_head."}, {"lm_head."}, "the last layer's");
  refused({"model.layers."}, {"encoder."}, "expected a pattern that fits the weight of a linear");
}

TEST_CASE("a packed layer that is read whole says so") {
  Init init{Rng(1)};
  const Dense dense(normal(init, {4, 6}, 1));
  const_cast<MatrixWeight&>(dense.matrix()).packed =
      ops::pack_matrix(dense.weight().value(), MatrixFormat::nf4);
  CHECK_THROWS_WITH_AS(dense.weight(), doctest::Contains("a weight [4, 6] that is whole"), Error);
}

TEST_CASE("a gelu behind a packed layer") {
  const auto run = [](MatrixFormat format) {
    Init init{Rng(1)};
    Sequential net{Linear(init, 6, 8), models::Gelu(), Linear(init, 8, 2)};
    freeze(net, {"0."});
    pack(net, {format, {}});
    Context context;
    return net.forward(zoo::randn({5, 6}, 3), context).value().to_vector();
  };
  const std::vector<double> exact = run(MatrixFormat::f32), packed = run(MatrixFormat::bf16);
  for (size_t i = 0; i < exact.size(); ++i) CHECK(std::abs(exact[i] - packed[i]) < 0.05);
}
