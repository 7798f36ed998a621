// Language models, and the generation of text, one token after the other.
#pragma once
#include <functional>
#include <vector>

#include "models/module.h"
#include "ops/dense/packed_matrix.h"

namespace frugal::models {

// Keys and values, for each layer, of the tokens that a model has seen: [1, tokens, ...].
struct Past {
  int64_t tokens = 0;
  std::vector<Tensor> keys, values;
};
// A text as far as a model has seen it: its tokens, and what the model keeps of them.
struct SeenText {
  std::vector<int64_t> ids;  // past.tokens of them
  Past past;
};
// Adds the rows `own` [1, T, ...] to `past`, and returns all of it. The bytes of `past` have room
// for some tokens more, so a token does not copy all that came before it. A copy of `past` shares
// this room, so only one of the two may grow.
const Tensor& append(Tensor& past, const Tensor& own);
// Leaves the first tokens of `past`. REQUIRES: tokens <= past.tokens.
void cut(Past& past, int64_t tokens);

// A model whose logits at a position depend only on the tokens up to that position.
class LanguageModel : public HeadedModule {
 public:
  // The longest text, in tokens, in which the keys and values of a token do not depend on what
  // follows it; 0: the model keeps none.
  virtual int64_t past_length() const { return 0; }
  // The hidden states of the tokens ids [1, T] i64, which follow the tokens of `past`. `past` grows
  // by these tokens. The result equals the last rows of hidden() for all tokens, except for
  // rounding. Computes no gradients. REQUIRES: NoGrad, past.tokens + T <= past_length().
  virtual Variable continued(const Tensor& ids, Past& past, Context& context) {
    (void)past;
    return hidden(ids, context);
  }
  virtual Variable hidden(const Tensor& ids, Context& context) = 0;  // [N, T] i64 -> [N, T, H]
  virtual Head head(Variable hidden) = 0;                            // [..., H] -> [..., V]
  // Gives the output head a weight of its own: a copy of the token embedding, which was its weight.
  // REQUIRES: it was. From now on the option `tied` = false describes this network.
  virtual void untie_head() {}
  virtual int64_t context_length() const = 0;                    // the longest T
  Head before_output(Variable ids, Context& context) override {  // [N, T] -> [N, T, V]
    return head(hidden(ids.value(), context));
  }

  // What prepare_to_generate() made of the head's weight, or undefined.
  const ops::PackedMatrix& packed_head() const { return packed_head_; }
  void set_packed_head(ops::PackedMatrix packed) { packed_head_ = std::move(packed); }

 private:
  ops::PackedMatrix packed_head_;
};

struct GenerateOptions {
  int64_t tokens = 100;
  double temperature = 1;  // 0: takes the most likely token; among equals the first
  // What is drawn from: each of these leaves out tokens that the ones before it left in.
  int64_t top_k = 0;  // so many most likely tokens; 0: all
  double top_p = 1;   // the fewest most likely tokens whose probabilities add up to this
  double min_p = 0;   // tokens of at least this share of the highest probability
  // Logits of tokens that the text has already are divided by it, or multiplied where they are
  // below 0. 1: they stay. Ref: Keskar et al. 2019, section 4.1
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

// Makes a model on the CPU in f32 ready to write many tokens; others stay as they are. Published
// models often hold nothing but numbers of bf16. This packs such weights as bf16 (models/pack.h):
// a token reads half their bytes, and its products stay the same numbers. The head gets a packed
// copy beside its weight, which an embedding may share. The model can no longer be trained.
void prepare_to_generate(LanguageModel& model);

// Continues prompt [1, T] i64, T >= 1, with at most `tokens` new tokens, [1, n] i64. The model sees
// the last context_length() tokens. As long as there are at most past_length() tokens, a new token
// costs a step of one token. After that, each new token changes all positions, and all of them are
// computed again. `on_token` gets each new token and ends the generation by returning false. `seen`
// is what an earlier call with this model has left: tokens with which the prompt begins are not
// computed again. An error empties it. Equal seeds give equal tokens. Errors: another shape or
// dtype, a temperature that is negative or not finite, a negative top_k or tokens, top_p outside
// (0, 1], min_p outside [0, 1], a repetition penalty that is not above 0, logits that are not
// finite.
Tensor generate(LanguageModel& model, const Tensor& prompt, const GenerateOptions& options = {},
                const std::function<bool(int64_t)>& on_token = {}, SeenText* seen = nullptr);

}  // namespace frugal::models
