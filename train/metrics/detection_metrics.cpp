#include "train/metrics/detection_metrics.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace frugal::train {
namespace {

constexpr int64_t kMostFound = 100;
constexpr size_t kRecalls = 101, kAll = 0;
constexpr double kSmall = 32.0 * 32, kLarge = 96.0 * 96, kWhole = 1e10;
constexpr std::array<std::array<double, 2>, CocoMetrics::kAreas> kRanges = {
    {{0, kWhole}, {0, kSmall}, {kSmall, kLarge}, {kLarge, kWhole}}};

double overlap_at(size_t i) { return 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9); }
double recall_at(size_t i) { return i == kRecalls - 1 ? 1 : static_cast<double>(i) * 0.01; }

double area_of(const std::array<double, 4>& box) { return (box[2] - box[0]) * (box[3] - box[1]); }

bool lies_in(double area, size_t range) {
  return area >= kRanges[range][0] && area <= kRanges[range][1];
}

// The overlap with a crowd is the share of the found box that the crowd covers.
double overlap(const FoundBox& found, const TrueBox& object) {
  const auto &a = found.box, &b = object.box;
  const double width = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const double height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  if (width <= 0 || height <= 0) return 0;
  const double shared = width * height;
  return shared / (object.crowd ? area_of(a) : area_of(a) + area_of(b) - shared);
}

struct Mean {
  double sum = 0;
  int64_t terms = 0;
  void add(double value) {
    sum += value;
    ++terms;
  }
  double value() const { return terms == 0 ? -1 : sum / static_cast<double>(terms); }
};

}  // namespace

std::vector<std::pair<std::string, double>> CocoScores::named() const {
  return {{"ap", ap},
          {"ap50", ap50},
          {"ap75", ap75},
          {"ap_small", ap_small},
          {"ap_medium", ap_medium},
          {"ap_large", ap_large},
          {"ar1", ar1},
          {"ar10", ar10},
          {"ar100", ar100},
          {"ar_small", ar_small},
          {"ar_medium", ar_medium},
          {"ar_large", ar_large}};
}

CocoMetrics::Class& CocoMetrics::of(int64_t label) {
  const auto at = std::lower_bound(classes_.begin(), classes_.end(), label,
                                   [](const Class& c, int64_t l) { return c.label < l; });
  if (at != classes_.end() && at->label == label) return *at;
  Class fresh;
  fresh.label = label;
  return *classes_.insert(at, fresh);
}

void CocoMetrics::add(const std::vector<TrueBox>& objects, const std::vector<FoundBox>& found) {
  ++pictures_;
  std::set<int64_t> labels;
  for (const TrueBox& object : objects) labels.insert(object.label);
  for (const FoundBox& box : found) labels.insert(box.label);
  for (const int64_t label : labels) {
    std::vector<TrueBox> own;
    std::vector<FoundBox> best;
    for (const TrueBox& object : objects)
      if (object.label == label) own.push_back(object);
    for (const FoundBox& box : found)
      if (box.label == label) best.push_back(box);
    std::stable_sort(best.begin(), best.end(),
                     [](const FoundBox& a, const FoundBox& b) { return a.score > b.score; });
    if (best.size() > static_cast<size_t>(kMostFound)) best.resize(kMostFound);
    Class& all = of(label);
    const size_t first = all.found.size();
    for (size_t i = 0; i < best.size(); ++i) {
      Found one;
      one.score = best[i].score;
      one.rank = static_cast<int64_t>(i);
      all.found.push_back(one);
    }
    std::vector<double> overlaps(best.size() * own.size());
    for (size_t i = 0; i < best.size(); ++i)
      for (size_t j = 0; j < own.size(); ++j)
        overlaps[i * own.size() + j] = overlap(best[i], own[j]);
    for (size_t range = 0; range < kAreas; ++range) {
      // Objects that count come first.
      std::vector<size_t> order(own.size());
      std::iota(order.begin(), order.end(), size_t{0});
      const auto ignored = [&](size_t j) {
        return !own[j].counts() || !lies_in(own[j].area, range);
      };
      std::stable_partition(order.begin(), order.end(), [&](size_t j) { return !ignored(j); });
      for (size_t j = 0; j < own.size(); ++j) all.objects[range] += ignored(j) ? 0 : 1;
      for (size_t t = 0; t < kOverlaps; ++t) {
        std::vector<bool> taken(own.size());
        for (size_t i = 0; i < best.size(); ++i) {
          double most = std::min(overlap_at(t), 1 - 1e-10);
          size_t match = own.size();
          for (const size_t j : order) {
            if (taken[j] && own[j].counts()) continue;
            // An object that counts is not given up for one that does not.
            if (match < own.size() && !ignored(match) && ignored(j)) break;
            if (overlaps[i * own.size() + j] < most) continue;
            most = overlaps[i * own.size() + j];
            match = j;
          }
          const auto bit = static_cast<uint16_t>(1U << t);
          Found& one = all.found[first + i];
          if (match == own.size()) {
            if (!lies_in(area_of(best[i].box), range)) one.ignored[range] |= bit;
          } else {
            taken[match] = true;
            one.right[range] |= bit;
            if (ignored(match)) one.ignored[range] |= bit;
          }
        }
      }
    }
  }
}

