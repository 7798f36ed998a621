// Work that is done in the pass that packs or unpacks gives, bit for bit, what the op's own kernels
// give: outputs, payloads, gradients. And it is done there: nothing is unpacked.
#include "autograd/packed_pass.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/offload_policy.h"
#include "models/zoo/bert.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "tests/cuda/seen_policy.h"
#include "tests/unary_ops.h"

namespace frugal::compress {
namespace {

using gpu::live, gpu::Seen, gpu::SeenPolicy;

// What a step gives, on the host.
struct Given {
  std::vector<Tensor> tensors;
  Seen seen;
  int64_t workspace = 0;  // workspace at its peak, beyond what lived before
};

// `step` records under the policy, runs backward outside of it, and gives tensors.
using Step = std::function<std::vector<Tensor>(SavePolicy&)>;

using Make = std::function<std::unique_ptr<SavePolicy>()>;

Given run(const Step& step, const Make& make, bool fuses) {
  const int64_t before = live();
  allocator(gpu::kCuda).reset_peak();
  const auto workspace = [] {
    return allocator(gpu::kCuda).report().peak[static_cast<size_t>(Category::workspace)];
  };
  const int64_t from = workspace();
  Given given;
  {
    const auto inner = make();
    SeenPolicy policy(*inner, fuses);
    begin_step(7);
    for (const Tensor& tensor : step(policy))
      given.tensors.push_back(tensor.defined() ? to_device(tensor, kCpu) : tensor);
    given.seen = std::move(policy.seen);
  }
  given.workspace = workspace() - from;
  CHECK(live() == before);
  return given;
}

Given run(const Step& step, const FixedPolicyOptions& options, bool fuses) {
  return run(
      step, [&] { return std::make_unique<FixedPolicy>(options); }, fuses);
}

void check_equal(const Given& apart, const Given& fused) {
  REQUIRE(apart.seen.payloads.size() == fused.seen.payloads.size());
  for (size_t i = 0; i < apart.seen.payloads.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(gpu::same_bits(apart.seen.payloads[i], fused.seen.payloads[i]),
                  "payloads: ", gpu::difference(apart.seen.payloads[i], fused.seen.payloads[i]));
  }
  REQUIRE(apart.tensors.size() == fused.tensors.size());
  for (size_t i = 0; i < apart.tensors.size(); ++i) {
    CAPTURE(i);
    CHECK_MESSAGE(gpu::same_bits(apart.tensors[i], fused.tensors[i]),
                  gpu::difference(apart.tensors[i], fused.tensors[i]));
  }
}

FixedPolicyOptions keep(int bits, Rounding rounding = Rounding::stochastic) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  options.rounding = rounding;
  options.seed = 5;
  options.slice_bytes = 256;  // several slices where it is not fused
  return options;
}

Variable leaf(const Shape& shape, DType dtype, uint64_t seed, float mean = 0) {
  return Variable(to_device(gpu::normals(shape, dtype, seed, 1, mean), gpu::kCuda), true);
}
Variable parameter(const Shape& shape, uint64_t seed, float mean) {
  return Variable::parameter(
      to_device(gpu::normals(shape, DType::f32, seed, 0.3f, mean), gpu::kCuda));
}

enum class Form { plain, relu, add_relu };

// A batch norm of a fresh tensor, whose gradients it gives.
Step batch_norm_step(Form form, const Shape& shape, DType dtype, uint64_t seed, float extreme = 0) {
  return [=](SavePolicy& policy) {
    const int64_t c = shape.back();
    Variable x = leaf(shape, dtype, seed, 0.5f), residual = leaf(shape, dtype, seed + 1);
    if (extreme != 0) {
      const Tensor odd = to_device(x.value(), kCpu);
      gpu::put(odd, 3, extreme);
      x.set_value(to_device(odd, gpu::kCuda));
    }
    Variable weight = parameter({c}, seed + 2, 1), bias = parameter({c}, seed + 3, 0);
    const Tensor dy = to_device(gpu::normals(shape, dtype, seed + 4), gpu::kCuda);
    Variable y;
    {
      const PolicyScope scope(&policy);
      y = form == Form::plain  ? batch_norm(x, weight, bias, {})
          : form == Form::relu ? batch_norm_relu(x, weight, bias, {})
                               : batch_norm_add_relu(x, residual, weight, bias, {});
    }
    std::vector<Tensor> out{y.value()};
    backward(y, dy);
    for (const Variable& v : {x, residual, weight, bias}) out.push_back(v.grad());
    return out;
  };
}

void check_batch_norm(Form form, const Shape& shape, DType dtype, const FixedPolicyOptions& options,
                      bool fuses = true, float extreme = 0) {
  CAPTURE(static_cast<int>(form));
  CAPTURE(shape);
  CAPTURE(name_of(dtype));
  CAPTURE(options.bits);
  CAPTURE(static_cast<int>(options.rounding_here()));
  CAPTURE(static_cast<int>(options.signs));
  CAPTURE(extreme);
  const Step step = batch_norm_step(form, shape, dtype, 20, extreme);
  const Given apart = run(step, options, false), fused = run(step, options, true);
  check_equal(apart, fused);
  CHECK(apart.seen.mapped == 0);
  CHECK(apart.seen.unpacked > 0);
  if (!fuses) return;
  CHECK(fused.seen.mapped == 1);
  CHECK(fused.seen.passes == 2);
  CHECK(fused.seen.unpacked == 0);
}

}  // namespace

