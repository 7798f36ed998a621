// The keys that names of choices stand for: levels of the papers and presets
// (compress/policies/levels.h). This file also knows how earlier versions spelled keys. An error
// answers such a spelling with the present one.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "apps/config/keys/config_table.h"
#include "compress/policies/levels.h"

namespace frugal::apps {

// The rows of compression.level and compression.preset in the table of keys.
Field level_field();
Field preset_field();

std::vector<std::string> level_names();

// Paths and values that a level sets. Errors (ConfigError): a level that the policy does not have.
std::vector<std::pair<std::string, Json>> keys_of_level(PolicyKind policy,
                                                        const std::string& level);

// Replaces compression.level of a document by the keys that it sets. A key that the document gives
// itself must agree with the level, but compression.bits may be another width of the same kind
// (fixed or adaptive). Errors (ConfigError): a key that contradicts the level; a level that moves
// activations to a file, without compression.offload.
void expand_level(Json& document);

// Removes from a document what a level would set, and a preset that is not a paper's, so that a
// level chosen later counts.
void remove_keys_of_levels(Json& document, const std::string& level);

// Replaces compression.preset of a document by the keys that it sets. A key that the document gives
// itself stays. A paper's preset may have a level of its policy beside it, which counts over the
// preset's bits. Errors (ConfigError): an unknown preset; bits of another kind (whole or packed); a
// level beside another preset; a memory budget or another policy beside it; what expand_level()
// refuses.
void expand_preset(Json& document);

// Removes from a document what a preset would set or contradict, so that a preset chosen later
// counts.
void remove_keys_of_presets(Json& document);

// The level of the policy whose kind of widths a configuration has: that of the same bits, or else
// the first.
std::string level_name(const CompressionConfig& config);
// level_name(), and the bits where they are not that level's: "L1", "L2 at 2.5 bits".
std::string level_text(const CompressionConfig& config);
// Does each tensor get a width of its own, by `config.bits` on average?
bool has_adaptive_widths(const CompressionConfig& config);

// A key that had another path, and the text that names the present one.
struct OldKey {
  std::string path, now;
};
const std::vector<OldKey>& old_keys();

}  // namespace frugal::apps