CocoScores CocoMetrics::scores() const {
  // [range][overlap]: precision over classes and recalls, recall over classes; ranks below 100.
  std::array<std::array<Mean, kOverlaps>, kAreas> precision, recall;
  std::array<Mean, 2> recall_of_few;  // recall of the best 1 and of the best 10
  for (const Class& all : classes_) {
    std::vector<const Found*> order;
    for (const Found& each : all.found) order.push_back(&each);
    std::stable_sort(order.begin(), order.end(),
                     [](const Found* a, const Found* b) { return a->score > b->score; });
    for (size_t range = 0; range < kAreas; ++range) {
      if (all.objects[range] == 0) continue;
      const auto objects = static_cast<double>(all.objects[range]);
      for (size_t t = 0; t < kOverlaps; ++t) {
        const auto bit = static_cast<uint16_t>(1U << t);
        std::vector<double> recalls, precisions;
        double right = 0, wrong = 0;
        std::array<double, 2> few{};
        for (const Found* each : order) {
          const bool counts = (each->ignored[range] & bit) == 0;
          const bool hit = (each->right[range] & bit) != 0;
          right += counts && hit ? 1 : 0;
          wrong += counts && !hit ? 1 : 0;
          few[0] += counts && hit && each->rank < 1 ? 1 : 0;
          few[1] += counts && hit && each->rank < 10 ? 1 : 0;
          recalls.push_back(right / objects);
          precisions.push_back(right / (right + wrong + std::numeric_limits<double>::epsilon()));
        }
        // The best precision from here on, so that it falls with the recall.
        for (size_t i = precisions.size(); i-- > 1;)
          precisions[i - 1] = std::max(precisions[i - 1], precisions[i]);
        for (size_t r = 0; r < kRecalls; ++r) {
          const auto at = std::lower_bound(recalls.begin(), recalls.end(), recall_at(r));
          precision[range][t].add(
              at == recalls.end() ? 0 : precisions[static_cast<size_t>(at - recalls.begin())]);
        }
        recall[range][t].add(right / objects);
        if (range == kAll)
          for (size_t i = 0; i < few.size(); ++i) recall_of_few[i].add(few[i] / objects);
      }
    }
  }
  const auto over_overlaps = [](const std::array<Mean, kOverlaps>& means) {
    Mean all;
    for (const Mean& mean : means) {
      all.sum += mean.sum;
      all.terms += mean.terms;
    }
    return all.value();
  };
  CocoScores scores;
  scores.ap = over_overlaps(precision[kAll]);
  scores.ap50 = precision[kAll][0].value();
  scores.ap75 = precision[kAll][5].value();
  scores.ap_small = over_overlaps(precision[1]);
  scores.ap_medium = over_overlaps(precision[2]);
  scores.ap_large = over_overlaps(precision[3]);
  scores.ar1 = recall_of_few[0].value();
  scores.ar10 = recall_of_few[1].value();
  scores.ar100 = over_overlaps(recall[kAll]);
  scores.ar_small = over_overlaps(recall[1]);
  scores.ar_medium = over_overlaps(recall[2]);
  scores.ar_large = over_overlaps(recall[3]);
  return scores;
}

}  // namespace frugal::train
