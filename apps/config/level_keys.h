// Names for sets of other keys: the levels of the papers, and the presets, chosen by our tables.
// The keys' spellings of earlier versions are here, too: errors answer them with the present ones.
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

// Removes from a document what a level would set, and a preset that is not a paper's, so that a
// level chosen later counts.
void remove_keys_of_levels(Json& document, const std::string& level);

// Presets, from no change of results to the least memory, and then the methods of papers.
struct Preset {
  using Keys = std::vector<std::pair<std::string, Json>>;
  const char* name;
  const char* what;  // what it is for, in a few words
  Keys keys;
  bool of_paper = false;  // to compare with, not to recommend
  // These keys are set, too, where bits are not 0; where recipes could be used; and where widths
  // are adaptive. Nothing reads them elsewhere.
  Keys where_packed = {}, where_rebuilt = {}, where_adaptive = {};
};
const std::vector<Preset>& presets();

// Replaces compression.preset of a document by the keys that it sets. A key that the document gives
// itself stays. A paper's preset may have a level of its policy beside it, which counts over the
// preset's bits. Errors (ConfigError): an unknown preset; bits of another kind (whole or packed); a
// level beside another preset; a memory budget or another policy beside it; what expand_level()
// refuses.
void expand_preset(Json& document);

// Removes from a document what a preset would set or contradict, so that a preset chosen later
// counts.
void remove_keys_of_presets(Json& document);

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
