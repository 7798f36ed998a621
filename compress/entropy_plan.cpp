#include "compress/entropy_plan.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "core/parallel.h"

namespace frugal::compress::entropy {

namespace {

constexpr int64_t kBlockBytes = 16384;
constexpr int64_t kPieces = 32, kSampleBytes = 32768;  // of a sample, per plane
// A plane is coded if it shrinks by this share: else decoding it is for nothing.
constexpr double kPlaneSaving = 0.01;

}  // namespace

int64_t groups_per_block(const GroupLayout& layout) {
  const int64_t bytes = std::max<int64_t>(layout.code_bytes(layout.group_rows), 1);
  return (kBlockBytes + bytes - 1) / bytes;
}
int64_t blocks_of(const GroupLayout& layout) {
  const int64_t groups = groups_per_block(layout);
  return (layout.groups + groups - 1) / groups;
}

Block block_at(const GroupLayout& layout, int64_t index) {
  const int64_t groups = groups_per_block(layout);
  const int64_t first = index * groups, last = std::min(first + groups, layout.groups);
  const int64_t end = last == layout.groups ? layout.bytes() : layout.code_offset(last);
  return {first, last, layout.code_offset(first), end - layout.code_offset(first)};
}

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

double estimate(const uint8_t* payload, const GroupLayout& layout) {
  const int64_t every = (layout.groups + kPieces - 1) / kPieces;
  const int64_t piece = kSampleBytes / ((layout.groups + every - 1) / every);
  Histograms seen{};
  std::array<double, 4> bytes{};
  for (int64_t g = 0; g < layout.groups; g += every)
    for_segments(layout, g, g + 1, [&](const Segment& s) {
      const int64_t size = std::min(s.size, piece);
      bytes[s.plane] += static_cast<double>(s.size);
      rans::count_bytes(payload + s.offset + (s.size - size) / 2, static_cast<size_t>(size),
                        seen[s.plane]);
    });
  double saved = 0, all = 0;
  for (size_t p = 0; p < seen.size(); ++p) {
    saved += bytes[p] * (1 - rans::entropy(seen[p]) / 8);
    all += bytes[p];
  }
  return saved / all;
}

Histograms count_planes(const uint8_t* payload, const GroupLayout& layout) {
  Histograms all{};
  std::mutex mutex;
  parallel_for(0, blocks_of(layout), kGrain, [&](int64_t begin, int64_t end) {
    Histograms mine{};
    for_segments(layout, block_at(layout, begin).first, block_at(layout, end - 1).last,
                 [&](const Segment& s) {
                   rans::count_bytes(payload + s.offset, static_cast<size_t>(s.size),
                                     mine[s.plane]);
                 });
    const std::lock_guard lock(mutex);  // sums of whole numbers: any order
    for (size_t p = 0; p < all.size(); ++p)
      for (size_t b = 0; b < 256; ++b) all[p][b] += mine[p][b];
  });
  return all;
}

}  // namespace frugal::compress::entropy
