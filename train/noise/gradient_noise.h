// Tells how far drawn gradients lie from the exact one. There is a variance and a squared bias for
// all elements together, and both for each layer. Each has its standard error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/module.h"

namespace frugal::train {

struct Estimate {
  double value = 0, error = 0;  // error: the standard error of value
};

// Which elements of the gradient of all parameters, one after the other, belong to which layer.
struct GradientLayers {
  struct Span {
    size_t begin = 0, end = 0, layer = 0;
  };
  std::vector<std::string> names;  // the names of the layers
  std::vector<Span> spans;

  // The place of a layer, which is added if it is new.
  size_t place(const std::string& layer);
};
// The first `parts` parts of a layer's name: "layer1.0" of "layer1.0.conv1" for 2. 0: all parts.
std::string begin_of(const std::string& layer, int64_t parts);
// The layers of a network's parameters, in their order, named by so many parts of their names.
GradientLayers gradient_layers(Module& model, int64_t parts);

// The errors of independent draws lie in kGroups groups, by turns. Estimates use sums of the
// groups, and their standard errors are jackknives over the groups.
class GradientNoise {
 public:
  explicit GradientNoise(std::vector<float> exact, GradientLayers layers = {});
  void add(const std::vector<float>& draw);  // REQUIRES: as long as the exact one

  int64_t draws() const { return draws_; }
  // The mean of |draw - mean of the draws' distribution|^2, of one layer or of all elements.
  // REQUIRES (both): at least kGroups draws.
  Estimate variance(std::optional<size_t> layer = {}) const;
  // |mean of the draws' distribution - exact|^2. The variance of the draws is not in it, because
  // only products of different groups are: so it is negative at times.
  Estimate squared_bias(std::optional<size_t> layer = {}) const;

  static constexpr int kGroups = 8;

 private:
  // Inner products of the groups' sums of errors, and each group's sum of |error|^2.
  struct Moments {
    double products[kGroups][kGroups] = {}, squares[kGroups] = {};
  };
  Moments moments(std::optional<size_t> layer) const;

  std::vector<float> exact_;
  GradientLayers layers_;                     // its last span has what no layer has
  std::vector<std::vector<double>> sums_;     // by group: the sum of the errors
  std::vector<std::vector<double>> squares_;  // by group and span: the sum of |error|^2
  std::vector<int64_t> counts_;               // by group: the draws
  int64_t draws_ = 0;
};

}  // namespace frugal::train
