// Which engines cuDNN has on an H100 for our graphs, without a GPU. Where it has none, plain loops
// of ours would run there.
#include <doctest/doctest.h>

#include "ops/cuda/cudnn_graphs.h"

#if CUDNN_VERSION < 90800
TEST_CASE("left out") {  // ctest reads the message
  MESSAGE("left out: this cuDNN cannot say which engines it has on another GPU");
}
#else

namespace frugal::ops::cudnn {
namespace {

// As cuDNN writes them. Clocks and sizes are about those of an H100.
constexpr const char* kH100 = R"({"deviceName": "NVIDIA H100 80GB HBM3", "cudaDeviceId": 0,
  "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
  "supportCoopLaunch": 1, "totalGlobalMem": 85000000000, "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000, "l2CacheSize": 52428800})";

bool has_engine(const Graph& graph, bool exact) {
  try {
    return !engine_elsewhere(graph, exact, kH100).empty();
  } catch (const Unsupported& e) {
    MESSAGE(std::string(e.what()));
    return false;
  }
}

// q, k and v lie in one tensor, and so do their gradients.
Attention attention(int64_t t, int64_t d) {
  Attention p;
  p.n = 2, p.t = p.s = t, p.heads = 4, p.d = d;
  const int64_t row = p.heads * d;
  p.q = p.k = p.v = p.dq = p.dk = p.dv = Shape{t * 3 * row, 3 * row, d, 1};
  p.y = p.dy = Shape{t * row, row, d, 1};
  return p;
}

struct Layer {
  int64_t side, channels, filters, kernel, stride, padding;
};
// Each different convolution of a ResNet of torchvision, for pictures of 224 x 224.
std::vector<Layer> layers_of_resnet(bool bottleneck) {
  std::vector<Layer> layers{{224, 3, 64, 7, 2, 3}};
  int64_t side = 56, in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage, out = bottleneck ? 4 * width : width;
    const int64_t stride = stage == 0 ? 1 : 2;
    for (int block = 0; block < 2; ++block) {
      const int64_t by = block == 0 ? stride : 1;
      if (bottleneck) {
        layers.push_back({side, in, width, 1, 1, 0});
        layers.push_back({side, width, width, 3, by, 1});
        layers.push_back({side / by, width, out, 1, 1, 0});
      } else {
        layers.push_back({side, in, width, 3, by, 1});
        layers.push_back({side / by, width, width, 3, 1, 1});
      }
      if (block == 0 && (by != 1 || in != out)) layers.push_back({side, in, out, 1, by, 0});
      side /= by;
      in = out;
    }
  }
  return layers;
}

Convolution convolution(const Layer& layer, int64_t batch, Pass pass, DType dtype) {
  const int64_t out = (layer.side + 2 * layer.padding - layer.kernel) / layer.stride + 1;
  Convolution p;
  p.pass = pass, p.dtype = dtype;
  p.x = {batch, layer.side, layer.side, layer.channels};
  p.w = {layer.filters, layer.kernel, layer.kernel, layer.channels};
  p.y = {batch, out, out, layer.filters};
  p.options.stride = {layer.stride, layer.stride};
  p.options.padding = {layer.padding, layer.padding};
  return p;
}

}  // namespace

TEST_CASE("cuDNN has engines for both passes of attention") {
  for (const int64_t t : {100, 1024})
    for (const int64_t d : {64, 128})
      for (const bool causal : {false, true})
        for (const bool hides : {false, true}) {
          CAPTURE(t);
          CAPTURE(d);
          CAPTURE(causal);
          CAPTURE(hides);
          Attention p = attention(t, d);
          p.causal = causal, p.hides = hides;
          CHECK(has_engine(attention_graph(p), false));
          for (const bool adds_anyhow : {false, true}) {
            CAPTURE(adds_anyhow);
            CHECK(has_engine(attention_backward_graph(p, adds_anyhow), false));
          }
        }
}

TEST_CASE("cuDNN has engines for the convolutions of ResNet-18 and ResNet-50") {
  for (const bool bottleneck : {false, true})
    for (const Layer& layer : layers_of_resnet(bottleneck))
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
        for (const auto& [dtype, exact] :
             {std::pair{DType::bf16, false}, std::pair{DType::f32, false},
              std::pair{DType::f32, true}}) {
          CAPTURE(layer.side);
          CAPTURE(layer.channels);
          CAPTURE(layer.filters);
          CAPTURE(layer.kernel);
          CAPTURE(layer.stride);
          CAPTURE(static_cast<int>(pass));
          CAPTURE(static_cast<int>(dtype));
          CAPTURE(exact);
          CHECK(has_engine(convolution_graph(convolution(layer, 32, pass, dtype), {}), exact));
        }
}

}  // namespace frugal::ops::cudnn
#endif
