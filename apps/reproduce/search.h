// Successive halving over cells: each round trains the candidates that are left, for a share of the
// epochs and each time from the start, and the better half of them goes on. The values of the last
// one are those of the search. Ref: Jamieson and Talwalkar 2016 (AISTATS); Evans and Aamodt 2021
// (AC-GC) compare their bound with it.
#pragma once
#include <optional>
#include <vector>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/store.h"

namespace frugal::apps {

// Where a search stands by the results that are stored, so that one that was cut goes on.
struct SearchState {
  std::vector<const Cell*> missing;  // trainings of this round without a result
  // When nothing is missing: what is kept of the last training, with
  //   cost:   the epochs of all trainings over those of the last one
  //   choice: the name of the candidate
  std::optional<StoredResult> result;
};
// REQUIRES: cell.search.
SearchState state_of(const Cell& cell, int64_t seed, const ResultStore& store);

// The places of candidates by their values, the best first: those whose accuracy is at most
// `tolerance` percent points below the highest by their activations, the fewest first; behind them
// the others by accuracy. Where all is equal, the earlier one is first.
std::vector<size_t> ranked(const std::vector<Json>& values, double tolerance);

}  // namespace frugal::apps