TEST_CASE("CUDA: batch norm packs, and goes backward over codes, with its own kernels' bits") {
  if (!gpu::available()) return;
  int n = 0;
  for (int bits = 1; bits <= 8; ++bits)
    for (const Form form : {Form::plain, Form::relu, Form::add_relu})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        FixedPolicyOptions options = keep(bits, static_cast<Rounding>(n % 3));
        options.signs = n % 4 == 3 ? Signs::masks : Signs::codes;
        const Shape shape = n % 5 == 0   ? Shape{3, 8, 10, 5}  // odd channels
                            : n % 5 == 1 ? Shape{2, 12, 12, 24}
                                         : Shape{4, 4, 4, 8};
        check_batch_norm(form, shape, dtype, options);
        ++n;
      }
  for (const int bits : {2, 4}) {
    check_batch_norm(Form::relu, {600, 40}, DType::f32, keep(bits));
    check_batch_norm(Form::add_relu, {600, 40}, DType::bf16, keep(bits, Rounding::dithered));
    check_batch_norm(Form::add_relu, {130, 16}, DType::bf16, keep(bits), false);  // flat masks
    check_batch_norm(Form::plain, {130, 6}, DType::f32, keep(bits));
    check_batch_norm(Form::relu, {40, 8}, DType::f32, keep(bits));  // a short group
    for (const float extreme : {std::nanf(""), 3e38f, -1e-41f})
      check_batch_norm(Form::add_relu, {96, 8}, DType::f32, keep(bits), true, extreme);
  }
  FixedPolicyOptions wide = keep(4);
  wide.group = 1024;  // packs in two passes
  const Step step = batch_norm_step(Form::relu, {2048, 4}, DType::f32, 3);
  const Given apart = run(step, wide, false), fused = run(step, wide, true);
  check_equal(apart, fused);
  CHECK(fused.seen.mapped == 0);
  CHECK(fused.seen.passes == 2);
}

