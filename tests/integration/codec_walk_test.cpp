// Every codec of the codec table under every function of the op table.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "autograd/engine.h"
#include "bench/op_table/op_table.h"
#include "compress/quantize/group_layout.h"
#include "compress/quantize/quantize_split.h"
#include "core/memory.h"
#include "core/rng.h"
#include "ops/dense/bitmask.h"
#include "tests/autograd/pack_all.h"
#include "tests/compress/codec_table.h"

using namespace frugal;

namespace {

bool bit_of(const uint8_t* mask, const Shape& shape, int64_t i) {
  const int64_t cols = ops::bitmask_layout(shape).cols, row = i / cols;
  return (mask[row / 8 * cols + i % cols] >> (row % 8) & 1) != 0;
}

struct Range {
  double min = INFINITY, max = -INFINITY;
  void add(double x) {
    min = std::min(min, x);
    max = std::max(max, x);
  }
};

// The range of the group that each element of `x` is in, for elements whose bit of `bits` is
// `wanted`. Without `bits`: for all elements.
std::vector<Range> group_ranges(const Tensor& x, bool shares_lanes, const uint8_t* bits = nullptr,
                                bool wanted = true) {
  const auto axis = shares_lanes ? compress::GroupAxis::row : compress::GroupAxis::column;
  const compress::GroupLayout layout = compress::make_layout(x.shape(), axis, 256, 8);
  const auto group_of = [&](int64_t i) {
    const int64_t lane = layout.shared ? 0 : i % layout.cols;
    return static_cast<size_t>(i / layout.cols / layout.group_rows * layout.metas() + lane);
  };
  std::vector<Range> groups(static_cast<size_t>(layout.groups * layout.metas()));
  for (int64_t i = 0; i < x.numel(); ++i)
    if (bits == nullptr || bit_of(bits, x.shape(), i) == wanted)
      groups[group_of(i)].add(x.data<float>()[i]);
  std::vector<Range> all;
  for (int64_t i = 0; i < x.numel(); ++i) all.push_back(groups[group_of(i)]);
  return all;
}

// Adds the largest error that the row allows, with random signs.
class WorstCase : public Codec {
 public:
  WorstCase(const compress::CodecRow& row, uint64_t seed) : row_(row), seed_(seed) {}
  std::unique_ptr<Packed> pack(const Tensor& x, const SaveInfo& info) const override {
    const std::vector<Range> ranges = group_ranges(x, row_.shares_lanes);
    const Tensor moved = Tensor::empty(x.shape());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const Range& range = ranges[static_cast<size_t>(i)];
      const double bound = row_.bound(range.min, range.max, row_.bits);
      const bool up = uniform({seed_, info.seq}, static_cast<uint64_t>(i)) < 0.5F;
      moved.mut<float>()[i] = static_cast<float>(x.data<float>()[i] + (up ? bound : -bound));
    }
    return compress::find_codec("identity").make(row_, 0)->pack(moved, info);
  }

 private:
  const compress::CodecRow& row_;
  uint64_t seed_;
};

// Packs everything, and holds each tensor to the bound of its codec's row.
class PackWithinBound : public SavePolicy {
 public:
  PackWithinBound(const compress::CodecRow& row, const Codec* codec) : row_(row), codec_(codec) {}
  Decision decide(const SaveInfo& info, const Tensor& x) override {
    const auto packed = codec_->pack(x, info);
    const Tensor rebuilt = packed->unpack();
    const std::vector<Range> whole = group_ranges(x, row_.shares_lanes);
    std::array<std::vector<Range>, 2> classes;  // by sign, where the codes carry it
    const bool split = packed->carries_sign();
    const uint8_t* bits = split ? info.sign->mask.data<uint8_t>() : nullptr;
    if (split)
      for (const bool wanted : {false, true})
        classes[wanted] = group_ranges(x, row_.shares_lanes, bits, wanted);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      double bound = row_.bound(whole[at].min, whole[at].max, row_.bits);
      if (split) {  // a class has at least two codes: the bound is that of 1 bit
        const Range& range = classes[bit_of(bits, x.shape(), i)][at];
        bound = row_.bound(range.min, range.max, 1);
        // Where rows are drawn, a value stands for many.
        if (packed->serves_one_op()) bound *= compress::kDrawEvery + 5;
      }
      REQUIRE(std::abs(double{rebuilt.data<float>()[i]} - double{x.data<float>()[i]}) <= bound);
    }
    draws_rows = draws_rows || packed->serves_one_op();
    return {Decision::pack, codec_};
  }
  bool draws_rows = false;

 private:
  const compress::CodecRow& row_;
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

