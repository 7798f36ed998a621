// The levels of the papers, as names for sets of other keys; and the keys' spellings of earlier
// versions, which errors answer with the present ones.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"

namespace frugal::apps {

std::vector<std::string> level_names();

// Paths and values that a level sets. Errors (ConfigError): a level that the policy does not have.
std::vector<std::pair<std::string, Json>> keys_of_level(const std::string& policy,
                                                        const std::string& level);

// Replaces compression.level of a document by the keys that it sets. A key that the document gives
// itself must agree with the level, but compression.bits may be another width of the same kind
// (fixed or adaptive). Errors (ConfigError): a key that contradicts the level; a level that moves
// activations to a file, without compression.offload.
void expand_level(Json& document);

// Removes from a document what a level would set, so that a level chosen later counts.
void remove_keys_of_levels(Json& document, const std::string& level);

// Fills level, bits and average_bits from the keys that users write.
void name_level(CompressionConfig& config);
// Does each tensor get a width of its own, by `config.width` on average?
bool has_adaptive_widths(const CompressionConfig& config);

// A key that had another path, and the text that names the present one.
struct OldKey {
  std::string path, now;
};
const std::vector<OldKey>& old_keys();

}  // namespace frugal::apps