TEST_CASE("CUDA: gelu and silu pack, go backward and are rebuilt over codes") {
  if (!gpu::available()) return;
  int n = 0;
  for (int bits = 1; bits <= 8; ++bits)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int which : {0, 1, 2}) {
        const Shape shape = n % 3 == 0 ? Shape{72, 5} : n % 3 == 1 ? Shape{2, 66, 8} : Shape{9, 7};
        FixedPolicyOptions options = keep(bits, static_cast<Rounding>(n % 3));
        CAPTURE(bits);
        CAPTURE(shape);
        CAPTURE(which);
        CAPTURE(name_of(dtype));
        const Step step = [&](SavePolicy& policy) {
          Variable x = leaf(shape, dtype, 30), factor = leaf(shape, dtype, 31);
          const Tensor dy = to_device(gpu::normals(shape, dtype, 32), gpu::kCuda);
          Variable h, y;
          {
            const PolicyScope scope(&policy);
            h = which == 0 ? gelu(x) : which == 1 ? gelu(x, Gelu::tanh) : silu(x);
            y = mul(h, factor);  // keeps h: as x's recipe, where the policy wants that
          }
          const std::vector<Tensor> out{h.value(), y.value()};
          h = {};
          backward(y, dy);
          return std::vector<Tensor>{out[0], out[1], x.grad(), factor.grad()};
        };
        const Given apart = run(step, options, false), fused = run(step, options, true);
        check_equal(apart, fused);
        CHECK(fused.seen.mapped == 1);
        CHECK(fused.seen.passes >= 1);
        CHECK(fused.seen.unpacked < apart.seen.unpacked);
        ++n;
      }
}

TEST_CASE("CUDA: each op that has an estimate packs and goes backward with its own function") {
  if (!gpu::available()) return;
  const auto same_there = [](const Tensor& expected, const Tensor& got) {
    return gpu::same_bits(to_device(expected, kCpu), got);
  };
  int smooth = 0;
  for (const ops::Unary op : frugal_test::unary_ops())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        CAPTURE(ops::name_of(op));
        CAPTURE(static_cast<int>(op));
        CAPTURE(name_of(dtype));
        CAPTURE(static_cast<int>(rounding));
        const Tensor host = gpu::normals({72, 5}, dtype, 33, 1), x = to_device(host, gpu::kCuda);
        QuantizeOptions options;
        options.rounding = rounding;
        const Quantizer codec(options);
        PackedPass forward{PackedPass::Map{op}};
        const auto packed = codec.pack_and_run(x, {}, forward);
        REQUIRE((packed != nullptr) == ops::has_estimate(op));
        if (packed == nullptr) {
          const auto apart = codec.pack(x, {});
          CHECK(!run_over(*apart, {PackedPass::Map{op}}).defined());
          continue;
        }
        ++smooth;
        CHECK(same_there(ops::unary(op, x), forward.out));
        // The CPU has the function from elsewhere.
        const std::vector<double> right = ops::unary(op, ops::cast(host, DType::f32)).to_vector(),
                                  got = to_device(forward.out, kCpu).to_vector();
        double worst = 0;
        for (size_t i = 0; i < got.size(); ++i)
          worst = std::max(worst, std::abs(got[i] - right[i]));
        CHECK(worst < (dtype == DType::f32 ? 1e-5 : 0.02));

        const Tensor wide = packed->unpack(),
                     dy = to_device(gpu::normals({72, 5}, dtype, 34), gpu::kCuda);
        Tensor value, gradient;
        if (rounding == Rounding::stochastic) {
          const Tensor variance = variance_of(*packed);
          value = ops::unary_estimate(op, wide, variance);
          gradient = ops::unary_backward_estimate(op, dy, wide, variance);
        } else {
          value = ops::unary(op, wide);
          gradient = ops::unary_backward(op, dy, wide);
        }
        CHECK(same_there(value, run_over(*packed, {PackedPass::Map{op}})));
        CHECK(same_there(gradient, run_over(*packed, {PackedPass::Map{op, dy}})));
      }
  CHECK(smooth == 2 * 2 * 3);  // gelu in two forms and silu
}

TEST_CASE("CUDA: a linear layer's gelu packs, goes backward and is rebuilt over codes") {
  if (!gpu::available()) return;
  const gpu::NoWorkspaceScope ours_alone;
  for (const Gelu kind : {Gelu::exact, Gelu::tanh})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int bits : {2, 4, 5}) {
        CAPTURE(bits);
        CAPTURE(name_of(dtype));
        const Step step = [&](SavePolicy& policy) {
          Variable x = leaf({80, 12}, dtype, 40), up = parameter({24, 12}, 41, 0),
                   bias = parameter({24}, 42, 0), down = parameter({6, 24}, 43, 0);
          const Tensor dy = to_device(gpu::normals({80, 6}, dtype, 44), gpu::kCuda);
          Variable y;
          {
            const PolicyScope scope(&policy);
            y = linear(linear_gelu(x, up, bias, kind), down, {});
          }
          std::vector<Tensor> out{y.value()};
          backward(y, dy);
          for (const Variable& v : {x, up, bias, down}) out.push_back(v.grad());
          return out;
        };
        const Given apart = run(step, keep(bits), false), fused = run(step, keep(bits), true);
        check_equal(apart, fused);
        CHECK(fused.seen.mapped == 1);
        CHECK(fused.seen.passes >= 1);
        if (dtype == DType::f32) CHECK(fused.workspace < apart.workspace);
      }
}

