// Language models, and text from them one token after the other.
#pragma once
#include <functional>

#include "models/module.h"

namespace frugal::models {

// A model whose logits at a position depend on the tokens up to it alone.
class LanguageModel : public HeadedModule {
 public:
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
// last context_length() tokens. `on_token` is told each one and ends it by returning false. Equal
// seeds give equal tokens.
// Errors: another shape or dtype, a temperature that is negative or not finite, top_k or tokens
// negative, logits that are not finite.
Tensor generate(LanguageModel& model, const Tensor& prompt, const GenerateOptions& options = {},
                const std::function<bool(int64_t)>& on_token = {});

}  // namespace frugal::models
