#include "autograd/functions.h"
#include "autograd/volume_functions.h"
#include "bench/op_table/op_table.h"

namespace frugal::op_table {
namespace {

Case conv(const std::string& name, const Shape& x, const Shape& w, const Conv2dOptions& options,
          bool bias = false) {
  Case c{name, {{x}, {w, true}}, {}, elements({x.numel()})};
  if (bias) c.inputs.push_back({{w[0]}, true});
  c.run = [options, bias](const Variables& v) {
    return conv2d(v[0], v[1], bias ? v[2] : Variable(), options);
  };
  return c;
}

Case conv_transpose(const std::string& name, const Shape& x, const Shape& w,
                    const ConvTranspose2dOptions& options, bool bias = false) {
  Case c{name, {{x}, {w, true}}, {}, elements({x.numel()})};
  if (bias) c.inputs.push_back({{w[3] * options.groups}, true});
  c.run = [options, bias](const Variables& v) {
    return conv_transpose2d(v[0], v[1], bias ? v[2] : Variable(), options);
  };
  return c;
}

Case conv_of_volume(const std::string& name, const Shape& x, const Shape& w,
                    const Conv3dOptions& options, bool bias = false) {
  Case c{name, {{x}, {w, true}}, {}, elements({x.numel()})};
  if (bias) c.inputs.push_back({{w[0]}, true});
  c.run = [options, bias](const Variables& v) {
    return conv3d(v[0], v[1], bias ? v[2] : Variable(), options);
  };
  return c;
}

Case conv_transpose_of_volume(const std::string& name, const Shape& x, const Shape& w,
                              const ConvTranspose3dOptions& options, bool bias = false) {
  Case c{name, {{x}, {w, true}}, {}, elements({x.numel()})};
  if (bias) c.inputs.push_back({{w[4] * options.groups}, true});
  c.run = [options, bias](const Variables& v) {
    return conv_transpose3d(v[0], v[1], bias ? v[2] : Variable(), options);
  };
  return c;
}

Case matrices(const std::string& name, const Shape& a, const Shape& b) {
  return {.name = name,
          .inputs = {{a}, {b}},
          .run = [](const Variables& v) { return matmul(v[0], v[1]); },
          .saved = elements({a.numel(), b.numel()})};
}

Case layer(const std::string& name, const Shape& x, int64_t out, bool bias) {
  Case c{name, {{x}, {{out, x.back()}, true}}, {}, elements({x.numel()})};
  if (bias) c.inputs.push_back({{out}, true});
  c.run = [bias](const Variables& v) { return linear(v[0], v[1], bias ? v[2] : Variable()); };
  return c;
}

}  // namespace

void add_dense(std::vector<Op>& rows) {
  Conv2dOptions same, strided, dilated, grouped, depthwise;
  same.padding = {1, 1};
  strided.stride = {2, 3};
  strided.padding = {1, 0};
  dilated.dilation = {2, 1};
  dilated.padding = {2, 1};
  grouped.groups = 2;
  grouped.padding = {1, 1};
  depthwise.groups = 6;
  depthwise.stride = {2, 2};
  rows.push_back({.name = "conv2d",
                  .cases = {conv("3x3 same", {2, 5, 6, 3}, {4, 3, 3, 3}, same, true),
                            conv("strided, uneven window", {2, 7, 8, 3}, {5, 3, 2, 3}, strided),
                            conv("dilated", {1, 7, 6, 2}, {3, 3, 3, 2}, dilated),
                            conv("two groups", {2, 4, 4, 6}, {4, 3, 3, 3}, grouped, true),
                            conv("depthwise", {2, 6, 5, 6}, {6, 3, 3, 1}, depthwise),
                            conv("1x1", {2, 3, 3, 16}, {8, 1, 1, 16}, {}),
                            conv("no images", {0, 4, 4, 2}, {3, 3, 3, 2}, same, true)},
                  .failures = {{[] {
                                  conv2d(leaf({1, 4, 4, 3}), leaf({2, 3, 3, 4}), {});
                                },
                                "[conv2d] expected a weight [K, R, S, C/groups] for 3 channels"},
                               {[] {
                                  conv2d(leaf({1, 2, 2, 3}), leaf({2, 3, 3, 3}), {});
                                },
                                "[conv2d] expected a window within the padded image"},
                               {[] {
                                  conv2d(leaf({4, 4, 3}), leaf({2, 3, 3, 3}), {});
                                },
                                "[conv2d] expected x with 4 axes"},
                               {[] {
                                  conv2d(leaf({1, 4, 4, 3}), leaf({2, 3, 3, 3}), leaf({3}));
                                },
                                "[conv2d] expected bias of shape [2]"},
                               {[] {
                                  conv2d(leaf({1, 4, 4, 3}), leaf({2, 3, 3, 3}), {}, {{0, 1}});
                                },
                                "[conv2d] expected groups, strides and dilations of at least 1"}},
                  .bench = conv("64 channels 3x3", {32, 32, 32, 64}, {64, 3, 3, 64}, same)});

  ConvTranspose2dOptions up, uneven, split;
  up.stride = {2, 2};
  up.output_padding = {1, 1};
  up.padding = {1, 1};
  uneven.stride = {2, 1};
  uneven.dilation = {1, 2};
  split.groups = 2;
  rows.push_back(
      {.name = "conv_transpose2d",
       .cases = {conv_transpose("doubling", {2, 3, 4, 3}, {3, 3, 3, 4}, up, true),
                 conv_transpose("uneven", {1, 3, 4, 2}, {2, 3, 2, 3}, uneven),
                 conv_transpose("two groups", {2, 3, 3, 4}, {4, 2, 2, 3}, split, true)},
       .failures = {{[] {
                       conv_transpose2d(leaf({1, 4, 4, 3}), leaf({2, 3, 3, 4}), {});
                     },
                     "[conv_transpose2d] expected a weight [C, R, S, K/groups] for 3 channels"},
                    {[] {
                       conv_transpose2d(leaf({1, 4, 4, 3}), leaf({3, 3, 3, 4}), {},
                                        {{1, 1}, {0, 0}, {1, 0}});
                     },
                     "output padding in [0, max(stride, dilation))"}},
       .bench = conv_transpose("64 channels", {16, 16, 16, 64}, {64, 3, 3, 64}, up)});

  Conv3dOptions same_volume, sparse, deep;
  same_volume.padding = {1, 1, 1};
  sparse.stride = {2, 1, 2};
  sparse.padding = {1, 0, 1};
  sparse.groups = 2;
  deep.dilation = {2, 1, 1};
  deep.padding = {2, 0, 0};
  rows.push_back(
      {.name = "conv3d",
       .cases = {conv_of_volume("3x3x3 same", {2, 3, 4, 5, 2}, {3, 3, 3, 3, 2}, same_volume, true),
                 conv_of_volume("strided, two groups", {1, 5, 3, 4, 4}, {4, 3, 2, 2, 2}, sparse),
                 conv_of_volume("dilated in depth", {2, 3, 2, 3, 2}, {2, 3, 1, 2, 2}, deep),
                 conv_of_volume("no volumes", {0, 3, 3, 3, 2}, {2, 2, 2, 2, 2}, {}, true)},
       .failures = {{[] {
                       conv3d(leaf({1, 4, 4, 4, 3}), leaf({2, 3, 3, 3, 4}), {});
                     },
                     "[conv3d] expected a weight [K, R, S, C/groups] for 3 channels"},
                    {[] {
                       conv3d(leaf({1, 2, 4, 4, 3}), leaf({2, 3, 3, 3, 3}), {});
                     },
                     "[conv3d] expected a window within the padded image"},
                    {[] {
                       conv3d(leaf({4, 4, 4, 3}), leaf({2, 3, 3, 3, 3}), {});
                     },
                     "[conv3d] expected x with 5 axes"},
                    {[] {
                       conv3d(leaf({1, 4, 4, 4, 3}), leaf({2, 3, 3, 3, 3}), leaf({3}));
                     },
                     "[conv3d] expected bias of shape [2]"}},
       .bench = conv_of_volume("32 channels 3x3x3", {2, 16, 32, 32, 32}, {32, 3, 3, 3, 32},
                               same_volume)});

  ConvTranspose3dOptions larger, split_volume;
  larger.stride = {2, 2, 2};
  larger.padding = {1, 1, 1};
  larger.output_padding = {1, 0, 1};
  split_volume.groups = 2;
  split_volume.dilation = {1, 2, 1};
  rows.push_back(
      {.name = "conv_transpose3d",
       .cases = {conv_transpose_of_volume("doubling", {2, 2, 3, 2, 3}, {3, 3, 3, 3, 2}, larger,
                                          true),
                 conv_transpose_of_volume("two groups, dilated", {1, 2, 2, 3, 4}, {4, 2, 2, 1, 2},
                                          split_volume)},
       .failures = {{[] {
                       conv_transpose3d(leaf({1, 4, 4, 4, 3}), leaf({2, 3, 3, 3, 4}), {});
                     },
                     "[conv_transpose3d] expected a weight [C, T, R, S, K/groups] for 3 channels"},
                    {[] {
                       conv_transpose3d(leaf({1, 4, 4, 4, 3}), leaf({3, 3, 3, 3, 4}), {},
                                        {{1, 1, 1}, {0, 0, 0}, {0, 1, 0}});
                     },
                     "output padding in [0, stride)"}},
       .bench = conv_transpose_of_volume("32 channels", {2, 8, 16, 16, 32}, {32, 2, 2, 2, 32},
                                         {.stride = {2, 2, 2}})});

  rows.push_back(
      {.name = "linear",
       .cases = {layer("bias", {5, 7}, 3, true), layer("no bias, three axes", {2, 3, 4}, 5, false),
                 layer("no rows", {0, 4}, 3, true)},
       .failures = {{[] {
                       linear(leaf({2, 3}), leaf({4, 5}));
                     },
                     "[linear] expected x [..., 5]"},
                    {[] {
                       linear(leaf({2, 3}), leaf({4, 3}), leaf({3}));
                     },
                     "[linear] expected bias of shape [4]"}},
       .bench = layer("512 x 1024", {512, 1024}, 1024, true)});

  rows.push_back(
      {.name = "matmul",
       .cases = {matrices("plain", {3, 4}, {4, 5}), matrices("batched", {2, 3, 4}, {2, 4, 2}),
                 matrices("broadcast batch", {3, 1, 2, 4}, {2, 4, 3}),
                 matrices("a vector each", {1, 4}, {4, 1})},
       .failures = {{[] {
                       matmul(leaf({2, 3}), leaf({4, 5}));
                     },
                     "[matmul] expected [..., M, K] and [..., K, N]"},
                    {[] {
                       matmul(leaf({2, 2, 3}), leaf({3, 3, 4}));
                     },
                     "[matmul] expected shapes that broadcast"}},
       .bench = matrices("512", {512, 512}, {512, 512})});
}

}  // namespace frugal::op_table
