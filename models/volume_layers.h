// Convolutions of sequences [N, L, C] and volumes [N, D, H, W, C], transposed convolutions, their
// pools, and layers of images that networks for pixels use. Parameter names and, in files, layouts
// are PyTorch's.
#pragma once
#include "autograd/volume_functions.h"
#include "models/layers.h"

namespace frugal::models {

struct Conv1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

// [N, L, in] -> [N, OL, out]. Parameters: weight [out, R, in/groups], bias [out] if asked.
// Errors (of all convolutions): groups that do not divide the channels.
class Conv1d : public Module {
 public:
  Conv1d(Init& init, int64_t in, int64_t out, int64_t kernel, const Conv1dOptions& options = {},
         bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  Conv1dOptions options_;
  Variable weight_, bias_;
};

// [N, D, H, W, in] -> [N, OD, OH, OW, out]. Parameters: weight [out, T, R, S, in/groups], bias.
class Conv3d : public Module {
 public:
  Conv3d(Init& init, int64_t in, int64_t out, const Triple& kernel,
         const Conv3dOptions& options = {}, bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  Conv3dOptions options_;
  Variable weight_, bias_;
};

// [N, L, in] -> [N, OL, out]. Parameters: weight [in, R, out/groups], bias [out] if asked.
class ConvTranspose1d : public Module {
 public:
  ConvTranspose1d(Init& init, int64_t in, int64_t out, int64_t kernel,
                  const ConvTranspose1dOptions& options = {}, bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  ConvTranspose1dOptions options_;
  Variable weight_, bias_;
};

// [N, H, W, in] -> [N, OH, OW, out]. Parameters: weight [in, R, S, out/groups], bias.
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(Init& init, int64_t in, int64_t out, Pair kernel,
                  const ConvTranspose2dOptions& options = {}, bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  ConvTranspose2dOptions options_;
  Variable weight_, bias_;
};

// [N, D, H, W, in] -> [N, OD, OH, OW, out]. Parameters: weight [in, T, R, S, out/groups], bias.
class ConvTranspose3d : public Module {
 public:
  ConvTranspose3d(Init& init, int64_t in, int64_t out, const Triple& kernel,
                  const ConvTranspose3dOptions& options = {}, bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  ConvTranspose3dOptions options_;
  Variable weight_, bias_;
};

// [N, L, C] -> [N, OL, C].
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(const Pool1dOptions& options) : options_(options) {}
  Variable forward(Variable x, Context& context) override;

 private:
  Pool1dOptions options_;
};

class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(const Pool1dOptions& options) : options_(options) {}
  Variable forward(Variable x, Context& context) override;

 private:
  Pool1dOptions options_;
};

// [N, D, H, W, C] -> [N, OD, OH, OW, C].
class MaxPool3d : public Module {
 public:
  explicit MaxPool3d(const Pool3dOptions& options) : options_(options) {}
  Variable forward(Variable x, Context& context) override;

 private:
  Pool3dOptions options_;
};

class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(const Pool3dOptions& options) : options_(options) {}
  Variable forward(Variable x, Context& context) override;

 private:
  Pool3dOptions options_;
};

// [N, H, W, C] -> [N, height, width, C], whatever H and W are.
class AdaptiveMaxPool2d : public Module {
 public:
  AdaptiveMaxPool2d(int64_t height, int64_t width) : height_(height), width_(width) {}
  Variable forward(Variable x, Context& context) override;

 private:
  int64_t height_, width_;
};

// In training zeroes whole channels of samples with probability p and scales the rest by
// 1 / (1 - p). Errors: p outside [0, 1); no random stream (Context::rng) in training.
class Dropout2d : public Module {
 public:
  explicit Dropout2d(double p = 0.5);
  Variable forward(Variable x, Context& context) override;

 private:
  double p_;
};

}  // namespace frugal::models