TEST_CASE("CUDA: policies that learn and that move payloads fuse too") {
  if (!gpu::available()) return;
  const Step step = batch_norm_step(Form::add_relu, {96, 8}, DType::f32, 90);
  for (const bool moves : {false, true}) {
    CAPTURE(moves);
    OffloadOptions offload;
    offload.directory = std::filesystem::temp_directory_path().string();
    const Make make = [&]() -> std::unique_ptr<SavePolicy> {
      if (moves)
        return std::make_unique<OffloadPolicy>(std::make_shared<FixedPolicy>(keep(4)), offload, 0);
      AdaptiveOptions options;
      options.keep = keep(4);
      return std::make_unique<AdaptivePolicy>(options);
    };
    const Given apart = run(step, make, false), fused = run(step, make, true);
    check_equal(apart, fused);
    CHECK(fused.seen.mapped == 1);
    CHECK(fused.seen.passes == 2);
    CHECK(fused.seen.unpacked == 0);
  }
}

TEST_CASE("CUDA: fused passes leave shared, raw and rebuilt tensors alone") {
  if (!gpu::available()) return;
  const Shape shape{64, 8};
  for (const bool before : {false, true})
    for (const int bits : {0, 1, 4}) {
      CAPTURE(before);
      CAPTURE(bits);
      const Step step = [&](SavePolicy& policy) {
        Variable x = leaf(shape, DType::f32, 50), weight = parameter({8}, 51, 1),
                 bias = parameter({8}, 52, 0);
        const Tensor dy = to_device(gpu::normals(shape, DType::f32, 53), gpu::kCuda);
        Variable y;
        {
          const PolicyScope scope(&policy);
          const Variable h = add(x, x);
          const Variable first = before ? mul(h, h) : batch_norm_relu(h, weight, bias, {});
          const Variable second = before ? batch_norm_relu(h, weight, bias, {}) : mul(h, h);
          y = mul(add(first, second), gelu(batch_norm(h, weight, bias, {})));
        }
        std::vector<Tensor> out{y.value()};
        backward(y, dy);
        for (const Variable& v : {x, weight, bias}) out.push_back(v.grad());
        return out;
      };
      const FixedPolicyOptions options = keep(bits);
      const Given apart = run(step, options, false), fused = run(step, options, true);
      check_equal(apart, fused);
      if (bits != 0) CHECK(fused.seen.passes > 0);
    }
  // Nothing to do, and nothing kept.
  const Step empty = [&](SavePolicy& policy) {
    Variable x = leaf({0, 8}, DType::f32, 1);
    Variable y;
    {
      const PolicyScope scope(&policy);
      y = gelu(x);
    }
    backward(y, to_device(Tensor::zeros({0, 8}), gpu::kCuda));
    return std::vector<Tensor>{y.value(), x.grad()};
  };
  check_equal(run(empty, keep(4), false), run(empty, keep(4), true));
}

TEST_CASE("CUDA: fused passes write over what is theirs, and over no more") {
  if (!gpu::available()) return;
  for (const bool moved : {false, true}) {
    const Step step = [&](SavePolicy& policy) {
      const Shape shape{64, 8};
      Variable x = leaf(shape, DType::f32, 60), r = leaf(shape, DType::f32, 61),
               weight = parameter({8}, 62, 1), bias = parameter({8}, 63, 0);
      const Tensor dy = to_device(gpu::normals(shape, DType::f32, 64), gpu::kCuda);
      Variable y, residual;
      {
        const PolicyScope scope(&policy);
        residual = add(r, r);
        y = moved ? batch_norm_add_relu(x, std::move(residual), weight, bias, {})
                  : batch_norm_add_relu(x, residual, weight, bias, {});
      }
      std::vector<Tensor> out{y.value()};
      if (!moved) out.push_back(residual.value());
      backward(y, dy);
      out.push_back(dy);
      for (const Variable& v : {x, r, weight, bias}) out.push_back(v.grad());
      return out;
    };
    check_equal(run(step, keep(4), false), run(step, keep(4), true));
  }
}

