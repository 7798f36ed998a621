#include "models/zoo/alexnet.h"

#include "models/checkpointed.h"
#include "models/dense.h"

namespace frugal::models {
namespace {

constexpr int64_t kPooledSide = 6;

}  // namespace

AlexNet::AlexNet(Init& init, const AlexNetOptions& options) : dropout_(options.dropout) {
  struct Row {
    int64_t position, channels, kernel, stride, padding;
  };
  constexpr Row kRows[] = {{0, 64, 11, 4, 2},
                           {3, 192, 5, 1, 2},
                           {6, 384, 3, 1, 1},
                           {8, 256, 3, 1, 1},
                           {10, 256, 3, 1, 1}};
  int64_t in = options.in_channels;
  for (size_t i = 0; i < features_.size(); ++i) {
    const Row& row = kRows[i];
    const Conv2dOptions window{.stride = {row.stride, row.stride},
                               .padding = {row.padding, row.padding}};
    features_[i] =
        register_module("features." + std::to_string(row.position),
                        std::make_shared<Conv2d>(init, in, row.channels, row.kernel, window, true));
    in = row.channels;
  }
  const auto linear = [&](int64_t at, int64_t from, int64_t to) {
    return register_module("classifier." + std::to_string(at),
                           std::make_shared<Linear>(init, from, to));
  };
  classifier_ = {linear(1, in * kPooledSide * kPooledSide, options.hidden),
                 linear(4, options.hidden, options.hidden),
                 linear(6, options.hidden, options.num_classes)};
}

Variable AlexNet::forward(Variable x, Context& context) {
  constexpr int64_t kLeast = 63;
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) >= kLeast && x.size(2) >= kLeast,
               "[alexnet] expected images [N, H, W, C] of at least {} x {}, got {}", kLeast, kLeast,
               describe(x.value()));
  const std::array<size_t, 3> pooled_after = {0, 1, 4};
  size_t first = 0;
  for (const size_t last : pooled_after) {
    x = checkpointed(context, std::move(x), [this, first, last](Variable in, Context& inner) {
      for (size_t i = first; i <= last; ++i) in = relu(features_[i]->forward(in, inner));
      return max_pool2d(in, {.kernel = {3, 3}, .stride = {2, 2}});
    });
    first = last + 1;
  }
  x = adaptive_avg_pool2d(x, kPooledSide, kPooledSide);
  // torchvision flattens [C, H, W].
  x = transpose(transpose(x, 2, 3), 1, 2);
  x = reshape(x, {x.size(0), -1});
  x = relu(classifier_[0]->forward(drop(x, dropout_, context), context));
  x = relu(classifier_[1]->forward(drop(x, dropout_, context), context));
  return classifier_[2]->forward(x, context);
}

}  // namespace frugal::models
