#include "models/zoo/decoder.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "autograd/product_recipes.h"
#include "models/checkpointed.h"
#include "models/dense.h"
#include "models/matrix_weight.h"

namespace frugal::models {
namespace {

constexpr double kDecoderDeviation = 0.02;  // standard deviation of initial weights

// [..., H] -> [..., H]. Parameter: weight [H].
class RmsNorm : public Module {
 public:
  RmsNorm(Init& init, int64_t width, double eps, double offset)
      : eps_(eps),
        offset_(offset),
        weight_(register_parameter("weight", constant(init, {width}, 1 - offset))) {}
  Variable forward(Variable x, Context&) override { return rms_norm(x, weight_, eps_, offset_); }

 private:
  double eps_, offset_;
  Variable weight_;
};

std::shared_ptr<Module> norm_of(Init& init, const DecoderOptions& options, int64_t width) {
  return std::make_shared<RmsNorm>(init, width, options.eps, options.is_gemma() ? 1 : 0);
}

std::shared_ptr<Dense> dense_of(Init& init, int64_t in, int64_t out, bool bias) {
  Tensor weight = normal(init, {out, in}, kDecoderDeviation);
  return std::make_shared<Dense>(std::move(weight), bias ? constant(init, {out}, 0) : Tensor());
}

// Is the flag of this layer set in a list that has one for each layer?
bool listed(const std::vector<int64_t>& list, int64_t layer) {
  return list[static_cast<size_t>(layer)] != 0;
}

void check_list(const char* name, const std::vector<int64_t>& list, int64_t layers) {
  if (!list.empty() && static_cast<int64_t>(list.size()) != layers)
    throw OptionError(
        name, fmt::format("expected an entry for each of {} layers, got {}", layers, list.size()));
}

void check(const DecoderOptions& o) {
  if (o.head_size == 0 && o.hidden % o.heads != 0)
    throw OptionError("heads", fmt::format("expected heads that divide the width {}, or a "
                                           "head_size, got {}",
                                           o.hidden, o.heads));
  if (o.heads % o.key_heads() != 0)
    throw OptionError("kv_heads", fmt::format("expected heads that divide the {} of queries, got "
                                              "{}",
                                              o.heads, o.key_heads()));
  if (o.channels() % 2 != 0)
    throw OptionError("head_size", fmt::format("expected an even number of channels of a head, got "
                                               "{}",
                                               o.channels()));
  const auto scaling = o.rotary.scaling;
  if (scaling != RotaryOptions::Scaling::none && scaling != RotaryOptions::Scaling::linear &&
      o.rotary.first_length <= 0)
    throw OptionError("rope_first_length",
                      "expected the length of sequences that positions were trained on first, "
                      "which this rope_scaling needs, got none");
}

}  // namespace

bool DecoderOptions::is_tied() const {
  return tied.value_or(is_gemma() || family == DecoderFamily::smollm3);
}

int64_t DecoderOptions::window_of(int64_t layer) const {
  const int64_t own = is_gemma() ? 4096 : 0;
  const int64_t keys = window.value_or(own);
  if (!windows.empty()) return listed(windows, layer) ? keys : 0;
  if (family == DecoderFamily::gemma2) return layer % 2 == 0 ? keys : 0;
  if (family == DecoderFamily::gemma3) return (layer + 1) % 6 != 0 ? keys : 0;
  return keys;
}

bool DecoderOptions::turns(int64_t layer) const {
  if (!rotations.empty()) return listed(rotations, layer);
  return family != DecoderFamily::smollm3 || (layer + 1) % 4 != 0;
}

RotaryOptions DecoderOptions::rotary_of(int64_t layer) const {
  if (family != DecoderFamily::gemma3 || window_of(layer) == 0) return rotary;
  return {.base = local_base};
}

void DecoderOptions::set_sizes(Sizes& sizes, const DecoderOptions& options) {
  check(options);
  sizes.width_step = options.head_size > 0 ? 1 : 2 * options.heads;
}

const Published<DecoderOptions>& DecoderOptions::published() {
  static const Published<DecoderOptions> all = {{"decoder", {}}};
  return all;
}

namespace {

constexpr double kFar = 1e12;

// How positions turn.
std::vector<Option<RotaryOptions>> rotary_options() {
  using O = RotaryOptions;
  return {
      {{"rope_base", range::positive(kFar),
        "decoder: rotary positions turn pair i of D/2 by base^(-2i/D) a token."},
       &O::base},
      {{"rope_scaling", range::choice("none, linear, dynamic, llama3, yarn"),
        "decoder: how rotary positions are slowed down for long sequences."},
       &O::scaling},
      {{"rope_factor", range::number(1, kFar),
        "decoder: by how much rope_scaling slows positions down."},
       &O::factor},
      {{"rope_first_length", range::number(0, kFar),
        "decoder: the length of sequences before rope_scaling."},
       &O::first_length},
      {{"rope_low", range::positive(kFar),
        "decoder: with rope_scaling llama3, pairs of fewer turns are slowed down."},
       &O::low},
      {{"rope_high", range::positive(kFar),
        "decoder: with rope_scaling llama3, pairs of more turns stay."},
       &O::high},
      {{"rope_most_turns", range::positive(kFar),
        "decoder: with rope_scaling yarn, pairs of more turns stay."},
       &O::most_turns},
      {{"rope_least_turns", range::positive(kFar),
        "decoder: with rope_scaling yarn, pairs of fewer turns are slowed down."},
       &O::least_turns},
      {{"rope_whole_pairs", range::flag(),
        "decoder: with rope_scaling yarn, the change begins and ends at whole pairs."},
       &O::whole_pairs},
      {{"rope_gain", range::positive(kFar),
        "decoder: sines and cosines of positions are multiplied by this."},
       &O::gain},
  };
}

Key of_family(const char* name, const Range& range, const char* help) {
  return {name, range, help, Key::own};
}

}  // namespace

std::vector<Option<DecoderOptions>> DecoderOptions::list() {
  using O = DecoderOptions;
  const std::vector<Option<O>> sizes = {
      {{"family", range::choice("llama, mistral, qwen2, qwen3, smollm3, gemma2, gemma3_text"),
        "decoder: whose layers they are. A folder of the hub as model.weights says it, and all "
        "other keys of decoder."},
       &O::family},
      {keys::kLayers, &O::layers},
      {keys::kWidth, &O::hidden},
      {keys::kHeads, &O::heads},
      {{"kv_heads", range::integer(0, 4096),
        "decoder: heads of keys and values, each for equally many heads of queries; 0: as many as "
        "heads."},
       &O::kv_heads},
      {{"head_size", range::multiple(2, 0, 1 << 12),
        "decoder: channels of a head; 0: width / heads."},
       &O::head_size},
      {keys::kFeedForward, &O::inner},
      {keys::kAttentionDropout, &O::attention_dropout},
      {keys::kMaxPositions, &O::context_length},
      {keys::kVocabSize, &O::vocab_size},
      {{"norm_eps", range::divisor(1), "decoder: what norms add to the mean square."}, &O::eps},
      {of_family("activation", range::choice("silu, gelu, gelu_tanh"),
                 "decoder: the function of the gate; null: silu, gemma's gelu_tanh."),
       &O::activation},
      {keys::kTied, &O::tied},
      {{"attention_bias", range::flag(), "decoder: products of attention have biases."},
       &O::attention_bias},
      {{"mlp_bias", range::flag(), "decoder: products of the second branch have biases."},
       &O::mlp_bias},
  };
  const std::vector<Option<O>> rest = {
      {{"rope_local_base", range::positive(kFar),
        "decoder: gemma3's rope_base of layers with a window."},
       &O::local_base},
      {of_family("rope_layers", range::integers(0, 1, 0, 4096),
                 "decoder: for each layer 1, or 0 if it turns no positions; null: the family's."),
       &O::rotations},
      {of_family("attention_window", range::integer(0, int64_t{1} << 30),
                 "decoder: the most tokens that a token sees, itself included; 0: all; null: the "
                 "family's, llama 0."),
       &O::window},
      {of_family("window_layers", range::integers(0, 1, 0, 4096),
                 "decoder: for each layer 1, or 0 if it has no window; null: the family's, llama "
                 "all."),
       &O::windows},
      {{"attention_scale", range::number(0, kFar),
        "decoder: scores of attention are products times this; 0: 1 / sqrt(head_size)."},
       &O::attention_scale},
      {of_family("attention_cap", range::number(0, kFar),
                 "decoder: scores s become cap tanh(s / cap); 0: they stay; null: the family's, "
                 "llama 0."),
       &O::attention_cap},
      {of_family("logit_cap", range::number(0, kFar), "decoder: the same of the logits."), &O::cap},
      {{"rebuilt_products", range::choice("auto, none, queries, all"),
        "decoder: outputs of frozen products that the backward pass computes again instead of "
        "keeping them in codes. queries: those of attention; all: also values and what gates are "
        "multiplied by, where no adapter reads what they are made of; auto: all where these "
        "weights are int8 or nf4, else queries."},
       &O::rebuilt},
  };
  return joined(joined(sizes, by_name::options_of(&O::rotary, rotary_options())), rest);
}

// Each norm precedes its branch: x = x + attention(norm(x)), x = x + mlp(norm(x)). Gemma has
// another norm behind each branch.
class Decoder::Layer : public Module {
 public:
  Layer(Init& init, const DecoderOptions& o, int64_t index)
      : heads_(o.heads),
        key_heads_(o.key_heads()),
        channels_(o.channels()),
        kind_(o.activation.value_or(o.is_gemma() ? Gate::gelu_tanh : Gate::silu)),
        turns_(o.turns(index)),
        rotary_(o.rotary_of(index)),
        dropout_(o.attention_dropout),
        rebuilt_(o.rebuilt) {
    const int64_t width = o.hidden, queries = heads_ * channels_, keys = key_heads_ * channels_;
    const bool bias = o.attention_bias, of_inputs = bias || o.family == DecoderFamily::qwen2;
    const auto dense = [&](const char* name, int64_t in, int64_t out, bool has_bias) {
      return register_module(name, dense_of(init, in, out, has_bias));
    };
    const auto norm = [&](const char* name, int64_t size) {
      return register_module(name, norm_of(init, o, size));
    };
    before_attention_ = norm("input_layernorm", width);
    q_ = dense("self_attn.q_proj", width, queries, of_inputs);
    k_ = dense("self_attn.k_proj", width, keys, of_inputs);
    v_ = dense("self_attn.v_proj", width, keys, of_inputs);
    if (o.has_query_norms()) {
      q_norm_ = norm("self_attn.q_norm", channels_);
      k_norm_ = norm("self_attn.k_norm", channels_);
    }
    o_ = dense("self_attn.o_proj", queries, width, bias);
    if (o.is_gemma()) after_attention_ = norm("post_attention_layernorm", width);
    before_mlp_ =
        norm(o.is_gemma() ? "pre_feedforward_layernorm" : "post_attention_layernorm", width);
    gate_ = dense("mlp.gate_proj", width, o.inner_width(), o.mlp_bias);
    up_ = dense("mlp.up_proj", width, o.inner_width(), o.mlp_bias);
    down_ = dense("mlp.down_proj", o.inner_width(), width, o.mlp_bias);
    if (o.is_gemma()) after_mlp_ = norm("post_feedforward_layernorm", width);
    attention_.causal = true;
    attention_.scale = o.attention_scale;
    attention_.window = o.window_of(index);
    const double cap = o.family == DecoderFamily::gemma2 ? 50 : 0;
    attention_.soft_cap = o.attention_cap.value_or(cap);
  }