// The largest |a - b| of each input.
std::vector<double> distances(const std::vector<std::vector<double>>& a,
                              const std::vector<std::vector<double>>& b) {
  std::vector<double> all(a.size());
  for (size_t k = 0; k < a.size(); ++k)
    for (size_t i = 0; i < a[k].size(); ++i) {
      REQUIRE(std::isfinite(a[k][i]));
      all[k] = std::max(all[k], std::abs(a[k][i] - b[k][i]));
    }
  return all;
}

// How far the gradients of each input go when what is saved is off by the bound of 12 bits, the
// farthest of a few draws.
std::vector<double> response(const op_table::Case& c, bool shares_lanes,
                             const std::vector<std::vector<double>>& exact) {
  std::vector<double> all(exact.size());
  for (uint64_t draw = 0; draw < 6; ++draw) {
    const WorstCase codec(compress::find_codec(shares_lanes ? "q12-row" : "q12"), draw);
    PackAll policy(&codec);
    const std::vector<double> one = distances(gradients(c, &policy, 0), exact);
    for (size_t k = 0; k < all.size(); ++k) all[k] = std::max(all[k], one[k]);
  }
  return all;
}

}  // namespace

TEST_CASE("every codec keeps its own bound in all that is saved, and gradients answer to it") {
  const double twelve = compress::find_codec("q12").bound(0, 1, 12);
  for (const op_table::Op& op : op_table::rows())
    for (const op_table::Case& c : op.cases) {
      const auto exact = gradients(c, nullptr, 0);
      const std::vector<double> by_axis[] = {response(c, false, exact), response(c, true, exact)};
      for (const compress::CodecRow& row : compress::codec_table()) {
        if (row.name.ends_with("-nearest") && row.bits != 4)
          continue;  // differs in the dither alone
        CAPTURE(row.name);
        CAPTURE(op.name);
        CAPTURE(c.name);
        const std::unique_ptr<Codec> codec = row.make(row, 3);
        PackWithinBound policy(row, codec.get());
        const auto lossy = gradients(c, &policy, 0);
        if (row.lossless && !op.other_form) REQUIRE(exact == lossy);
        const std::vector<double> distance = distances(lossy, exact);
        const double wider = row.bound(0, 1, row.bits) / twelve;
        // A gradient that is linear in what is saved goes as far as the bounds do. One that is not
        // (a norm's statistics) goes farther where codes are coarsest. A norm's gradient is a sum
        // over the rows of a group, up to 16 here: the worst signs make it up to sqrt(16) times as
        // large as a draw of random signs does.
        // A drawn row's errors are as much larger as the rows that it stands for.
        double slack = op.bias.empty() ? 2 : row.bits <= 2 ? 12 : 4;
        if (policy.draws_rows) slack *= compress::kDrawEvery / 4;
        for (size_t k = 0; k < exact.size(); ++k) {
          CAPTURE(k);
          CAPTURE(wider * by_axis[row.shares_lanes][k]);
          CHECK(distance[k] <= slack * wider * by_axis[row.shares_lanes][k] +
                                   op.tolerance * (1 + largest(exact[k])));
        }
      }
    }
}

namespace {

// Packs with another codec, and notes the mean square of each element's error.
class Noting final : public Codec {
 public:
  explicit Noting(const Codec& inner) : inner_(inner) {}
  std::unique_ptr<Packed> pack(const Tensor& x, const SaveInfo& info) const override {
    std::unique_ptr<Packed> packed = inner_.pack(x, info);
    const Tensor rebuilt = packed->unpack();
    if (x.numel() > 0) firsts_.insert(x.data<float>()[0]);
    std::vector<double>& squares = squares_[info.seq];
    squares.resize(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < squares.size(); ++i) {
      const double error = double{rebuilt.data<float>()[i]} - double{x.data<float>()[i]};
      squares[i] += error * error;
    }
    return packed;
  }
  // The largest variance of an element's error.
  double variance(uint64_t draws) const {
    double most = 0;
    for (const auto& [seq, squares] : squares_)
      for (const double square : squares)
        most = std::max(most, square / static_cast<double>(draws));
    return most;
  }
  // Was there a tensor that begins with this value?
  bool packed(float first) const { return firsts_.contains(first); }

