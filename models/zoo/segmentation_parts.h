// What networks that give a class to each pixel have in common.
#pragma once
#include "models/layers.h"

namespace frugal::models {

struct WindowOptions {
  int64_t kernel = 3, stride = 1, dilation = 1;
};

// The options of a convolution whose output has the size of its input divided by the stride,
// rounded up. The kernel is odd.
Conv2dOptions same_size(const WindowOptions& window);

// Appends a convolution without bias, its norm and a relu.
void append_conv_norm_relu(Sequential& layers, Init& init, int64_t in, int64_t out,
                           const WindowOptions& window, ConvInit weights = ConvInit::pytorch);

// The three alone. Names: 0 (convolution), 1 (norm).
std::shared_ptr<Sequential> conv_norm_relu(Init& init, int64_t in, int64_t out,
                                           const WindowOptions& window,
                                           ConvInit weights = ConvInit::pytorch);

// A 1x1 convolution to `classes` outputs, with weights from N(0, deviation^2) and biases 0.
std::shared_ptr<Module> pixel_classifier(Init& init, int64_t in, int64_t classes, double deviation);

// x [N, h, w, C] -> [N, height, width, C], bilinear, corners not aligned; x itself if it has that
// size.
Variable resized(const Variable& x, int64_t height, int64_t width);

// dropout2d() with probability p in training; x itself otherwise, and if p is 0. Errors: no random
// stream in training.
Variable drop_channels(const Variable& x, double p, Context& context);

}  // namespace frugal::models
