#include "compress/policies/learned.h"

#include <cmath>

#include "core/error.h"

namespace frugal::compress {

LearnedReader::LearnedReader(const Learned& learned, const char* policy, int version)
    : learned_(learned) {
  FRUGAL_CHECK(
      learned.policy == policy && learned.version == version,
      "[{}] expected what version {} of this policy learned, got what version {} of \"{}\" "
      "learned",
      policy, version, learned.version, learned.policy);
}

const std::vector<double>& LearnedReader::list(const char* name, double least, double most,
                                               size_t count) {
  const auto found = learned_.lists.find(name);
  FRUGAL_CHECK(found != learned_.lists.end(),
               "[{}] expected the list \"{}\" in what was learned, got none", learned_.policy,
               name);
  const std::vector<double>& list = found->second;
  FRUGAL_CHECK(count == kAnyCount || list.size() == count,
               "[{}] expected {} numbers as \"{}\" of what was learned, got {}", learned_.policy,
               count, name, list.size());
  for (size_t i = 0; i < list.size(); ++i)
    FRUGAL_CHECK(list[i] >= least && list[i] <= most,
                 "[{}] expected {} to {} as number {} of \"{}\" of what was learned, got {}",
                 learned_.policy, least, most, i, name, list[i]);
  read_.insert(name);
  return list;
}

std::vector<int64_t> LearnedReader::wholes(const char* name, double least, double most,
                                           size_t count) {
  std::vector<int64_t> wholes;
  for (const double number : list(name, least, most, count)) {
    FRUGAL_CHECK(number == std::trunc(number),
                 "[{}] expected whole numbers as \"{}\" of what was learned, got {}",
                 learned_.policy, name, number);
    wholes.push_back(static_cast<int64_t>(number));
  }
  return wholes;
}

std::vector<uint64_t> LearnedReader::tensors(const char* name) {
  std::vector<uint64_t> tensors;
  std::set<uint64_t> seen;
  for (const int64_t whole : wholes(name, 0, kLargest)) {
    tensors.push_back(static_cast<uint64_t>(whole));
    FRUGAL_CHECK(seen.insert(tensors.back()).second,
                 "[{}] expected each tensor once in \"{}\" of what was learned, got {} twice",
                 learned_.policy, name, whole);
  }
  return tensors;
}

const std::vector<float>& LearnedReader::array(const std::string& name, float least, float most) {
  const auto found = learned_.arrays.find(name);
  FRUGAL_CHECK(found != learned_.arrays.end(),
               "[{}] expected the array \"{}\" in what was learned, got none", learned_.policy,
               name);
  const std::vector<float>& array = found->second;
  for (size_t i = 0; i < array.size(); ++i)
    FRUGAL_CHECK(array[i] >= least && array[i] <= most,
                 "[{}] expected {} to {} as number {} of \"{}\" of what was learned, got {}",
                 learned_.policy, least, most, i, name, array[i]);
  arrays_read_.insert(name);
  return array;
}

const Learned& LearnedReader::inside() {
  FRUGAL_CHECK(learned_.inside.size() == 1,
               "[{}] expected what one policy inside it learned, got that of {}", learned_.policy,
               learned_.inside.size());
  inside_read_ = true;
  return learned_.inside[0];
}

void LearnedReader::end() const {
  FRUGAL_CHECK(inside_read_ || learned_.inside.empty(),
               "[{}] expected nothing that a policy inside it learned, got that of {}",
               learned_.policy, learned_.inside.size());
  for (const auto& [name, list] : learned_.lists)
    FRUGAL_CHECK(read_.contains(name),
                 "[{}] expected no list \"{}\" in what was learned, got one of {} numbers",
                 learned_.policy, name, list.size());
  for (const auto& [name, array] : learned_.arrays)
    FRUGAL_CHECK(arrays_read_.contains(name),
                 "[{}] expected no array \"{}\" in what was learned, got one of {} numbers",
                 learned_.policy, name, array.size());
}

std::span<const double> ListParts::next(int64_t count) {
  FRUGAL_CHECK(count >= 0 && static_cast<uint64_t>(count) <= rest_.size(),
               "[{}] expected {} more numbers as \"{}\" of what was learned, got {}", policy_,
               count, name_, rest_.size());
  const auto part = rest_.first(static_cast<size_t>(count));
  rest_ = rest_.subspan(static_cast<size_t>(count));
  return part;
}

void ListParts::end() const {
  FRUGAL_CHECK(rest_.empty(), "[{}] expected no more numbers as \"{}\" of what was learned, got {}",
               policy_, name_, rest_.size());
}

}  // namespace frugal::compress
