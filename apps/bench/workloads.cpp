#include "apps/bench/workloads.h"

#include <map>
#include <vector>

#include "apps/config/keys/config_error.h"

namespace frugal::apps {

Json workload(const std::string& name) {
  static const std::map<std::string, const char*> known = {
      {"r20", R"({"model": {"name": "resnet20", "shortcut": "B"},
                  "data": {"name": "random", "batch_size": 128, "shape": [32, 32, 3]}})"},
      {"r18", R"({"model": {"name": "resnet18", "stem": "cifar"},
                  "data": {"name": "random", "batch_size": 32, "shape": [32, 32, 3]}})"},
      {"r50", R"({"model": {"name": "resnet50"},
                  "data": {"name": "random", "batch_size": 4, "shape": [224, 224, 3], "classes": 1000}})"},
      // The layers are those of torch.nn.TransformerEncoder.
      {"bert", R"({"model": {"name": "encoder"}, "optim": {"name": "adamw"},
                   "data": {"name": "random_tokens", "batch_size": 32, "max_length": 128}})"},
      // TinyLlama's shapes, with fewer layers.
      {"lora", R"({"model": {"name": "decoder", "layers": 4, "width": 2048, "feed_forward": 5632,
                             "heads": 32, "kv_heads": 4, "vocab_size": 32000, "max_positions": 2048},
                   "adapter": {"type": "lora", "rank": 16, "alpha": 32, "targets": "all-linear"},
                   "optim": {"name": "adamw"},
                   "data": {"name": "random_tokens", "batch_size": 2, "max_length": 512}})"},
      // A random graph of the size of ogbn-arxiv.
      {"gcn", R"({"model": {"name": "gcn", "layers": 3, "width": 256, "batch_norm": true},
                  "data": {"name": "random_graph", "nodes": 169343, "edges": 1166243, "features": 128}})"}};
  const auto found = known.find(name);
  std::vector<std::string> names;
  for (const auto& each : known) names.push_back(each.first);
  if (found == known.end())
    throw ConfigError(
        "", fmt::format("--workload: expected one of {}, got '{}'", fmt::join(names, ", "), name));
  return Json::parse(found->second);
}

}  // namespace frugal::apps