TEST_CASE("CUDA: an allocation that fails in a fused pass leaves nothing behind") {
  if (!gpu::available()) return;
  const Step step = batch_norm_step(Form::add_relu, {64, 8}, DType::f32, 70);
  for (const Signs signs : {Signs::codes, Signs::masks}) {
    FixedPolicyOptions options = keep(4);
    options.signs = signs;
    const int64_t before = live();
    int failed = 0;
    for (int64_t n = 0;; ++n) {
      allocator(gpu::kCuda).fail_after(n);
      bool done = false;
      try {
        FixedPolicy fixed(options);
        SeenPolicy policy(fixed, true);
        begin_step(1);
        step(policy);
        done = true;
      } catch (const OutOfMemory&) {
        ++failed;
      }
      allocator(gpu::kCuda).fail_after(-1);
      REQUIRE(live() == before);
      if (done) break;
    }
    CHECK(failed > 12);
  }
}

TEST_CASE("CUDA: a ResNet's and a transformer's step, fused and not") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int bits : {2, 4}) {
      CAPTURE(bits);
      CAPTURE(name_of(dtype));
      const auto step_of = [&](const std::function<std::unique_ptr<Module>(models::Init&)>& make,
                               const Variable& input, int64_t classes) -> Step {
        return [&, make, input, classes](SavePolicy& policy) {
          models::Init init{Rng(3), gpu::kCuda};
          const auto model = make(init);
          Rng rng(9);
          Context context;
          context.rng = &rng;
          context.device = gpu::kCuda;
          context.dtype = dtype;
          std::vector<Tensor> out;
          {
            Variable loss;
            {
              const PolicyScope scope(&policy);
              const Variable logits = model->forward(input, context);
              const Tensor target = Tensor::zeros({logits.size(0)}, DType::i64);
              for (int64_t i = 0; i < target.numel(); ++i) target.mut<int64_t>()[i] = i % classes;
              loss = cross_entropy(logits, to_device(target, gpu::kCuda));
            }
            out.push_back(to_device(loss.value(), kCpu));
            backward(loss);
          }
          for (const auto& each : model->parameters()) {
            out.push_back(to_device(each.parameter->grad(), kCpu));
            each.parameter->zero_grad();
          }
          return out;
        };
      };
      models::CifarResNetOptions resnet;
      resnet.blocks = 1;
      const Variable images(to_device(gpu::normals({2, 8, 8, 3}, dtype, 80), gpu::kCuda));
      models::BertOptions bert;
      bert.layers = 1, bert.hidden = 16, bert.heads = 2, bert.vocab_size = 20;
      bert.max_positions = 16;
      const Tensor tokens = Tensor::zeros({8, 12}, DType::i64);
      for (int64_t i = 0; i < tokens.numel(); ++i) tokens.mut<int64_t>()[i] = (i * 7 + 3) % 20;
      const Variable ids(to_device(tokens, gpu::kCuda));
      for (const Step& step :
           {step_of(
                [&](models::Init& init) {
                  return std::make_unique<models::CifarResNet>(init, resnet);
                },
                images, 10),
            step_of([&](models::Init& init) { return std::make_unique<models::Bert>(init, bert); },
                    ids, 2)}) {
        const Given apart = run(step, keep(bits), false), fused = run(step, keep(bits), true);
        check_equal(apart, fused);
        CHECK(fused.seen.mapped > 0);
        CHECK(fused.seen.passes >= fused.seen.mapped);
        CHECK(fused.seen.unpacked < apart.seen.unpacked);
      }
    }
}

}  // namespace frugal::compress
