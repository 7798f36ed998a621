// The names under which GPT-2 and BERT were published, where they differ from those of today's
// Hugging Face models.
#pragma once
#include <functional>
#include <string>

#include "models/state.h"

namespace frugal::models {

// `state` under the module's names, of which `has` knows whether a name is one. A name that is none
// is tried with `LayerNorm.gamma` and `.beta` as `.weight` and `.bias`, and with the prefix
// `transformer.` or `bert.` added or taken away. What still is none is left out where nothing
// depends on it: masks and positions (`attn.bias`, `attn.masked_bias`, `position_ids`), the head
// for next sentences, the copy of a tied tensor with equal bits (on meta: of equal shape). All else
// keeps its name.
NamedTensors as_named_today(const NamedTensors& state,
                            const std::function<bool(const std::string&)>& has);

}  // namespace frugal::models