  Variable forward(Variable x, Context& context) override {
    return run(std::move(x), nullptr, nullptr, context.extra("position_ids"), context);
  }
  // For the tokens at these positions, which follow those in `keys` and `values`. Both grow by the
  // new tokens.
  Variable continued(Variable x, Tensor& keys, Tensor& values, const Tensor& positions,
                     Context& context) {
    return run(std::move(x), &keys, &values, positions, context);
  }

 private:
  static bool is_frozen(const Dense& layer) {
    const MatrixWeight& weight = layer.matrix();
    return layer.adapter() == nullptr && (weight.packed.defined() || !weight.whole.requires_grad());
  }
  // layer(x), whose output backward may compute again from codes of so many bits
  static Variable product(Dense& layer, const Variable& x, bool rebuilt, int least_bits,
                          Context& context) {
    const ProductRecipes recipes(rebuilt, least_bits);
    return layer.forward(x, context);
  }
  // Rebuilt from fewer bits, outputs beside q make gradients biased (docs/design/gradients.md).
  static constexpr int kUnbiased = 3;
  bool rebuilds_beside_q(const Dense& layer) const {
    if (rebuilt_ != RebuiltProducts::automatic) return rebuilt_ == RebuiltProducts::all;
    const ops::PackedMatrix& packed = layer.matrix().packed;
    return packed.defined() && packed.format != ops::MatrixFormat::bf16;
  }
  // The gradient of a trained k's weights multiplies x with v.
  bool rebuilds_v() const { return rebuilds_beside_q(*v_) && is_frozen(*k_); }
  // The gradients of trained weights of both multiply their input with the other's output.
  bool rebuilds_up() const {
    return rebuilds_beside_q(*up_) && is_frozen(*gate_) && is_frozen(*up_);
  }
  // The input of products of which `rebuilt` ones are not kept
  static Variable normed(Module& norm, const Variable& x, bool rebuilt, Context& context) {
    const ProductSources sources(rebuilt ? kUnbiased : 0);
    return norm.forward(x, context);
  }

