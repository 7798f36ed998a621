// A long run that nobody trained.
#pragma once
#include <cmath>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {

// The files of a run of 100 epochs of 200 steps, or of fewer steps, of a network with 1000 saved
// tensors. `name` begins the names of layers.
inline void write_long_run(const std::string& folder, const std::string& name,
                           int64_t steps = 20000) {
  Json config = Json::parse(kTinyConfig);
  config["data"]["name"] = "random";
  write_file(folder + "/config.json", config.dump());
  std::ofstream metrics(folder + "/metrics.jsonl");
  const auto write = [&](const Json& line) { metrics << line.dump() << "\n"; };
  for (int64_t step = 1; step <= steps; ++step) {
    const double noise = std::sin(static_cast<double>(step) * 12.9898);
    write({{"type", "step"},
           {"epoch", 1 + (step - 1) / 200},
           {"step", step},
           {"loss", 2.3 / std::sqrt(static_cast<double>(step)) + 0.1 * noise * noise},
           {"accuracy", 0.9 - 0.8 / std::sqrt(static_cast<double>(step))},
           {"lr", 0.1},
           {"grad_norm", 1 + 0.3 * noise}});
    if (step % 100 == 0) {
      Json bits = Json::array(), sensitivities = Json::array(), seqs = Json::array();
      for (int i = 0; i < 300; ++i) {
        bits.push_back(1 + (i + step / 100) % 8);
        sensitivities.push_back(1e-3 * (i + 1));
        seqs.push_back(i);
      }
      write({{"average_bits", 4},
             {"predicted_variance", 0.1},
             {"bits", bits},
             {"seqs", seqs},
             {"sensitivities", sensitivities},
             {"type", "widths"},
             {"step", step}});
      write({{"minibatch_variance", 10},
             {"added_variance", 0.2},
             {"squared_bias", -0.001},
             {"added_share", 0.02},
             {"bias_share", -0.0001},
             {"type", "convergence"},
             {"step", step}});
    }
    if (step == 2 || step == 201 || step == 12601) {
      Json memory = {{"activation_bytes", 1 << 20},
                     {"packed_bytes", 1 << 19},
                     {"peak_bytes", 1 << 22},
                     {"at_peak", {{"packed", 1 << 22}}},
                     {"peak_layer", name},
                     {"peak_op", "conv2d"},
                     {"type", "memory"},
                     {"step", step}};
      Json curve = {{"events", 5000},
                    {"peak", 200},
                    {"phases", std::string(200, 'f') + std::string(120, 'b')}};
      for (const char* category :
           {"parameter", "gradient", "optimizer", "activation", "packed", "workspace", "input"}) {
        Json bytes = Json::array();
        for (int i = 0; i < 320; ++i) bytes.push_back(100000 + i * 7919 % 65536);
        curve[category] = bytes;
      }
      memory["curve"] = curve;
      memory["largest"] = Json::array({{{"category", "packed"},
                                        {"name", name},
                                        {"op", "conv2d"},
                                        {"shape", {8, 8}},
                                        {"bytes", 4096}}});
      write(memory);
      Json rows = Json::array();
      for (int i = 0; i < 1000; ++i)
        rows.push_back({fmt::format("{}layer{}.{}.conv1", name, i / 10, i % 10), "conv2d", 0, i,
                        Json::array({256, 56, 56, 64}), "packed", 205520896, 25690112, 4.0,
                        0.1234});
      write({{"columns",
              {"layer", "op", "slot", "seq", "shape", "how", "raw_bytes", "stored_bytes", "bits",
               "error"}},
             {"rows", rows},
             {"type", "tensors"},
             {"step", step}});
    }
    if (step % 200 == 0)
      write({{"type", "epoch"},
             {"epoch", step / 200},
             {"step", step},
             {"train_loss", 0.5},
             {"train_accuracy", 0.8},
             {"test_loss", 0.6},
             {"test_accuracy", 0.75}});
  }
}

}  // namespace frugal::apps
