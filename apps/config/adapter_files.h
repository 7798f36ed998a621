// Adapters in the files of other programs: folders of PEFT and of MLX, and GGUF files of llama.cpp.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "models/module.h"

namespace frugal::apps {

enum class AdapterFormat : uint8_t { peft, mlx, gguf };

// The keys of the section `adapter` that the file or folder stands for.
// Errors (ConfigError at model.adapter, with the file and the key): no file of an adapter; a key
// that is missing, wrong, or not understood although it may change results.
Json adapter_keys(const std::string& path);

// Is this the path of such a file or folder?
bool is_adapter(const std::string& path);

// What is in it, for people: format (peft, mlx or gguf), adapter (adapter_keys()), tensors and
// elements (counts). Errors: those of adapter_keys() and of the file of tensors.
Json adapter_contents(const std::string& path);

// Adds to a document what adapter_keys() says of model.adapter, unless the document gives the key
// itself; a section with the type none gives none. No model.adapter: does nothing. The
// configuration of a run has all keys, and does not depend on the file any more. Returns the keys
// that it added.
KeysOfFile expand_adapter(Json& document);

// Fills what the network trains from the file. REQUIRES: a network of make_model(config).
// Errors (with the file and the tensor): a tensor that finds no home in the network, or is missing;
// another shape; values that are not finite; a network of another architecture (GGUF).
void load_adapter(Module& network, const Config& config, const std::string& path);

// What files were written, and their tensors.
struct WrittenAdapter {
  std::vector<std::string> files;
  size_t tensors = 0;
  int64_t elements = 0;
};
// Writes what the network trains, in `dtype`: a folder, or for GGUF the file `path`. REQUIRES: as
// load_adapter().
// Errors (ConfigError): what the format cannot hold.
WrittenAdapter write_adapter(Module& network, const Config& config, AdapterFormat format,
                             const std::string& path, DType dtype);

}  // namespace frugal::apps