  // [N, T, heads D] -> [N, T, heads, D], normed and turned
  Variable heads_of(const Variable& x, int64_t heads, const std::shared_ptr<Module>& norm,
                    const Tensor& positions, Context& context) const {
    Variable y = reshape(x, {x.size(0), x.size(1), heads, channels_});
    if (norm != nullptr) y = norm->forward(std::move(y), context);
    return turns_ ? rotary_embedding(y, positions, rotary_) : y;
  }

  Variable attend(const Variable& x, Tensor* keys, Tensor* values, const Tensor& positions,
                  Context& context) const {
    // The norm of a q keeps what q is rebuilt from.
    const bool rebuilds_q = rebuilt_ != RebuiltProducts::none && q_norm_ == nullptr;
    Variable q = product(*q_, x, rebuilds_q, 0, context);
    q = heads_of(q, heads_, q_norm_, positions, context);
    Variable k = heads_of(k_->forward(x, context), key_heads_, k_norm_, positions, context);
    Variable v = product(*v_, x, rebuilds_v(), kUnbiased, context);
    v = reshape(v, {v.size(0), v.size(1), key_heads_, channels_});
    if (keys != nullptr) {
      k = Variable(append(*keys, k.value()));
      v = Variable(append(*values, v.value()));
    }
    AttentionOptions options = attention_;
    if (dropout_ > 0 && context.training) {
      FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
      options.dropout = dropout_;
      options.key = context.rng->next();
    }
    const Variable y = scaled_dot_product_attention(
        q, k, v, keys == nullptr ? decoder_mask(context) : Tensor(), {}, options);
    return o_->forward(reshape(y, {y.size(0), y.size(1), heads_ * channels_}), context);
  }

