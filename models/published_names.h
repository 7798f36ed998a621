// The original names of published GPT-2 and BERT weights, where today's Hugging Face models use
// others.
#pragma once
#include <functional>
#include <string>

#include "models/state.h"

namespace frugal::models {

// Renames the tensors of `state` to the names of a module; `has` says whether a name is one of
// them. For an unknown name these changes are tried: `LayerNorm.gamma` and `.beta` become `.weight`
// and `.bias`, and the prefix `transformer.` or `bert.` is added or removed. A name that stays
// unknown is dropped if no result depends on its tensor: masks and positions (`attn.bias`,
// `attn.masked_bias`, `position_ids`), the head for next sentences, and the copy of a tied tensor
// with equal bits (on `meta`: of equal shape). Any other name is kept.
NamedTensors as_named_today(const NamedTensors& state,
                            const std::function<bool(const std::string&)>& has);

}  // namespace frugal::models
