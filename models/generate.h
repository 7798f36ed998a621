// Language models, and text from them one token after the other.
#pragma once
#include <functional>
#include <vector>

#include "models/module.h"

namespace frugal::models {

// Keys and values of the tokens that a model has seen, of each layer: [1, tokens, H].
struct Past {
  int64_t tokens = 0;
  std::vector<Tensor> keys, values;
};

// A model whose logits at a position depend on the tokens up to it alone.
class LanguageModel : public HeadedModule {
 public:
  // May continued() be called?
  virtual bool keeps_past() const { return false; }
  // The hidden states of ids [1, T] i64 that follow the tokens of `past`, which grows by them: to
  // rounding those of hidden() for all tokens. Without gradients. REQUIRES: keeps_past(),
  // NoGrad, past.tokens + T <= context_length().
  virtual Variable continued(const Tensor& ids, Past& past, Context& context) {
    (void)past;
    return hidden(ids, context);
  }
  virtual Variable hidden(const Tensor& ids, Context& context) = 0;  // [N, T] i64 -> [N, T, H]
  virtual Head head(Variable hidden) = 0;                            // [..., H] -> [..., V]
  virtual int64_t context_length() const = 0;                        // the longest T
  Head before_output(Variable ids, Context& context) override {      // [N, T] -> [N, T, V]
    return head(hidden(ids.value(), context));
  }
};

struct GenerateOptions {
  int64_t tokens = 100;
  double temperature = 1;  // 0: the likeliest token, the first of equals
  int64_t top_k = 0;       // draw from so many likeliest tokens only; 0: from all
  uint64_t seed = 0;
};

// Continues prompt [1, T] i64, T >= 1: at most `tokens` new ones, [1, n] i64. The model sees the
// last context_length() tokens. While there are no more, each new one costs a step of one token
// where the model keeps_past(); beyond, the positions of all move with each token, so that all of
// them are computed again. `on_token` is told each one and ends it by returning false. Equal seeds
// give equal tokens. Errors: another shape or dtype, a temperature that is negative or not finite,
// top_k or tokens negative, logits that are not finite.
Tensor generate(LanguageModel& model, const Tensor& prompt, const GenerateOptions& options = {},
                const std::function<bool(int64_t)>& on_token = {});

}  // namespace frugal::models
