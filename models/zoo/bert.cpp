#include "models/zoo/bert.h"

#include "autograd/functions.h"
#include "models/checkpointed.h"
#include "models/dense.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr double kBertDeviation = 0.02;  // standard deviation of all initial weights

int64_t intermediate_of(const BertOptions& options) {
  return options.intermediate > 0 ? options.intermediate : 4 * options.hidden;
}

// What the families call their modules and parameters.
struct Names {
  const char *base, *layer;
  const char *query, *key, *value, *projection, *norm1, *up, *down, *norm2;  // in a layer
  const char *bias, *transform, *transform_norm;                             // masked_lm has these
};
constexpr Names kBert = {"bert.",
                         "encoder.layer.",
                         "attention.self.query",
                         "attention.self.key",
                         "attention.self.value",
                         "attention.output.dense",
                         "attention.output.LayerNorm",
                         "intermediate.dense",
                         "output.dense",
                         "output.LayerNorm",
                         "cls.predictions.bias",
                         "cls.predictions.transform.dense",
                         "cls.predictions.transform.LayerNorm"};
constexpr Names roberta_names() {
  Names names = kBert;
  names.base = "roberta.";
  names.bias = "lm_head.bias";
  names.transform = "lm_head.dense";
  names.transform_norm = "lm_head.layer_norm";
  return names;
}
constexpr Names kRoberta = roberta_names();
constexpr Names kDistil = {
    "distilbert.",     "transformer.layer.", "attention.q_lin",      "attention.k_lin",
    "attention.v_lin", "attention.out_lin",  "sa_layer_norm",        "ffn.lin1",
    "ffn.lin2",        "output_layer_norm",  "vocab_projector.bias", "vocab_transform",
    "vocab_layer_norm"};

const Names& names_of(BertFamily family) {
  return family == BertFamily::roberta      ? kRoberta
         : family == BertFamily::distilbert ? kDistil
                                            : kBert;
}

// RoBERTa's classifier.
class TwoLayers : public Module {
 public:
  TwoLayers(Init& init, int64_t width, int64_t classes)
      : first(register_module("dense", normal_dense(init, width, width, kBertDeviation))),
        last(register_module("out_proj", normal_dense(init, width, classes, kBertDeviation))) {}
  Variable forward(Variable x, Context& context) override {
    return last->forward(tanh(first->forward(std::move(x), context)), context);
  }
  std::shared_ptr<Dense> first, last;
};

}  // namespace

// Each norm follows its branch: x = norm(x + attention(x)), x = norm(x + mlp(x)).
class Bert::Layer : public Module {
 public:
  Layer(Init& init, const BertOptions& options) : Layer(init, options, names_of(options.family)) {}

  Variable forward(Variable x, Context& context) override {
    return run(std::move(x), false, context);
  }
  Variable forward_first(Variable x, Context& context) {  // [N, T, H] -> [N, 1, H]
    return run(std::move(x), true, context);
  }

 private:
  Layer(Init& init, const BertOptions& options, const Names& names)
      : options_(options),
        query_(dense(init, names.query, options.hidden, options.hidden)),
        key_(dense(init, names.key, options.hidden, options.hidden)),
        value_(dense(init, names.value, options.hidden, options.hidden)),
        projection_(dense(init, names.projection, options.hidden, options.hidden)),
        norm1_(norm(init, names.norm1)),
        up_(dense(init, names.up, options.hidden, intermediate_of(options))),
        down_(dense(init, names.down, intermediate_of(options), options.hidden)),
        norm2_(norm(init, names.norm2)) {}

  Variable run(Variable x, bool first, Context& context) {
    const SelfAttentionOptions attention{options_.heads, options_.attention_dropout, false};
    const Variable k = key_->forward(x, context), v = value_->forward(x, context);
    if (first) x = first_token(x);
    Variable y = self_attention(query_->forward(x, context), k, v, attention,
                                context.extra("attention_mask"), context);
    y = projection_->forward(std::move(y), context);
    const bool drops = options_.family != BertFamily::distilbert;
    x = norm1_->forward(add(drops ? drop(y, options_.dropout, context) : y, x), context);
    y = {};  // nobody saves it, so its memory is released here
    y = drop(dense_gelu(*up_, x, context), options_.inner_dropout, context);
    y = drop(down_->forward(std::move(y), context), options_.dropout, context);
    return norm2_->forward(add(y, x), context);
  }

  std::shared_ptr<Dense> dense(Init& init, const char* name, int64_t in, int64_t out) {
    return register_module(name, normal_dense(init, in, out, kBertDeviation));
  }
  std::shared_ptr<LayerNorm> norm(Init& init, const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(init, options_.hidden, options_.eps));
  }

  BertOptions options_;
  std::shared_ptr<Dense> query_, key_, value_, projection_;
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<Dense> up_, down_;
  std::shared_ptr<LayerNorm> norm2_;
};

namespace {

BertOptions roberta(int64_t layers, int64_t hidden, int64_t heads) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .vocab_size = 50265,
          .max_positions = 514,
          .types = 1,
          .eps = 1e-5,
          .padding_id = 1,
          .family = BertFamily::roberta};
}

}  // namespace

