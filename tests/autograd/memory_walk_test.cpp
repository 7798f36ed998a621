// Saved bytes, codecs, recipes and failing allocations, for every row of the op table.
#include <set>

#include "autograd/functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "tests/autograd/pack_all.h"
#include "tests/autograd/walk.h"

using namespace frugal;
using namespace frugal::walk;

namespace {

int64_t rounded(const std::vector<int64_t>& tensors) {
  int64_t total = 0;
  for (int64_t bytes : tensors) total += (bytes + 63) / 64 * 64;
  return total;
}

// Keeps a copy; with `noise`, plus independent noise of mean 0 and that size.
class NoisyCodec : public Codec {
 public:
  explicit NoisyCodec(double noise = 0, uint64_t seed = 0) : noise_(noise), seed_(seed) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    struct Copy : Packed {
      Tensor kept;
      Tensor unpack() const override { return ops::clone(kept); }
    };
    auto packed = std::make_unique<Copy>();
    CategoryScope scope(Category::packed);
    packed->kept = ops::clone(tensor);
    if (noise_ > 0)
      for (int64_t i = 0; i < tensor.numel(); ++i)
        packed->kept.mut<double>()[i] +=
            noise_ * (uniform({seed_, info.seq}, static_cast<uint64_t>(i)) < 0.5f ? -1 : 1);
    return packed;
  }

 private:
  double noise_;
  uint64_t seed_;
};

// Takes every recipe that is bit-equal.
class ExactRecipes : public SavePolicy {
 public:
  bool lossy() const override { return false; }
  Decision decide(const SaveInfo& info, const Tensor&) override {
    if (info.rebuilt != Rebuilt::exact) return {};
    ++taken;
    return {Decision::rebuild, nullptr};
  }
  int taken = 0;
};

}  // namespace

TEST_CASE("a node keeps exactly the bytes that its row says") {
  for (Device device : {kCpu, kMeta})
    for (DType dtype : {DType::f64, DType::f32})
      each_case([&](const Op&, const Case& c) {
        CAPTURE(device.str());
        const int64_t before = live_bytes(device);
        std::shared_ptr<Node> node;
        {
          const Variables inputs = op_table::make_inputs(c, dtype, device);
          node = c.run(inputs).producer();
          REQUIRE(node != nullptr);
        }
        CHECK(live_bytes(device) - before ==
              rounded(c.saved(static_cast<int64_t>(size_of(dtype)))));
        node.reset();
        CHECK(live_bytes(device) == before);
      });
}

TEST_CASE("on meta, shapes and gradients' shapes are cpu's") {
  each_case([](const Op&, const Case& c) {
    Variables inputs = op_table::make_inputs(c, DType::f32, kMeta);
    const Variable y = c.run(inputs);
    CHECK(y.shape() == c.run(op_table::make_inputs(c, DType::f32)).shape());
    backward(y, projection(y.value()));
    for (const Variable& x : inputs) CHECK(x.grad().shape() == x.shape());
  });
}

TEST_CASE("an identity codec changes no bit") {
  const NoisyCodec codec;
  PackAll policy(&codec);
  each_case([&](const Op& op, const Case& c) {
    const Result raw = run(c.run, op_table::make_inputs(c, DType::f32));
    const Result packed = run(c.run, op_table::make_inputs(c, DType::f32), &policy);
    if (!op.other_form) CHECK(raw.grads == packed.grads);
    for (size_t k = 0; k < raw.grads.size(); ++k)
      CHECK(distance(raw.grads[k], packed.grads[k]) <=
            op.tolerance * std::max(1.0, largest(raw.grads[k])));
  });
}

TEST_CASE("unbiased noise gives unbiased gradients, except in rows that say why not") {
  constexpr int kDraws = 64;
  constexpr double kNoise = 0.05;
  each_case([&](const Op& op, const Case& c) {
    if (!op.bias.empty() || !c.smooth) return;
    const Result exact = run(c.run, op_table::make_inputs(c, DType::f64));
    std::vector<std::vector<double>> sum = exact.grads, squares = exact.grads;
    for (auto* all : {&sum, &squares})
      for (auto& grad : *all) std::fill(grad.begin(), grad.end(), 0.0);
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      const NoisyCodec codec(kNoise, seed);
      PackAll policy(&codec);
      const Result noisy = run(c.run, op_table::make_inputs(c, DType::f64), &policy);
      for (size_t k = 0; k < sum.size(); ++k)
        for (size_t i = 0; i < sum[k].size(); ++i) {
          const double error = noisy.grads[k][i] - exact.grads[k][i];
          sum[k][i] += error;
          squares[k][i] += error * error;
        }
    }
    for (size_t k = 0; k < sum.size(); ++k)
      for (size_t i = 0; i < sum[k].size(); ++i) {
        const double mean = sum[k][i] / kDraws;
        const double deviation = std::sqrt(squares[k][i] / kDraws / kDraws);
        CAPTURE(k);
        CAPTURE(i);
        // Five standard errors of the mean; rounding where there is no noise.
        REQUIRE(std::abs(mean) <= 5 * deviation + 1e-12);
      }
  });
}

