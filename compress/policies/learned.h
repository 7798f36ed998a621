// Learned: what a policy has learned, in the form in which checkpoints keep it.
//
// Each policy that learns has a struct of its state (AdaptivePolicy::State, ActnnState, AcgcState,
// BudgetState), with a writer to this form and a strict reader beside it.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"

namespace frugal::compress {

struct Learned {
  std::string policy;                                // who learned it; empty: nothing was learned
  int version = 0;                                   // version of that policy's format
  std::map<std::string, std::vector<double>> lists;  // by name; a single number is a list of one
  // Long lists, which a checkpoint keeps as tensors beside those of the model.
  std::map<std::string, std::vector<float>> arrays = {};
  std::vector<Learned> inside = {};  // what the policies inside this one have learned

  bool empty() const { return policy.empty(); }
  bool operator==(const Learned&) const = default;

  void set(const char* name, double number) { lists[name] = {number}; }
  void add(const char* name, double number) { lists[name].push_back(number); }
};

// Reads a Learned list by list. Each error names the policy, the list, what was expected and what
// came.
class LearnedReader {
 public:
  static constexpr double kLargest = 0x1p53;  // the largest whole number
  static constexpr size_t kAnyCount = SIZE_MAX;

  // Errors: another policy's, or another version.
  LearnedReader(const Learned& learned, const char* policy, int version);

  bool has(const char* name) const { return learned_.lists.contains(name); }
  // Errors: no such list, another count, a number outside the limits or NaN.
  const std::vector<double>& list(const char* name, double least, double most,
                                  size_t count = kAnyCount);
  // Errors: as list(); a number that is not whole.
  std::vector<int64_t> wholes(const char* name, double least, double most,
                              size_t count = kAnyCount);
  // SaveInfo::seq of tensors. Errors: as wholes(); a tensor twice.
  std::vector<uint64_t> tensors(const char* name);
  double number(const char* name, double least, double most) {
    return list(name, least, most, 1)[0];
  }
  int64_t whole(const char* name, double least, double most) {
    return wholes(name, least, most, 1)[0];
  }
  // Errors: as list().
  const std::vector<float>& array(const std::string& name, float least, float most);
  // What the one policy inside has learned. Errors: none, or that of several policies.
  const Learned& inside();
  // Errors: a list, an array or what a policy inside learned that was not read.
  void end() const;

 private:
  const Learned& learned_;
  std::set<std::string> read_, arrays_read_;
  bool inside_read_ = false;
};

// Takes a list apart. Errors: more numbers asked for than there are, or fewer.
class ListParts {
 public:
  ListParts(const char* policy, const char* name, std::span<const double> list)
      : policy_(policy), name_(name), rest_(list) {}
  std::span<const double> next(int64_t count);
  void end() const;

 private:
  const char* policy_;
  const char* name_;
  std::span<const double> rest_;
};

}  // namespace frugal::compress
