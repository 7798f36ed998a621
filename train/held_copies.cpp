#include "train/held_copies.h"

#include <vector>

namespace frugal::train {
namespace {

std::vector<AnyHeldCopies*>& all() {
  static std::vector<AnyHeldCopies*> copies;
  return copies;
}

}  // namespace

AnyHeldCopies::AnyHeldCopies() { all().push_back(this); }

void forget_evaluated_copies() {
  for (AnyHeldCopies* copies : all()) copies->forget(false);
}

HeldCopiesScope::~HeldCopiesScope() {
  for (AnyHeldCopies* copies : all()) copies->forget(true);
}

}  // namespace frugal::train
