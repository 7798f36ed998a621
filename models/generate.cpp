#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "autograd/functions.h"
#include "autograd/packed_functions.h"
#include "autograd/record.h"
#include "core/log.h"
#include "core/random/random_streams.h"
#include "models/pack.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr size_t kSortedAtOnce = 128;  // tokens of a vocabulary

// Draws one token from the logits, with word `index` of the stream.
int64_t draw(const std::vector<double>& logits, const GenerateOptions& options, uint64_t index) {
  const auto likelier = [&](size_t a, size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t best = *std::min_element(order.begin(), order.end(), likelier);
  if (options.temperature == 0) return static_cast<int64_t>(best);
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size()) {
    std::nth_element(order.begin(), order.begin() + options.top_k, order.end(), likelier);
    order.resize(static_cast<size_t>(options.top_k));
    std::sort(order.begin(), order.end());
  }
  const auto weight = [&](size_t token) {
    return std::exp((logits[token] - logits[best]) / options.temperature);
  };
  if (options.top_p < 1) {
    double whole = 0, sum = 0;
    for (const size_t token : order) whole += weight(token);
    size_t count = 0, sorted = 0;  // the tail of a large vocabulary is never sorted
    const auto at = [&](size_t n) { return order.begin() + static_cast<ptrdiff_t>(n); };
    while (count < order.size() && sum < options.top_p * whole) {
      if (count == sorted) {
        const size_t next = std::min(order.size(), std::max(kSortedAtOnce, 8 * sorted));
        if (next < order.size()) std::nth_element(at(sorted), at(next), order.end(), likelier);
        std::sort(at(sorted), at(next), likelier);
        sorted = next;
      }
      sum += weight(order[count++]);
    }
    order.resize(std::max<size_t>(count, 1));
    std::sort(order.begin(), order.end());
  }
  if (options.min_p > 0)  // the highest weight is 1
    std::erase_if(order, [&](size_t token) { return weight(token) < options.min_p; });
  double total = 0;
  for (const size_t token : order) total += weight(token);
  double rest =
      total * static_cast<double>(uniform(streams::kGeneratedTokens.key(options.seed), index));
  for (const size_t token : order) {
    rest -= weight(token);
    if (rest < 0) return static_cast<int64_t>(token);
  }
  return static_cast<int64_t>(best);  // rounding left a remainder
}

