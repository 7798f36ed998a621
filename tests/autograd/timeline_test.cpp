#include "autograd/timeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/functions.h"

namespace frugal {
namespace {

using Kind = Timeline::Kind;

int count(const Timeline& timeline, Kind kind, const std::string& name) {
  return static_cast<int>(
      std::count_if(timeline.spans().begin(), timeline.spans().end(),
                    [&](const auto& span) { return span.kind == kind && span.name == name; }));
}

}  // namespace

TEST_CASE("timeline: own times leave out what lies inside, and sum up to the whole") {
  Timeline timeline(kCpu);
  timeline.begin(Kind::phase, "step");
  timeline.begin(Kind::pack, "a");
  timeline.end();
  timeline.op("a");
  timeline.op("b");
  timeline.begin(Kind::backward, "b");
  timeline.begin(Kind::unpack, "");
  timeline.end();
  timeline.op("c");  // a recomputed block
  timeline.end();
  timeline.end();
  REQUIRE(timeline.spans().size() == 7);
  CHECK(timeline.spans().back().name == std::string("step"));
  CHECK(count(timeline, Kind::unpack, "b") == 1);  // the name of the span around
  CHECK(count(timeline, Kind::rebuild, "c") == 1);
  CHECK(count(timeline, Kind::forward, "a") == 1);
  double own = 0;
  for (const auto& span : timeline.spans()) {
    CHECK(span.own >= 0);
    CHECK(span.end >= span.begin);
    own += span.own;
  }
  const auto& step = timeline.spans().back();
  CHECK(own == doctest::Approx(step.end - step.begin));
  // An op begins where the one before it ended, and holds what it packed.
  const auto &pack = timeline.spans()[0], &a = timeline.spans()[1], &b = timeline.spans()[2];
  CHECK(a.begin == step.begin);
  CHECK(a.end >= pack.end);
  CHECK(b.begin == a.end);
}

TEST_CASE("timeline: ops, their nodes, what is kept and by which layer") {
  const auto leaf = [](const Shape& shape) { return Variable(Tensor::full(shape, 0.5), true); };
  const Variable x(Tensor::full({8, 16}, 0.25)), w = leaf({32, 16}), v = leaf({4, 32});
  Timeline timeline(kCpu);
  timeline.name_layer(w.value().storage()->id(), "first");
  timeline.name_layer(v.value().storage()->id(), "second");
  const auto pass = [&] {
    const Variable hidden = tanh(linear(x, w, Variable()));
    return sum(linear(hidden, v, Variable()));
  };
  {
    const TimelineScope scope(timeline);
    const TimeSpan span(Kind::phase, "forward");
    CHECK(active_timeline() == &timeline);
    backward(pass());
  }
  CHECK(active_timeline() == nullptr);
  const size_t spans = timeline.spans().size();
  backward(pass());  // without a scope nothing is noted
  CHECK(timeline.spans().size() == spans);
  CHECK(count(timeline, Kind::forward, "linear") == 2);
  CHECK(count(timeline, Kind::backward, "linear") == 2);
  CHECK(count(timeline, Kind::backward, "tanh") == 1);
  const auto layer_of = [&](const std::string& op, Kind kind) {
    for (const auto& span : timeline.spans())
      if (span.kind == kind && span.name == op) return timeline.layers()[span.layer];
    return std::string("none");
  };
  CHECK(layer_of("tanh", Kind::forward) == "first");
  CHECK(layer_of("tanh", Kind::backward) == "first");
  CHECK(layer_of("sum", Kind::forward) == "second");
  // x is an activation here, because nobody said otherwise; parameters too.
  int64_t stored = 0;
  bool tanh_keeps = false;
  for (const auto& saved : timeline.saved()) {
    stored += saved.stored;
    tanh_keeps = tanh_keeps || (saved.op == std::string("tanh") && saved.raw == 8 * 32 * 4);
    CHECK(saved.stored >= saved.raw);
  }
  CHECK(tanh_keeps);
  CHECK(stored > 0);
}

TEST_CASE("timeline: each phase, and each block that is recomputed, begins with its own layer") {
  const auto leaf = [](const Shape& shape) { return Variable(Tensor::full(shape, 0.5), true); };
  const Variable x(Tensor::full({8, 16}, 0.25)), w = leaf({32, 16}), v = leaf({4, 32});
  Timeline timeline(kCpu);
  timeline.name_layer(w.value().storage()->id(), "first");
  timeline.name_layer(v.value().storage()->id(), "second");
  const TimelineScope scope(timeline);
  for (int step = 0; step < 2; ++step) {
    Variable loss;
    {
      const TimeSpan span(Kind::phase, "forward");
      const Variable hidden = linear(neg(x), w, Variable());
      const Variable y = checkpoint(
          [&](const Variables& in) { return linear(tanh(in[0]), v, Variable()); }, {hidden});
      loss = sum(y);
    }
    const TimeSpan span(Kind::phase, "backward");
    backward(loss);
  }
  const auto has_layer = [&](const std::string& op, Kind kind, const char* layer) {
    int found = 0;
    for (const auto& span : timeline.spans())
      if (span.kind == kind && span.name == op) {
        CHECK(timeline.layers()[static_cast<size_t>(span.layer)] == layer);
        ++found;
      }
    CHECK(found == 2);
  };
  has_layer("neg", Kind::forward, "");  // "second" ended the step before
  has_layer("tanh", Kind::rebuild, "first");
  has_layer("linear", Kind::rebuild, "second");
  has_layer("sum", Kind::forward, "second");
}

}  // namespace frugal
