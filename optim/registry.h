// The optimizers by their names, with the options that each has (core/option.h):
//
//   auto optimizer = optim::make("adamw", groups, {{"beta2", 0.99}});
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/option.h"
#include "optim/blockwise_options.h"
#include "optim/optimizer.h"

namespace frugal::optim {

// An optimizer under one name.
struct Kind {
  std::string name;
  std::vector<by_name::Key> keys;
  // `state`: how optimizers with 8-bit state keep it; others do not read it.
  std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>& groups,
                                           const by_name::Options& given,
                                           const BlockwiseOptions& state)>
      make;
  std::function<by_name::Value(const std::string& key)> usual;  // REQUIRES: one of `keys`

  bool has(const std::string& key) const;
  // The option in whose place Optimizer::set_momentum() puts a value; empty: there is none.
  std::string momentum() const;
};

const std::vector<Kind>& kinds();           // in the order in which help lists them
const Kind& kind(const std::string& name);  // Errors: OptionError at "name"

// Every option of any optimizer, once, in the order of kinds().
std::vector<by_name::Key> all_keys();

// Errors: those of the optimizer; an unknown name; OptionError for an option that the optimizer
// does not have and for a value that it cannot have, at the option's name.
std::unique_ptr<Optimizer> make(const std::string& name, const std::vector<ParameterGroup>& groups,
                                const by_name::Options& given = {},
                                const BlockwiseOptions& state = {});

}  // namespace frugal::optim