// Makes the tokens that the text has already less likely.
void penalize(std::vector<double>& logits, const std::vector<int64_t>& tokens, double penalty) {
  if (penalty == 1) return;
  for (const int64_t token : std::set<int64_t>(tokens.begin(), tokens.end())) {
    if (token >= static_cast<int64_t>(logits.size())) continue;
    double& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Takes what was seen, as far as `tokens` begins with it. The last token is left to be computed.
Past take_past(SeenText* seen, const std::vector<int64_t>& tokens, int64_t longest) {
  if (seen == nullptr) return {};
  const SeenText before = std::exchange(*seen, {});
  const auto end =
      std::mismatch(before.ids.begin(), before.ids.end(), tokens.begin(), tokens.end() - 1).first;
  const int64_t shared = end - before.ids.begin();
  if (shared == 0 || static_cast<int64_t>(tokens.size()) > longest) return {};
  Past past = before.past;
  cut(past, shared);
  return past;
}

}  // namespace

const Tensor& append(Tensor& past, const Tensor& own) {
  constexpr int64_t kRoom = 64;  // tokens
  FRUGAL_ASSERT(own.dim() >= 2 && own.size(0) == 1);
  const int64_t had = past.defined() ? past.size(1) : 0, all = had + own.size(1);
  Shape shape = own.shape();
  shape[1] = 1;
  const int64_t token = shape.numel();
  const auto first = [&](const Tensor& room, int64_t tokens) {
    shape[1] = tokens;
    return room.as_strided(shape, contiguous_strides(shape), 0);
  };
  const int64_t bytes = all * token * static_cast<int64_t>(size_of(own.dtype()));
  if (!past.defined() || past.storage()->bytes() < bytes) {
    shape[1] = all + all / 4 + kRoom;
    const Tensor room = Tensor::empty(shape, own.dtype(), own.device());
    if (past.defined()) ops::copy_into(first(room, had), past);
    past = room;
  }
  past = first(past, all);
  ops::copy_into(past.slice(1, had, all), own);
  return past;
}

void cut(Past& past, int64_t tokens) {
  FRUGAL_ASSERT(tokens <= past.tokens);
  for (std::vector<Tensor>* all : {&past.keys, &past.values})
    for (Tensor& one : *all) one = one.slice(1, 0, tokens);
  past.tokens = tokens;
}

void prepare_to_generate(LanguageModel& model) {
  if (model.device() != kCpu || model.activations() != DType::f32) return;
  pack_exact(model);
  NoGrad no_grad;
  const Tensor weight = model.head(Variable()).weight.value();
  if (weight.dtype() == DType::f32 && weight.is_contiguous() && fits_bf16(weight))
    model.set_packed_head(ops::pack_matrix(weight, ops::MatrixFormat::bf16));
}

Tensor generate(LanguageModel& model, const Tensor& prompt, const GenerateOptions& options,
                const std::function<bool(int64_t)>& on_token, SeenText* seen) {
  FRUGAL_CHECK(prompt.dim() == 2 && prompt.dtype() == DType::i64 && prompt.size(0) == 1 &&
                   prompt.size(1) >= 1,
               "[generate] expected a prompt [1, T] i64 of at least one token, got {}",
               describe(prompt));
  FRUGAL_CHECK(std::isfinite(options.temperature) && options.temperature >= 0,
               "[generate] expected a temperature >= 0, got {}", options.temperature);
  FRUGAL_CHECK(options.top_k >= 0 && options.tokens >= 0,
               "[generate] expected top_k and tokens >= 0, got {} and {}", options.top_k,
               options.tokens);
  FRUGAL_CHECK(options.top_p > 0 && options.top_p <= 1 && options.min_p >= 0 && options.min_p <= 1,
               "[generate] expected top_p in (0, 1] and min_p in [0, 1], got {} and {}",
               options.top_p, options.min_p);
  FRUGAL_CHECK(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0,
               "[generate] expected a repetition penalty above 0, got {}",
               options.repetition_penalty);
  NoGrad no_grad;
  Context context;
  context.training = false;
  context.set_model(model);
  std::vector<int64_t> tokens(static_cast<size_t>(prompt.size(1)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int64_t>(prompt.item(static_cast<int64_t>(i)));
  const size_t given = tokens.size();
  Past past = take_past(seen, tokens, model.past_length());
  log().debug("[generate] the network computes {} of the {} tokens of the prompt",
              given - static_cast<size_t>(past.tokens), given);
  for (int64_t n = 0; n < options.tokens; ++n) {
    const auto visible = std::min(static_cast<int64_t>(tokens.size()), model.context_length());
    const bool continues = static_cast<int64_t>(tokens.size()) <= model.past_length();
    const int64_t fresh = continues ? visible - past.tokens : visible;
    const std::vector<int64_t> window(tokens.end() - fresh, tokens.end());
    const Tensor ids = to_device(Tensor::from(window, {1, fresh}), context.device);
    if (!continues) past = {};
    const Variable hidden =
        continues ? model.continued(ids, past, context) : model.hidden(ids, context);
    const HeadedModule::Head head = model.head(slice(hidden, 1, fresh - 1, fresh));
    const Variable output = model.packed_head().defined()
                                ? head.capped(packed_linear(head.x, model.packed_head(), head.bias))
                                : head.output();
    std::vector<double> logits = output.value().to_vector();
    for (const double logit : logits)
      FRUGAL_CHECK(std::isfinite(logit), "[generate] expected finite logits, got {}", logit);
    penalize(logits, tokens, options.repetition_penalty);
    tokens.push_back(draw(logits, options, static_cast<uint64_t>(n)));
    if (on_token && !on_token(tokens.back())) break;
  }
  if (seen != nullptr) {
    seen->ids.assign(tokens.begin(), tokens.begin() + past.tokens);
    seen->past = std::move(past);
  }
  const std::vector<int64_t> fresh(tokens.begin() + static_cast<int64_t>(given), tokens.end());
  return Tensor::from(fresh, {1, static_cast<int64_t>(fresh.size())});
}

}  // namespace frugal::models
