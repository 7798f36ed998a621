// The graphs that cuDNN is given, apart from what runs them. So tests without a GPU can ask the
// library whether its engines take them.
#pragma once
#include "ops/cuda/cudnn.h"
#include "ops/cuda/cudnn_attention.h"
#include "ops/cuda/cudnn_graph.h"

namespace frugal::ops::cudnn {

// The graph depends on the alignment of the addresses in `data`, not on the addresses.
Graph convolution_graph(const Convolution& problem, const ConvolutionData& data);
Graph attention_graph(const Attention& problem);
// adds_anyhow: parts of dq are added in any order.
Graph attention_backward_graph(const Attention& problem, bool adds_anyhow);

}  // namespace frugal::ops::cudnn
