#include "apps/cli/export_inputs.h"

#include <algorithm>
#include <memory>

#include "core/rng.h"

namespace frugal::apps {
namespace {

Tensor whole_numbers(const Shape& shape, uint64_t below, RngKey key) {
  const Tensor x = Tensor::empty(shape, DType::i64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<int64_t>()[i] = static_cast<int64_t>(uniform_int(key, static_cast<uint64_t>(i), below));
  return x;
}

// 1 for the tokens of a sequence, 0 for the padding behind them; no sequence is empty.
Tensor some_padding(int64_t batch, int64_t length, RngKey key) {
  const Tensor mask = Tensor::zeros({batch, length}, DType::i64);
  for (int64_t n = 0; n < batch; ++n) {
    const auto tokens = static_cast<int64_t>(
        uniform_int(key, static_cast<uint64_t>(n), static_cast<uint64_t>(length)));
    std::fill_n(mask.mut<int64_t>() + n * length, tokens + 1, 1);
  }
  return mask;
}

// Images and rows of numbers.
exports::OnnxInputs of_arrays(const BatchSpec& spec) {
  exports::OnnxInputs inputs;
  inputs.sizes = {{"batch", 2, 3}};
  inputs.make = [sample = spec.sample, rng = std::make_shared<Rng>(1)](const auto& sizes) {
    Shape shape{sizes[0]};
    for (const int64_t extent : sample) shape.push_back(extent);
    return NamedTensors{{"input", Tensor::randn(shape, rng->next())}};
  };
  return inputs;
}

exports::OnnxInputs of_sequences(const BatchSpec& spec) {
  const int64_t longest = spec.sample[0], some = std::min<int64_t>(longest, 7);
  exports::OnnxInputs inputs;
  inputs.sizes = {{"batch", 2, 3}};
  if (some > 1) inputs.sizes.push_back({"sequence", some, some - 1, longest});
  const auto vocabulary = static_cast<uint64_t>(spec.vocabulary);
  inputs.make = [some, vocabulary, extras = spec.token_extras,
                 rng = std::make_shared<Rng>(1)](const auto& sizes) {
    const Shape shape{sizes[0], sizes.size() > 1 ? sizes[1] : some};
    NamedTensors made{{"input_ids", whole_numbers(shape, vocabulary, rng->next())}};
    for (const std::string& name : extras)
      if (name != "position_ids")  // rows of one sample need none
        made.emplace_back(name, name == "attention_mask"
                                    ? some_padding(shape[0], shape[1], rng->next())
                                    : whole_numbers(shape, 2, rng->next()));
    return made;
  };
  return inputs;
}

exports::OnnxInputs of_graphs(const BatchSpec& spec) {
  exports::OnnxInputs inputs;
  inputs.sizes = {{"nodes", 7, 8}, {"edges", 20, 23}};
  inputs.make = [features = spec.sample[1], rng = std::make_shared<Rng>(1)](const auto& sizes) {
    const auto nodes = static_cast<uint64_t>(sizes[0]);
    return NamedTensors{{"x", Tensor::randn({sizes[0], features}, rng->next())},
                        {"edge_index", whole_numbers({2, sizes[1]}, nodes, rng->next())}};
  };
  return inputs;
}

}  // namespace

exports::OnnxInputs export_inputs(const BatchSpec& spec) {
  switch (spec.kind) {
    case BatchSpec::Kind::images:
    case BatchSpec::Kind::rows:
      return of_arrays(spec);
    case BatchSpec::Kind::sequences:
      return of_sequences(spec);
    case BatchSpec::Kind::graph:
      return of_graphs(spec);
  }
  return {};
}

}  // namespace frugal::apps
