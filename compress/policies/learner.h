// Learner: a policy that decides by what it saw in training.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::compress {

// What it has learned is numbers, which checkpoints keep: with equal numbers, decisions are equal.
class Learner {
 public:
  virtual ~Learner() = default;
  virtual std::vector<double> learned() const = 0;
  // Whether the next step, begun as number `step`, is one that it learns from: those after it may
  // be decided otherwise. What is recorded and replayed shows it nothing.
  virtual bool learns_at(uint64_t step) const = 0;
  virtual void restore_learned(const std::vector<double>& numbers) = 0;  // Errors: not of its form
};

}  // namespace frugal::compress
