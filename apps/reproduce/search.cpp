#include "apps/reproduce/search.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "apps/reproduce/runner.h"

namespace frugal::apps {

std::vector<size_t> ranked(const std::vector<Json>& values, double tolerance) {
  const auto number = [&](size_t i, const char* name) { return values[i].at(name).get<double>(); };
  double highest = 0;
  for (size_t i = 0; i < values.size(); ++i) highest = std::max(highest, number(i, "accuracy"));
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  const auto is_near = [&](size_t i) { return number(i, "accuracy") >= highest - tolerance; };
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    if (is_near(a) != is_near(b)) return is_near(a);
    if (is_near(a)) return number(a, "activation") < number(b, "activation");
    return number(a, "accuracy") > number(b, "accuracy");
  });
  return places;
}

SearchState state_of(const Cell& cell, int64_t seed, const ResultStore& store) {
  const CellSearch& search = *cell.search;
  SearchState state;
  std::vector<size_t> left(search.names.size());
  std::iota(left.begin(), left.end(), size_t{0});
  double epochs = 0, seconds = 0;
  std::set<std::string> counted;  // hashes of trainings
  for (size_t round = 0; round < search.rounds.size(); ++round) {
    const bool last = round + 1 == search.rounds.size();
    if (left.size() == 1 && !last) continue;  // there is nothing to choose
    std::vector<Json> values;
    StoredResult best;
    for (const size_t candidate : left) {
      const Cell& training = search.rounds[round][candidate];
      const auto results = store.find(key_of(training, seed));
      const auto found = results.find(seed);
      if (found == results.end()) {
        state.missing.push_back(&training);
        continue;
      }
      // If two shares are equal numbers of epochs, the later round needs no other training.
      if (counted.insert(training.hash).second) {
        epochs += found->second.values.at("epochs").get<double>();
        seconds += found->second.seconds;
      }
      values.push_back(found->second.values);
    }
    if (!state.missing.empty()) return state;
    std::vector<size_t> best_first;
    for (const size_t place : ranked(values, search.tolerance)) best_first.push_back(left[place]);
    left = std::move(best_first);
    if (!last) left.resize((left.size() + 1) / 2);
  }
  const Cell& chosen = search.rounds.back()[left.front()];
  state.result = store.find(key_of(chosen, seed)).at(seed);
  Json& values = state.result->values;
  values["cost"] = epochs / values.at("epochs").get<double>();
  values["choice"] = search.names[left.front()];
  state.result->seconds = seconds;
  return state;
}

}  // namespace frugal::apps