TEST_CASE("exact recipes change no bit and keep less") {
  int taken = 0;
  each_case([&](const Op&, const Case& c) {
    // The output is saved by a consumer: here its recipe is used.
    auto consumed = [&](const Variables& v) {
      const Variable y = c.run(v);
      return mul(y, y);
    };
    ExactRecipes policy;
    const Result raw = run(consumed, op_table::make_inputs(c, DType::f32));
    const Result rebuilt = run(consumed, op_table::make_inputs(c, DType::f32), &policy);
    CHECK(raw.grads == rebuilt.grads);
    taken += policy.taken;
  });
  CHECK(taken >= 8);  // batch_norm, batch_norm_relu, gelu, silu in their cases
}

TEST_CASE("whichever allocation fails, OutOfMemory is thrown and nothing leaks") {
  each_case([](const Op&, const Case& c) {
    const Variables inputs = op_table::make_inputs(c, DType::f32);
    run(c.run, inputs);  // one-time allocations are not the subject
    for (const Variable& x : inputs) Variable(x).zero_grad();
    const int64_t before = allocator(kCpu).report().live_total;
    bool done = false;
    for (int64_t n = 0; !done; ++n) {
      REQUIRE(n < 200);
      allocator(kCpu).fail_after(n);
      try {
        run(c.run, inputs, nullptr, false);
        done = true;
      } catch (const OutOfMemory&) {
      }
      allocator(kCpu).fail_after(-1);
      for (const Variable& x : inputs) Variable(x).zero_grad();
      REQUIRE(allocator(kCpu).report().live_total == before);
    }
  });
}

TEST_CASE("every function has a row, and a row's name is its node's") {
  std::set<std::string> names;
  for (const Op& op : op_table::rows()) {
    names.insert(op.name);
    const Variable y = op.cases.front().run(op_table::make_inputs(op.cases.front(), DType::f32));
    CHECK(graph_ops(y).front() == op.name);
  }
  // autograd/*functions.h, in their order
  std::set<std::string> declared = {"conv2d",
                                    "conv_transpose2d",
                                    "linear",
                                    "matmul",
                                    "batch_norm",
                                    "batch_norm_relu",
                                    "batch_norm_add_relu",
                                    "add",
                                    "sub",
                                    "mul",
                                    "div",
                                    "scale",
                                    "add_scalar",
                                    "neg",
                                    "exp",
                                    "log",
                                    "sqrt",
                                    "sigmoid",
                                    "tanh",
                                    "relu",
                                    "leaky_relu",
                                    "gelu",
                                    "silu",
                                    "clamp",
                                    "dropout",
                                    "sum",
                                    "mean",
                                    "max",
                                    "softmax",
                                    "log_softmax",
                                    "cross_entropy",
                                    "binary_cross_entropy",
                                    "soft_cross_entropy",
                                    "linear_cross_entropy",
                                    "negative_cosine",
                                    "info_nce",
                                    "mse_loss",
                                    "max_pool2d",
                                    "avg_pool2d",
                                    "adaptive_avg_pool2d",
                                    "global_avg_pool2d",
                                    "interpolate",
                                    "reshape",
                                    "transpose",
                                    "slice",
                                    "concat",
                                    "pad",
                                    "cast",
                                    "subsample_pad"};
  declared.insert(
      {"sigmoid_focal_loss", "smooth_l1_loss", "giou_loss", "coded_giou_loss", "roi_align"});
  declared.insert({"embedding", "layer_norm", "layer_norm_relu", "rms_norm", "linear_gelu",
                   "linear_relu", "attention", "qkv_attention", "rotary_embedding", "conv1d",
                   "group_norm"});
  declared.insert({"dropout2d", "weighted_cross_entropy", "dice_loss", "focal_cross_entropy",
                   "resized_cross_entropy"});
  declared.insert({"conv3d", "conv_transpose3d", "adaptive_max_pool2d"});
  declared.insert({"spmm", "neighbour_mean", "neighbour_max", "sparse_linear", "gather_rows",
                   "segment_sum", "segment_mean", "segment_max", "segment_softmax",
                   "graph_attention", "head_scores", "identity_linear", "elu", "relu_dropout",
                   "gated", "add_low_rank", "scale_to_magnitude", "packed_linear"});
  for (const std::string& name : declared) CHECK_MESSAGE(names.contains(name), name);
  for (const std::string& name : names) CHECK_MESSAGE(declared.contains(name), name);
}