 private:
  const Codec& inner_;
  mutable std::set<float> firsts_;
  mutable std::map<uint64_t, std::vector<double>> squares_;
};

// The bias that kStatistics allows in each element of the gradient of a norm's input, where errors
// of x have variance v: s z_i s^2 v / n, with the deviation 1 / s of the group and its n elements.
// z is the weight times the gradient of the output, at most 1.5 here. A norm of rows keeps
// normalized values, whose variance v shifts by s z_i v / n. It takes the mean of that away, but
// with stochastic rounding each value has another variance, up to twice the mean. Where rows are
// drawn, errors of a column that lie in one block of 8 rows depend on each other: a sum of 7 such
// products adds at most 7 / 15 of v.
std::vector<double> bias_of_norm(const op_table::Case& c, const Noting& noting, uint64_t draws) {
  const std::vector<double> x = op_table::make_inputs(c, DType::f32)[0].value().to_vector();
  struct Group {
    double n = 0, sum = 0, squares = 0;
  };
  std::map<int64_t, Group> groups;
  for (size_t i = 0; i < x.size(); ++i) {
    Group& group = groups[c.normalized_in(static_cast<int64_t>(i))];
    ++group.n;
    group.sum += x[i];
    group.squares += x[i] * x[i];
  }
  std::vector<double> allowed;
  for (size_t i = 0; i < x.size(); ++i) {
    const Group& group = groups[c.normalized_in(static_cast<int64_t>(i))];
    const double mean = group.sum / group.n,
                 deviation = std::sqrt(group.squares / group.n - mean * mean);
    const bool plain = noting.packed(static_cast<float>(x[0]));
    allowed.push_back(1.5 * noting.variance(draws) * (1 + 7.0 / 15) /
                      (std::pow(deviation, plain ? 3 : 1) * group.n));
  }
  return allowed;
}

// Whether the gradients of a row can be held to codes of this kind. A function that is smooth in
// what it saves is right up to the second order of errors whose variance it knows, which is equal
// for all values if the dither is taken away. Attention, which makes probabilities from rounded
// scores, is right up to the first order: at 8 bits the second one is too small to be seen.
bool is_held_to(const op_table::Op& op, const compress::CodecRow& row) {
  if (op.bias == op_table::kSmooth) return row.name == "q4-dithered";
  if (op.bias == op_table::kScores) return row.name == "q8-dithered";
  return !row.dithered;
}

}  // namespace

TEST_CASE("codes give unbiased gradients, up to what rows say of themselves") {
  constexpr uint64_t kDraws = 100;
  std::set<std::string> walked;
  for (const char* name : {"q2", "q3", "q4", "q3-row", "q8", "q4-dithered", "q8-dithered"}) {
    const compress::CodecRow& row = compress::find_codec(name);
    const std::unique_ptr<Codec> codec = row.make(row, 17);
    for (const op_table::Op& op : op_table::rows()) {
      if (!is_held_to(op, row)) continue;
      walked.insert(op.name);
      for (const op_table::Case& c : op.cases) {
        CAPTURE(row.name);
        CAPTURE(op.name);
        CAPTURE(c.name);
        const Noting noting(*codec);
        PackAll policy(c.normalized_in ? &noting : codec.get());
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
        std::vector<double> allowed;
        if (c.normalized_in) allowed = bias_of_norm(c, noting, kDraws);
        for (size_t k = 0; k < sum.size(); ++k)
          for (size_t i = 0; i < sum[k].size(); ++i) {
            const double deviation = std::sqrt(squares[k][i]) / static_cast<double>(kDraws);
            const double bias = k == 0 && c.normalized_in ? allowed[i] : 0;
            CAPTURE(k);
            CAPTURE(i);
            CAPTURE(bias);
            // Six standard errors, since thousands of elements are looked at. The step is rounded
            // up to bf16, so a group's largest element falls by one step with a probability below
            // 2^-7: too rare to be seen in its deviation, and allowed for here.
            const double rare = 0x1p-6 / (std::exp2(row.bits) - 1);
            REQUIRE(std::abs(sum[k][i]) / static_cast<double>(kDraws) <=
                    bias + 6 * deviation + (1e-4 + rare) * (1 + largest(exact[k])));
          }
      }
    }
  }
  for (const op_table::Op& op : op_table::rows()) CHECK_MESSAGE(walked.contains(op.name), op.name);
}
