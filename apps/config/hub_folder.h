// Folders of Hugging Face's hub: config.json says which network it is, beside its weights in
// safetensors. A configuration that names such a folder as model.weights needs no other key of its
// network.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "models/zoo/decoder.h"

namespace frugal::apps {

// Has the folder a config.json with a model_type, as those of runs have not?
bool is_hub_folder(const std::string& folder);

// The keys of model. that the folder's config.json stands for, with `name`.
// Errors (ConfigError at model.weights, with the file and the key): a model_type that is unknown; a
// key that is missing, wrong, or not understood although it may change results.
Json hub_keys(const std::string& folder);

// Adds to a document what hub_keys() says of the folder model.weights, unless the document gives
// the key itself. Other weights: does nothing. Returns the keys that it added.
// Errors: those of hub_keys(); another model.name.
KeysOfFile expand_hub_folder(Json& document);

// Removes from a document the keys that hub_keys() would give, so that a folder chosen later says
// them.
void remove_hub_keys(Json& document, const std::string& folder);

// The options of a network decoder. REQUIRES: its name.
models::DecoderOptions decoder_options(const ModelConfig& model);

// The config.json of a decoder, a GPT-2, a BERT, a RoBERTa or a DistilBERT, in the keys that all
// versions of Hugging Face's library read. `dtype`: as files say it, such as "float32". `origin`:
// the folder whose ids of special tokens it takes over, if there is such a folder. `labels`: the
// names of an encoder's classes; empty: it guesses hidden tokens. Errors (ConfigError): a network
// that no such file describes.
Json hub_config(const ModelConfig& model, const std::string& dtype, const std::string& origin,
                const std::vector<std::string>& labels = {});

}  // namespace frugal::apps
