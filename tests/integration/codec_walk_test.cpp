// Every codec of the codec table under every function of the op table.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "compress/quantize/codec_table.h"
#include "core/rng.h"
#include "bench/op_table/op_table.h"

using namespace frugal;

namespace {

class PackAll : public SavePolicy {
 public:
  explicit PackAll(const Codec* codec) : codec_(codec) {}
  Decision decide(const SaveInfo&, const Tensor&) override { return {Decision::pack, codec_}; }

 private:
  const Codec* codec_;
};

std::vector<std::vector<double>> gradients(const op_table::Case& c, SavePolicy* policy,
                                           uint64_t step) {
  PolicyScope scope(policy);
  begin_step(step);
  const Variables inputs = op_table::make_inputs(c, DType::f32);
  const Variable y = c.run(inputs);
  Tensor dy = Tensor::empty(y.shape());
  for (int64_t i = 0; i < dy.numel(); ++i)
    dy.mut<float>()[i] = 2 * uniform({99, 0}, static_cast<uint64_t>(i)) - 1;
  backward(y, dy);
  std::vector<std::vector<double>> all;
  for (const Variable& x : inputs)
    all.push_back(x.grad().defined() ? x.grad().to_vector() : std::vector<double>{});
  return all;
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (double x : v) m = std::max(m, std::abs(x));
  return m;
}

}  // namespace

TEST_CASE("a lossless codec changes no bit, a wide one little, and none breaks an op") {
  for (const compress::CodecRow& row : compress::codec_table()) {
    if (row.name.ends_with("-nearest") && row.bits != 4) continue;  // differs in the dither alone
    const std::unique_ptr<Codec> codec = row.make(row, 3);
    PackAll policy(codec.get());
    for (const op_table::Op& op : op_table::rows())
      for (const op_table::Case& c : op.cases) {
        CAPTURE(row.name);
        CAPTURE(op.name);
        CAPTURE(c.name);
        const auto exact = gradients(c, nullptr, 0), lossy = gradients(c, &policy, 0);
        if (row.lossless && !op.other_form) REQUIRE(exact == lossy);
        for (size_t k = 0; k < exact.size(); ++k) {
          double distance = 0;
          for (size_t i = 0; i < exact[k].size(); ++i) {
            REQUIRE(std::isfinite(lossy[k][i]));
            distance = std::max(distance, std::abs(exact[k][i] - lossy[k][i]));
          }
          if (row.lossless) REQUIRE(distance <= op.tolerance * (1 + largest(exact[k])));
          if (row.bits >= 14) REQUIRE(distance <= 0.02 * (1 + largest(exact[k])));
        }
      }
  }
}

TEST_CASE("stochastic codes give unbiased gradients, but for rows that say why not") {
  constexpr uint64_t kDraws = 100;
  for (const char* name : {"q2", "q4", "q3-row", "q8"}) {
    const compress::CodecRow& row = compress::find_codec(name);
    const std::unique_ptr<Codec> codec = row.make(row, 17);
    PackAll policy(codec.get());
    for (const op_table::Op& op : op_table::rows()) {
      if (!op.bias.empty()) continue;
      for (const op_table::Case& c : op.cases) {
        CAPTURE(row.name);
        CAPTURE(op.name);
        CAPTURE(c.name);
        const auto exact = gradients(c, nullptr, 0);
        std::vector<std::vector<double>> sum = exact, squares = exact;
        for (auto* all : {&sum, &squares})
          for (auto& grad : *all) std::fill(grad.begin(), grad.end(), 0.0);
        for (uint64_t step = 0; step < kDraws; ++step) {
          const auto draw = gradients(c, &policy, step);
          for (size_t k = 0; k < draw.size(); ++k)
            for (size_t i = 0; i < draw[k].size(); ++i) {
              const double error = draw[k][i] - exact[k][i];
              sum[k][i] += error;
              squares[k][i] += error * error;
            }
        }
        for (size_t k = 0; k < sum.size(); ++k)
          for (size_t i = 0; i < sum[k].size(); ++i) {
            const double deviation = std::sqrt(squares[k][i]) / static_cast<double>(kDraws);
            CAPTURE(k);
            CAPTURE(i);
            // Six standard errors, since thousands of elements are looked at. The step is rounded
            // up to bf16, so a group's largest element falls by one step with a probability below
            // 2^-7: too rare to be seen in its deviation, and allowed for here.
            const double rare = 0x1p-6 / (std::exp2(row.bits) - 1);
            REQUIRE(std::abs(sum[k][i]) / static_cast<double>(kDraws) <=
                    6 * deviation + (1e-4 + rare) * (1 + largest(exact[k])));
          }
      }
    }
  }
}
