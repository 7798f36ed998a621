#include "train/metrics/detection_metrics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/rng.h"

namespace frugal::train {
namespace {

struct Scene {
  std::vector<TrueBox> objects;
  std::vector<FoundBox> found;
};

// COCO's definition, read literally and slowly: everything is computed anew for each class, area
// range, overlap and number of detections.
struct Literal {
  const std::vector<Scene>& scenes;

  static double overlap(const FoundBox& d, const TrueBox& g) {
    const double w = std::max(0.0, std::min(d.box[2], g.box[2]) - std::max(d.box[0], g.box[0]));
    const double h = std::max(0.0, std::min(d.box[3], g.box[3]) - std::max(d.box[1], g.box[1]));
    const double area_d = (d.box[2] - d.box[0]) * (d.box[3] - d.box[1]);
    const double area_g = (g.box[2] - g.box[0]) * (g.box[3] - g.box[1]);
    return w * h / (g.crowd ? area_d : area_d + area_g - w * h);
  }

  struct Curve {
    bool defined = false;
    double recall = 0;
    std::vector<double> precision;  // precision at 101 recalls
  };

  Curve curve(int64_t label, double low, double high, double threshold, size_t most) const {
    struct Row {
      double score;
      bool hit, ignored;
    };
    std::vector<Row> rows;
    int64_t positives = 0;
    for (const Scene& scene : scenes) {
      std::vector<TrueBox> objects;
      std::vector<bool> ignored;
      for (const bool wanted : {false, true})  // ignored objects come last
        for (const TrueBox& g : scene.objects) {
          if (g.label != label) continue;
          const bool ignore = g.crowd || g.area < low || g.area > high;
          if (ignore != wanted) continue;
          objects.push_back(g);
          ignored.push_back(ignore);
          positives += ignore ? 0 : 1;
        }
      std::vector<FoundBox> found;
      for (const FoundBox& d : scene.found)
        if (d.label == label) found.push_back(d);
      std::stable_sort(found.begin(), found.end(),
                       [](const FoundBox& a, const FoundBox& b) { return a.score > b.score; });
      if (found.size() > most) found.resize(most);
      std::vector<bool> used(objects.size());
      for (const FoundBox& d : found) {
        int best = -1;
        double iou = std::min(threshold, 1 - 1e-10);
        for (size_t g = 0; g < objects.size(); ++g) {
          if (used[g] && !objects[g].crowd) continue;
          if (best >= 0 && !ignored[static_cast<size_t>(best)] && ignored[g]) break;
          if (overlap(d, objects[g]) < iou) continue;
          iou = overlap(d, objects[g]);
          best = static_cast<int>(g);
        }
        if (best >= 0) {
          used[static_cast<size_t>(best)] = true;
          rows.push_back({d.score, true, ignored[static_cast<size_t>(best)]});
        } else {
          const double area = (d.box[2] - d.box[0]) * (d.box[3] - d.box[1]);
          rows.push_back({d.score, false, area < low || area > high});
        }
      }
    }
    Curve result;
    if (positives == 0) return result;
    result.defined = true;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.score > b.score; });
    std::vector<double> recall, precision;
    double hits = 0, misses = 0;
    for (const Row& row : rows) {
      if (!row.ignored) (row.hit ? hits : misses) += 1;
      recall.push_back(hits / static_cast<double>(positives));
      precision.push_back(hits / (hits + misses + std::numeric_limits<double>::epsilon()));
    }
    result.recall = recall.empty() ? 0 : recall.back();
    for (int r = 0; r <= 100; ++r) {
      double best = 0;
      for (size_t i = 0; i < recall.size(); ++i)
        if (recall[i] >= (r == 100 ? 1.0 : r * 0.01)) best = std::max(best, precision[i]);
      result.precision.push_back(best);
    }
    return result;
  }

  // The mean over classes and the overlaps [first, last).
  double mean(bool precision, int first, int last, double low, double high, size_t most) const {
    std::set<int64_t> labels;
    for (const Scene& scene : scenes)
      for (const TrueBox& g : scene.objects) labels.insert(g.label);
    double sum = 0;
    int64_t terms = 0;
    for (const int64_t label : labels)
      for (int t = first; t < last; ++t) {
        const Curve c = curve(label, low, high, 0.5 + t * ((0.95 - 0.5) / 9), most);
        if (!c.defined) continue;
        if (!precision) {
          sum += c.recall;
          ++terms;
        } else {
          for (const double p : c.precision) sum += p;
          terms += static_cast<int64_t>(c.precision.size());
        }
      }
    return terms == 0 ? -1 : sum / static_cast<double>(terms);
  }

  std::vector<double> all() const {
    constexpr double kAny = 1e10, kSmall = 1024, kLarge = 9216;
    return {mean(true, 0, 10, 0, kAny, 100),         mean(true, 0, 1, 0, kAny, 100),
            mean(true, 5, 6, 0, kAny, 100),          mean(true, 0, 10, 0, kSmall, 100),
            mean(true, 0, 10, kSmall, kLarge, 100),  mean(true, 0, 10, kLarge, kAny, 100),
            mean(false, 0, 10, 0, kAny, 1),          mean(false, 0, 10, 0, kAny, 10),
            mean(false, 0, 10, 0, kAny, 100),        mean(false, 0, 10, 0, kSmall, 100),
            mean(false, 0, 10, kSmall, kLarge, 100), mean(false, 0, 10, kLarge, kAny, 100)};
  }
};

std::vector<double> values(const CocoScores& scores) {
  std::vector<double> all;
  for (const auto& [name, value] : scores.named()) all.push_back(value);
  return all;
}

