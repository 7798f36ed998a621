// One decoder for the families of language models that a config.json of Hugging Face's hub
// describes, with its parameter names (LlamaForCausalLM and others).
// Ref: Touvron et al. 2023 (Llama 2), Llama Team 2024 (Llama 3), Jiang et al. 2023 (Mistral), Qwen
// Team 2024 (Qwen2), Yang et al. 2025 (Qwen3), Bakouch et al. 2025 (SmolLM3), Gemma Team 2024 and
// 2025 (Gemma 2 and 3).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/embedding_table.h"
#include "models/generate.h"
#include "models/transformer_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

// What the families have beside a Llama. Options say the rest.
//   qwen2:    biases of q, k and v
//   qwen3:    norms of each head of q and k
//   smollm3:  every 4th layer turns no positions
//   gemma2:   embeddings times sqrt(width), norms also behind both branches, scales counted from 1,
//             gelu, caps, a window in every second layer
//   gemma3:   as gemma2, with norms of q and k and without caps; the window in 5 of 6 layers, which
//             turn by another base
enum class DecoderFamily : uint8_t { llama, mistral, qwen2, qwen3, smollm3, gemma2, gemma3 };

// Which outputs of frozen products the backward pass computes again, if the policy rebuilds,
// instead of keeping them in codes. Each costs a product, and is rebuilt only where that is sound
// (autograd/product_recipes.h).
//   none:       no output
//   queries:    q, unless it is normed
//   all:        also v if k has no adapter, and what the gate is multiplied by if neither it nor
//               the gate has an adapter. What they are rebuilt from has at least 3 bits, since
//               with fewer they make gradients biased
//   automatic:  all where these weights are packed in 8 bits or fewer, queries elsewhere
enum class RebuiltProducts : uint8_t { automatic, none, queries, all };

// Without a value, an optional option is its family's.
struct DecoderOptions {
  DecoderFamily family = DecoderFamily::llama;
  int64_t layers = 30;
  int64_t hidden = 576;
  int64_t heads = 9;
  int64_t kv_heads = 0;   // heads of keys and values; 0: as many as heads
  int64_t head_size = 0;  // channels of a head; 0: hidden / heads
  int64_t inner = 0;      // width of the second branch; 0: 8/3 hidden, up to a multiple of 64
  int64_t vocab_size = 49152;
  int64_t context_length = 8192;
  double attention_dropout = 0;
  double eps = 1e-6;
  std::optional<Gate> activation;                 // silu; gemma: gelu_tanh
  std::optional<bool> tied;                       // does the head share the token embedding?
  bool attention_bias = false, mlp_bias = false;  // biases of all products of a branch
  RotaryOptions rotary;
  double local_base = 10000;                 // gemma3: RotaryOptions::base of layers with a window
  std::optional<int64_t> window;             // AttentionOptions::window; 0: none
  std::vector<int64_t> windows, rotations;   // for each layer 1 or 0; empty: the family's
  double attention_scale = 0;                // 0: 1 / sqrt(head_size)
  std::optional<double> attention_cap, cap;  // what scores and logits stay below; 0: none
  RebuiltProducts rebuilt = RebuiltProducts::automatic;

  static const Published<DecoderOptions>& published();
  static std::vector<Option<DecoderOptions>> list();
  static void set_sizes(Sizes& sizes, const DecoderOptions& options);

  bool is_gemma() const { return family >= DecoderFamily::gemma2; }
  bool has_query_norms() const {
    return family == DecoderFamily::qwen3 || family == DecoderFamily::gemma3;
  }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t channels() const { return head_size > 0 ? head_size : hidden / heads; }  // a head's
  int64_t inner_width() const { return inner > 0 ? inner : (8 * hidden / 3 + 63) / 64 * 64; }
  bool is_tied() const;
  int64_t window_of(int64_t layer) const;  // 0: none
  bool turns(int64_t layer) const;         // positions
  RotaryOptions rotary_of(int64_t layer) const;
};

// Input: token ids [N, T] i64. context.extra("attention_mask") [N, T] i64, if given, is 0 where a
// token is padding. context.extra("position_ids") [N, T] i64, if given, counts from 0 in each
// sample of a row, and samples do not see each other. Errors: ids that are not [N, T] i64, T beyond
// context_length, an extra of another shape or dtype, both extras, an id outside the vocabulary,
// samples that share a row and are longer than rotary.first_length where the scaling of positions
// is dynamic. The constructor refuses heads that do not divide the width (without head_size),
// kv_heads that do not divide the heads, an odd number of channels of a head, lists with another
// number of entries than layers, a scaling of positions without its numbers.
class Decoder : public LanguageModel {
 public:
  Decoder(Init& init, const DecoderOptions& options);
  Variable hidden(const Tensor& ids, Context& context) override;
  int64_t past_length() const override;
  Variable continued(const Tensor& ids, Past& past, Context& context) override;
  Head head(Variable hidden) override;
  void untie_head() override;
  int64_t context_length() const override { return options_.context_length; }

 private:
  class Layer;
  Variable embedded(const Tensor& ids, Context& context) const;
  DecoderOptions options_;
  std::shared_ptr<EmbeddingTable> tokens_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<Module> norm_;
  std::shared_ptr<Dense> output_;  // null: the head is the token embedding
};

}  // namespace frugal::models
