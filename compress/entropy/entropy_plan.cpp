#include "compress/entropy/entropy_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace frugal::compress::entropy {

namespace {

// A sample has at most so many pieces, and so many bytes of each plane.
constexpr int64_t kPieces = 32, kSampleBytes = 8192;

}  // namespace

int64_t Plan::table_bytes() const {
  if (kind == Kind::raw) return 1;
  if (kind == Kind::constant) return 2;
  return 33 + 2 * std::count_if(frequencies.begin(), frequencies.end(),
                                [](uint16_t f) { return f > 0; });
}

Plan plan_of(const rans::Histogram& histogram) {
  Plan plan;
  const int64_t count = std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
  plan.bits = 8 * static_cast<double>(count);
  const auto most = std::max_element(histogram.begin(), histogram.end());
  if (*most == count) {
    plan.kind = Kind::constant;
    plan.byte = static_cast<uint8_t>(most - histogram.begin());
    plan.bits = 0;
    return plan;
  }
  plan.frequencies = rans::frequencies(histogram);
  const double coded = rans::coded_bits(histogram, plan.frequencies);
  if (coded > plan.bits * (1 - kPlaneSaving)) return plan;
  plan.kind = Kind::coded;
  plan.bits = coded;
  return plan;
}

uint8_t* write_table(const Plan& plan, uint8_t* to) {
  *to++ = static_cast<uint8_t>(plan.kind);
  if (plan.kind == Kind::constant) *to++ = plan.byte;
  if (plan.kind != Kind::coded) return to;
  uint8_t* present = to;
  std::memset(present, 0, 32);
  to += 32;
  for (size_t b = 0; b < 256; ++b) {
    if (plan.frequencies[b] == 0) continue;
    present[b / 8] = static_cast<uint8_t>(present[b / 8] | 1u << b % 8);
    std::memcpy(to, &plan.frequencies[b], 2);
    to += 2;
  }
  return to;
}

const uint8_t* read_table(const uint8_t* from, Plan& plan) {
  plan.kind = static_cast<Kind>(*from++);
  if (plan.kind == Kind::constant) plan.byte = *from++;
  if (plan.kind != Kind::coded) return from;
  const uint8_t* present = from;
  from += 32;
  for (size_t b = 0; b < 256; ++b) {
    if ((present[b / 8] >> b % 8 & 1) == 0) continue;
    std::memcpy(&plan.frequencies[b], from, 2);
    from += 2;
  }
  return from;
}

int64_t streams_at(const CodeMap& map, const std::vector<Plan>& plans) {
  int64_t at = map.metadata_bytes() + map.block_count() * 8;
  for (const Plan& plan : plans) at += plan.table_bytes();
  return at;
}

std::vector<Plan> plans_of(const CodeMap& map, const std::vector<rans::Histogram>& histograms,
                           int64_t bytes, double min_saving) {
  std::vector<Plan> plans;
  double predicted = static_cast<double>(map.block_count() * rans::kStates * 4);
  for (const rans::Histogram& histogram : histograms) {
    plans.push_back(plan_of(histogram));
    predicted += plans.back().bits / 8;
  }
  predicted += static_cast<double>(streams_at(map, plans));
  if (predicted > (1 - min_saving) * static_cast<double>(bytes)) return {};
  return plans;
}

Sample sample_of(const CodeMap& map) {
  const int64_t every = (map.groups() + kPieces - 1) / kPieces;
  const int64_t most = kSampleBytes / ((map.groups() + every - 1) / every);
  Sample sample;
  sample.bytes.resize(map.tables());
  for (int64_t g = 0; g < map.groups(); g += every)
    map.for_segments_of_group(g, [&](const Segment& s) {
      const int64_t size = std::min(s.size, most);
      sample.bytes[static_cast<size_t>(s.table)] += static_cast<double>(s.size);
      sample.pieces.push_back({s.table, s.offset + (s.size - size) / 2, size});
    });
  return sample;
}

double saving(const Sample& sample, const std::vector<rans::Histogram>& seen) {
  double saved = 0, all = 0;
  for (size_t t = 0; t < seen.size(); ++t) {
    saved += sample.bytes[t] * (1 - rans::entropy(seen[t]) / 8);
    all += sample.bytes[t];
  }
  return saved / all;
}

}  // namespace frugal::compress::entropy
