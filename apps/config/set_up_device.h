// Threads, limits and settings of the device, as a configuration says.
#pragma once
#include "apps/config/config.h"
#include "core/device.h"
#include "ops/precision.h"

namespace frugal::apps {

// Applies `threads` alone, for commands that compute nothing on the device. Ranks of one machine
// share its cores.
void set_up_threads(const RunConfig& config);
// Applies `precision` alone: what products compute in.
void set_up_products(const RunConfig& config);
// The bytes that tensors of a run on a GPU may take: memory_limit, or else all of the GPU's memory.
// It does not change while a run goes on, and is 0 where there is no such GPU.
int64_t gpu_memory(const RunConfig& config);
// What CUDA calls the GPU of a run on one, else empty.
std::string gpu_name(const RunConfig& config);
// Applies threads, precision and the memory limit, and gives the device.
Device set_up_device(const RunConfig& config);
// Does this for a command that computes, which `doing` names ("trained"). Errors (ConfigError): the
// device meta; the error names the commands that can use it.
Device set_up_computing_device(const RunConfig& config, const char* doing);

// Puts back, when it ends, what a command sets for the whole process: all that set_up_device() does
// but the limit of a GPU's memory, and what the log tells. So the next command, and a program that
// called this one, finds what was there before. Thread safety: one at a time.
class SettingsScope {
 public:
  SettingsScope();
  ~SettingsScope();
  SettingsScope(const SettingsScope&) = delete;
  SettingsScope& operator=(const SettingsScope&) = delete;

 private:
  int threads_, log_;
  ops::MatmulPrecision products_;
  bool bf16_products_, deterministic_;
  int64_t workspace_, memory_;
};

}  // namespace frugal::apps
