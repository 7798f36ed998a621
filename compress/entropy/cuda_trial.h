// What the device finds out of codes before the host decides whether they are coded: how often each
// byte occurs, and the plans and the lengths of the streams that follow from it. So the host reads
// all of that with one wait. For .cu files.
#pragma once
#include "compress/entropy/cuda_rans.h"
#include "compress/entropy/entropy_plan.h"
#include "compress/quantize/cuda_code_map.h"

namespace frugal::compress::entropy {

inline constexpr int kMostTables = most_tables();

// What is done with each plane, and where the streams begin.
struct Tables {
  int64_t streams = 0;
  struct Head {
    Kind kind = Kind::raw;
    uint8_t byte = 0;  // constant
  };
  Head of[kMostTables];
};

// A plan as the device makes it. The host makes its own, because logarithms differ in their last
// bits.
struct TriedPlan {
  double bits;     // see Plan::bits
  double entropy;  // bits per byte of the sample
  int64_t table_bytes;
  uint8_t kind, byte;
  uint16_t frequencies[256];
  bool is(const Plan& plan) const;
};

// All in category `workspace`.
struct Trial {
  Tensor histograms;  // [2, tables, 256] i64: of the sample, of all codes
  Tensor plans;       // u8: a TriedPlan for each table
  Tensor pays;        // [1] i64: 0 if coding surely does not pay
  Tensor tables;      // u8: Tables, without `streams`
  Tensor entries;     // u8: EncodeEntry [tables][256]
};
// Queues the work. The host does not wait.
Trial try_codes(const CodeMap& map, const DeviceMap& there, const Sample& sample,
                const Tensor& plain, double min_saving);

}  // namespace frugal::compress::entropy