  Variable run(Variable x, Tensor* keys, Tensor* values, const Tensor& positions,
               Context& context) const {
    Variable y = attend(normed(*before_attention_, x, rebuilds_v(), context), keys, values,
                        positions, context);
    if (after_attention_ != nullptr) y = after_attention_->forward(std::move(y), context);
    x = add(y, x);
    y = normed(*before_mlp_, x, rebuilds_up(), context);
    Variable gate = gate_->forward(y, context);
    Variable up = product(*up_, y, rebuilds_up(), kUnbiased, context);
    y = gated(gate, up, kind_);
    gate = up = {};  // nobody keeps them whole
    y = down_->forward(std::move(y), context);
    if (after_mlp_ != nullptr) y = after_mlp_->forward(std::move(y), context);
    return add(y, x);
  }

  int64_t heads_, key_heads_, channels_;
  Gate kind_;
  bool turns_;
  RotaryOptions rotary_;
  double dropout_;
  RebuiltProducts rebuilt_;
  AttentionOptions attention_;
  std::shared_ptr<Module> before_attention_, q_norm_, k_norm_, after_attention_, before_mlp_,
      after_mlp_;
  std::shared_ptr<Dense> q_, k_, v_, o_, gate_, up_, down_;
};

Decoder::Decoder(Init& init, const DecoderOptions& options) : options_(options) {
  check(options);
  check_list("window_layers", options.windows, options.layers);
  check_list("rope_layers", options.rotations, options.layers);
  tokens_ =
      register_module("model.embed_tokens",
                      std::make_shared<EmbeddingTable>(
                          normal(init, {options.vocab_size, options.hidden}, kDecoderDeviation),
                          options.is_tied()));
  for (int64_t i = 0; i < options.layers; ++i)
    layers_.push_back(register_module("model.layers." + std::to_string(i),
                                      std::make_shared<Layer>(init, options, i)));
  norm_ = register_module("model.norm", norm_of(init, options, options.hidden));
  if (!options.is_tied())
    output_ = register_module("lm_head", dense_of(init, options.hidden, options.vocab_size, false));
}

Variable Decoder::embedded(const Tensor& ids, Context& context) const {
  const Variable x = as_activation(tokens_->rows(ids), context);
  return options_.is_gemma() ? scale(x, std::sqrt(static_cast<double>(options_.hidden))) : x;
}

// Beyond first_length, a dynamic scaling turns all tokens anew with each token that comes.
int64_t Decoder::past_length() const {
  const RotaryOptions& rotary = options_.rotary;
  if (rotary.scaling != RotaryOptions::Scaling::dynamic) return context_length();
  return std::min(context_length(), static_cast<int64_t>(rotary.first_length));
}

Variable Decoder::continued(const Tensor& ids, Past& past, Context& context) {
  check_ids("decoder", ids, options_.context_length - past.tokens);
  past.keys.resize(layers_.size());
  past.values.resize(layers_.size());
  const Tensor at = positions(past.tokens + ids.size(1), context.device)
                        .slice(0, past.tokens, past.tokens + ids.size(1));
  Variable x = embedded(ids, context);
  for (size_t i = 0; i < layers_.size(); ++i)
    x = layers_[i]->continued(std::move(x), past.keys[i], past.values[i], at, context);
  past.tokens += ids.size(1);
  return norm_->forward(std::move(x), context);
}

Variable Decoder::hidden(const Tensor& ids, Context& context) {
  check_ids("decoder", ids, options_.context_length);
  checked_extra("decoder", context, "attention_mask", ids);
  positions_in_samples("decoder", context, ids);
  Variable x = embedded(ids, context);
  for (const auto& layer : layers_)
    x = checkpointed(context, std::move(x), [layer](Variable in, Context& inner) {
      return layer->forward(std::move(in), inner);
    });
  return norm_->forward(std::move(x), context);
}

void Decoder::untie_head() { output_ = register_module("lm_head", tokens_->leave_head()); }

HeadedModule::Head Decoder::head(Variable hidden) {
  const double cap = options_.family == DecoderFamily::gemma2 ? 30 : 0;
  return {std::move(hidden),
          output_ == nullptr ? tokens_->weight() : output_->weight(),
          {},
          options_.cap.value_or(cap)};
}

}  // namespace frugal::models