const Published<BertOptions>& BertOptions::published() {
  static const Published<BertOptions> all = {
      {"bert_tiny", {2, 128, 2}},
      {"bert_mini", {4, 256, 4}},
      {"bert_small", {4, 512, 8}},
      {"bert_medium", {8, 512, 8}},
      {"bert_base", {12, 768, 12}},
      {"bert_large", {24, 1024, 16}},
      {"roberta_base", roberta(12, 768, 12)},
      {"roberta_large", roberta(24, 1024, 16)},
      {"distilbert_base",
       {.layers = 6, .types = 0, .pooler_dropout = 0.2, .family = BertFamily::distilbert}},
      {"encoder",
       {.layers = 4,
        .hidden = 256,
        .heads = 4,
        .inner_dropout = 0.1,
        .eps = 1e-5,
        .padding_id = -1,
        .bare = true}},
  };
  return all;
}

BertOptions bert_options(const std::string& name) {
  return find_published(BertOptions::published(), "bert", name);
}

Bert::Bert(Init& init, const BertOptions& options) : options_(options) {
  check_heads("bert", options.hidden, options.heads);
  if (options.longest() < 1)
    throw OptionError("max_positions",
                      fmt::format("expected at least {}, got {}", options.first_position() + 1,
                                  options.max_positions));
  const int64_t width = options.hidden;
  const Names& names = names_of(options.family);
  const std::string base = names.base;
  const auto table = [&](const char* name, int64_t rows) {
    return register_parameter(base + "embeddings." + name + "_embeddings.weight",
                              normal(init, {rows, width}, kBertDeviation));
  };
  words_ = table("word", options.vocab_size);
  if (options.padding_id >= 0 && words_.value().raw() != nullptr)
    ops::fill(words_.value().select(0, options.padding_id), 0);
  if (!options.bare) {
    positions_ = table("position", options.max_positions);
    position_ids_ = positions(options.max_positions, init.device);
    if (options.types > 0) types_ = table("token_type", options.types);
    norm_ = register_module(base + "embeddings.LayerNorm",
                            std::make_shared<LayerNorm>(init, width, options.eps));
  }
  for (int64_t i = 0; i < options.layers; ++i)
    layers_.push_back(register_module(base + names.layer + std::to_string(i),
                                      std::make_shared<Layer>(init, options)));
  if (options.head == BertHead::classification) {
    if (options.family == BertFamily::roberta) {
      const auto both = register_module(
          "classifier", std::make_shared<TwoLayers>(init, width, options.num_classes));
      pooler_ = both->first;
      classifier_ = both->last;
      head_ = both;
      return;
    }
    if (!options.bare)
      pooler_ = register_module(
          options.family == BertFamily::bert ? "bert.pooler.dense" : "pre_classifier",
          normal_dense(init, width, width, kBertDeviation));
    classifier_ = register_module("classifier",
                                  normal_dense(init, width, options.num_classes, kBertDeviation));
    return;
  }
  decoder_bias_ = register_parameter(names.bias, constant(init, {options.vocab_size}, 0));
  transform_ = register_module(names.transform, normal_dense(init, width, width, kBertDeviation));
  transform_norm_ =
      register_module(names.transform_norm, std::make_shared<LayerNorm>(init, width, options.eps));
}

Variable Bert::embed(const Tensor& ids, Context& context) {
  const Variable words = embedding(ids, words_, options_.padding_id);
  if (options_.bare) return as_activation(words, context);
  const int64_t first = options_.first_position();
  Variable around = embedding(position_ids_.slice(0, first, first + ids.size(1)), positions_);
  const Tensor given = checked_extra("bert", context, "token_type_ids", ids);
  if (types_.defined()) {
    const bool all_are_0 = !given.defined() || options_.types == 1;
    around = add(around, embedding(all_are_0 ? Tensor::zeros({1}, DType::i64, ids.device()) : given,
                                   types_));
  }
  const Variable sum = as_activation(add(words, around), context);
  return drop(norm_->forward(sum, context), options_.dropout, context);
}

HeadedModule::Head Bert::before_output(Variable ids, Context& context) {
  check_ids("bert", ids.value(), options_.bare ? INT64_MAX : options_.longest());
  checked_extra("bert", context, "attention_mask", ids.value());
  Variable x = embed(ids.value(), context);
  const bool first = options_.head == BertHead::classification;
  for (const auto& layer : layers_) {
    const bool last = first && layer == layers_.back();
    x = checkpointed(context, std::move(x), [layer, last](Variable in, Context& inner) {
      return last ? layer->forward_first(std::move(in), inner)
                  : layer->forward(std::move(in), inner);
    });
  }
  if (options_.head == BertHead::masked_lm) {
    x = transform_norm_->forward(dense_gelu(*transform_, x, context), context);
    return {std::move(x), words_, decoder_bias_};
  }
  if (layers_.empty()) x = first_token(x);
  x = reshape(x, {x.size(0), x.size(2)});
  if (pooler_ != nullptr) x = pooled(std::move(x), context);
  return {std::move(x), classifier_->weight(), classifier_->bias()};
}

// x [N, H]
Variable Bert::pooled(Variable x, Context& context) {
  const double own = options_.pooler_dropout, dropout = own < 0 ? options_.dropout : own;
  if (options_.family == BertFamily::roberta) x = drop(x, dropout, context);
  x = pooler_->forward(std::move(x), context);
  x = options_.family == BertFamily::distilbert ? relu(x) : tanh(x);
  return drop(x, dropout, context);
}

// The first of RoBERTa's two layers starts anew with the second.
std::string Bert::head_prefix() {
  return head_ != nullptr ? "classifier." : HeadedModule::head_prefix();
}

}  // namespace frugal::models
