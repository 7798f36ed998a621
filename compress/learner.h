// Learner: a policy that decides by what it saw in training.
#pragma once
#include <vector>

namespace frugal::compress {

// What it has learned is numbers, which checkpoints keep: with equal numbers, decisions are equal.
class Learner {
 public:
  virtual ~Learner() = default;
  virtual std::vector<double> learned() const = 0;
  virtual void restore_learned(const std::vector<double>& numbers) = 0;  // Errors: not of its form
};

}  // namespace frugal::compress
