#include "train/noise/gradient_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace frugal::train {
namespace {

constexpr int kNone = -1;

// The value of `of` and its standard error, with of(g) the value without group g.
template <class Of>
Estimate jackknife(const Of& of) {
  constexpr int groups = GradientNoise::kGroups;
  double without[groups], mean = 0, square = 0;
  for (int g = 0; g < groups; ++g) mean += (without[g] = of(g)) / groups;
  for (const double each : without) square += (each - mean) * (each - mean);
  return {of(kNone), std::sqrt(square * (groups - 1) / groups)};
}

}  // namespace

size_t GradientLayers::place(const std::string& layer) {
  const auto at = std::find(names.begin(), names.end(), layer);
  if (at != names.end()) return static_cast<size_t>(at - names.begin());
  names.push_back(layer);
  return names.size() - 1;
}

std::string begin_of(const std::string& layer, int64_t parts) {
  if (parts == 0) return layer;
  size_t end = 0;
  for (int64_t i = 0; i < parts && end != std::string::npos; ++i)
    end = layer.find('.', i == 0 ? 0 : end + 1);
  return layer.substr(0, end);
}

GradientLayers gradient_layers(Module& model, int64_t parts) {
  GradientLayers layers;
  size_t begin = 0;
  for (const auto& p : model.parameters()) {
    const size_t end = begin + static_cast<size_t>(p.parameter->value().numel());
    const size_t dot = p.name.rfind('.');
    const std::string layer = dot == std::string::npos ? p.name : p.name.substr(0, dot);
    layers.spans.push_back({begin, end, layers.place(begin_of(layer, parts))});
    begin = end;
  }
  return layers;
}

GradientNoise::GradientNoise(std::vector<float> exact, GradientLayers layers)
    : exact_(std::move(exact)), layers_(std::move(layers)) {
  const size_t covered = layers_.spans.empty() ? 0 : layers_.spans.back().end;
  layers_.spans.push_back({covered, exact_.size(), layers_.names.size()});
  sums_.assign(kGroups, std::vector<double>(exact_.size(), 0.0));
  squares_.assign(kGroups, std::vector<double>(layers_.spans.size(), 0.0));
  counts_.assign(kGroups, 0);
}

void GradientNoise::add(const std::vector<float>& draw) {
  FRUGAL_ASSERT(draw.size() == exact_.size());
  const auto group = static_cast<size_t>(draws_++ % kGroups);
  ++counts_[group];
  for (size_t s = 0; s < layers_.spans.size(); ++s)
    for (size_t i = layers_.spans[s].begin; i < layers_.spans[s].end; ++i) {
      const double error = static_cast<double>(draw[i]) - static_cast<double>(exact_[i]);
      sums_[group][i] += error;
      squares_[group][s] += error * error;
    }
}

GradientNoise::Moments GradientNoise::moments(std::optional<size_t> layer) const {
  FRUGAL_ASSERT(draws_ >= kGroups);
  Moments found;
  for (size_t s = 0; s < layers_.spans.size(); ++s) {
    const auto& [begin, end, of] = layers_.spans[s];
    if (layer && of != *layer) continue;
    for (size_t a = 0; a < kGroups; ++a) {
      found.squares[a] += squares_[a][s];
      for (size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (size_t i = begin; i < end; ++i) product += sums_[a][i] * sums_[b][i];
        found.products[a][b] += product;
        if (b != a) found.products[b][a] += product;
      }
    }
  }
  return found;
}

Estimate GradientNoise::squared_bias(std::optional<size_t> layer) const {
  const Moments m = moments(layer);
  return jackknife([&](int without) {
    double sum = 0;
    int pairs = 0;
    for (int a = 0; a < kGroups; ++a)
      for (int b = 0; b < a; ++b) {
        if (a == without || b == without) continue;
        const auto draws =
            static_cast<double>(counts_[static_cast<size_t>(a)] * counts_[static_cast<size_t>(b)]);
        sum += m.products[a][b] / draws;
        ++pairs;
      }
    return sum / pairs;
  });
}

Estimate GradientNoise::variance(std::optional<size_t> layer) const {
  const Moments m = moments(layer);
  return jackknife([&](int without) {
    double squares = 0, square_of_sum = 0, n = 0;
    for (int a = 0; a < kGroups; ++a) {
      if (a == without) continue;
      squares += m.squares[a];
      n += static_cast<double>(counts_[static_cast<size_t>(a)]);
      for (int b = 0; b < kGroups; ++b)
        if (b != without) square_of_sum += m.products[a][b];
    }
    return (squares - square_of_sum / n) / (n - 1);
  });
}

}  // namespace frugal::train