void check(const std::vector<Scene>& scenes) {
  CocoMetrics metrics;
  for (const Scene& scene : scenes) metrics.add(scene.objects, scene.found);
  const std::vector<double> got = values(metrics.scores()), expected = Literal{scenes}.all();
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK_MESSAGE(got[i] == doctest::Approx(expected[i]).epsilon(1e-12), i);
}

TrueBox object(double x1, double y1, double x2, double y2, int64_t label = 1, bool crowd = false) {
  return {{x1, y1, x2, y2}, label, (x2 - x1) * (y2 - y1), crowd};
}

}  // namespace

TEST_CASE("COCO's scores: random pictures with ties, crowds and empty pictures") {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    uint64_t at = 0;
    const auto draw = [&](uint64_t bound) {
      return static_cast<double>(uniform_int({seed, 9}, at++, bound));
    };
    std::vector<Scene> scenes(7);
    for (size_t s = 0; s < scenes.size(); ++s) {
      Scene& scene = scenes[s];
      if (s == 2) continue;  // nothing there, nothing found
      const double objects = s == 3 ? 0 : 1 + draw(6), wrong = s == 4 ? 0 : draw(12);
      for (double i = 0; i < objects; ++i) {
        // Coordinates of few values, so overlaps are often equal.
        const double x = 10 * draw(20), y = 10 * draw(20), scale = draw(4) == 0 ? 60 : 10;
        scene.objects.push_back(object(x, y, x + scale * (1 + draw(4)), y + scale * (1 + draw(4)),
                                       1 + static_cast<int64_t>(draw(3)), draw(5) == 0));
        if (draw(3) == 0) scene.objects.back().area *= 0.5;  // an outline within the box
        for (double k = draw(3); k > 0; --k) {
          FoundBox found;
          found.box = scene.objects.back().box;
          found.box[static_cast<size_t>(draw(4))] += 2 * draw(4) - 2;
          found.label = draw(6) == 0 ? 4 : scene.objects.back().label;
          found.score = (1 + draw(8)) / 8;  // many are equal
          scene.found.push_back(found);
        }
      }
      for (double i = 0; i < wrong; ++i) {
        const double x = 10 * draw(20), y = 10 * draw(20);
        scene.found.push_back({{x, y, x + 10 * (1 + draw(12)), y + 10 * (1 + draw(12))},
                               1 + static_cast<int64_t>(draw(3)),
                               (1 + draw(8)) / 8});
      }
    }
    CAPTURE(seed);
    check(scenes);
  }
}

TEST_CASE("COCO's scores: more than 100 boxes of a class in a picture") {
  Scene scene;
  for (int i = 0; i < 12; ++i) scene.objects.push_back(object(20 * i, 0, 20 * i + 15, 15));
  for (int i = 0; i < 130; ++i)
    scene.found.push_back(
        {{20.0 * (i % 12), 0, 20.0 * (i % 12) + 15, 15.0 - i / 12}, 1, i < 118 ? 0.5 : 0.25});
  check({scene});
}

TEST_CASE("COCO's scores: values that one can see") {
  const Scene right = {{object(0, 0, 10, 10), object(0, 0, 100, 100, 2)},
                       {{{0, 0, 10, 10}, 1, 0.9}, {{0, 0, 100, 100}, 2, 0.8}}};
  CocoMetrics metrics;
  CHECK(values(metrics.scores()) == std::vector<double>(12, -1));
  metrics.add(right.objects, right.found);
  const std::vector<double> expected = {1, 1, 1, 1, -1, 1, 1, 1, 1, 1, -1, 1};
  const std::vector<double> got = values(metrics.scores());
  for (size_t i = 0; i < expected.size(); ++i) CHECK(got[i] == doctest::Approx(expected[i]));
  // A second picture, in which nothing is found.
  metrics.add(right.objects, {});
  CHECK(metrics.scores().ar100 == 0.5);
  CHECK(metrics.scores().ap == doctest::Approx(51.0 / 101));
  CHECK(metrics.pictures() == 2);
  // An overlap of 0.62 is right at 0.5, 0.55 and 0.6.
  metrics.clear();
  metrics.add({object(0, 0, 10, 10)}, {{{0, 0, 10, 6.2}, 1, 0.9}});
  CHECK(metrics.scores().ap50 == doctest::Approx(1));
  CHECK(metrics.scores().ap75 == 0);
  CHECK(metrics.scores().ap == doctest::Approx(0.3));
}

TEST_CASE("VOC's difficult objects count neither as objects nor as false positives") {
  TrueBox difficult = object(50, 50, 70, 70);
  difficult.difficult = true;
  const std::vector<TrueBox> objects = {object(0, 0, 20, 20), difficult};
  const auto ap50 = [&](const std::vector<FoundBox>& found) {
    CocoMetrics metrics;
    metrics.add(objects, found);
    return metrics.scores().ap50;
  };
  const FoundBox right = {{0, 0, 20, 20}, 1, 0.5};
  // However often it is found, and whether it is found or not.
  CHECK(ap50({right}) == doctest::Approx(1));
  CHECK(ap50({{{50, 50, 70, 70}, 1, 0.9}, {{50, 50, 70, 68}, 1, 0.8}, right}) ==
        doctest::Approx(1));
  // A box within it that overlaps it by a quarter has found nothing; within a crowd it does not
  // count.
  const FoundBox part = {{50, 50, 60, 60}, 1, 0.9};
  CHECK(ap50({part, right}) == doctest::Approx(0.5));
  CocoMetrics crowds;
  TrueBox crowd = object(50, 50, 70, 70);
  crowd.crowd = true;
  crowds.add({object(0, 0, 20, 20), crowd}, {part, right});
  CHECK(crowds.scores().ap50 == doctest::Approx(1));
}

}  // namespace frugal::train
