#include "compress/entropy_plan.h"

#include <algorithm>
#include <array>
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

CodeMap::CodeMap(std::vector<Grouped::Part> parts) {
  std::array<size_t, 17> table_of{};  // by width, plus 1; 0: none yet
  for (const Grouped::Part& part : parts) {
    const GroupLayout& layout = part.layout;
    size_t& table = table_of[static_cast<size_t>(layout.bits)];
    if (table == 0) {
      table = tables_ + 1;
      tables_ += static_cast<size_t>(planes_of(layout.bits).count);
    }
    const int64_t metadata = layout.meta_offset(layout.groups);
    places_.push_back({part.offset, layout, groups_, part.offset + metadata, codes_, table - 1});
    for (int64_t g = 0; g < layout.groups; ++g, ++groups_) {
      const int64_t bytes = layout.code_bytes(layout.rows_of(g));
      if (blocks_.empty() || blocks_.back().bytes >= kBlockBytes)
        blocks_.push_back({groups_, groups_, codes_, 0});
      blocks_.back().last = groups_ + 1;
      blocks_.back().bytes += bytes;
      codes_ += bytes;
    }
    metadata_ += metadata;
  }
}

size_t CodeMap::part_of(int64_t group) const {
  const auto after =
      std::upper_bound(places_.begin(), places_.end(), group,
                       [](int64_t g, const Place& place) { return g < place.first; });
  return static_cast<size_t>(after - places_.begin()) - 1;
}

void CodeMap::copy_metadata(const uint8_t* payload, uint8_t* to) const {
  for (const Place& place : places_) {
    const auto size = static_cast<size_t>(place.codes - place.offset);
    std::memcpy(to, payload + place.offset, size);
    to += size;
  }
}

void CodeMap::put_metadata(const uint8_t* from, uint8_t* payload) const {
  for (const Place& place : places_) {
    const auto size = static_cast<size_t>(place.codes - place.offset);
    std::memcpy(payload + place.offset, from, size);
    from += size;
  }
}

uint8_t* CodeMap::close_up(uint8_t* payload) const {
  uint8_t* const begin = payload + places_.front().codes;
  for (size_t i = 1; i < places_.size(); ++i) {
    const int64_t end = i + 1 < places_.size() ? places_[i + 1].at : codes_;
    std::memmove(begin + places_[i].at, payload + places_[i].codes,
                 static_cast<size_t>(end - places_[i].at));
  }
  return begin;
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

double estimate(const uint8_t* payload, const CodeMap& map) {
  const int64_t every = (map.groups() + kPieces - 1) / kPieces;
  const int64_t piece = kSampleBytes / ((map.groups() + every - 1) / every);
  std::vector<rans::Histogram> seen(map.tables());
  std::vector<double> bytes(map.tables());
  for (int64_t g = 0; g < map.groups(); g += every)
    map.for_segments(g, g + 1, [&](const CodeMap::Segment& s) {
      const int64_t size = std::min(s.size, piece);
      bytes[s.table] += static_cast<double>(s.size);
      rans::count_bytes(payload + s.offset + (s.size - size) / 2, static_cast<size_t>(size),
                        seen[s.table]);
    });
  double saved = 0, all = 0;
  for (size_t t = 0; t < seen.size(); ++t) {
    saved += bytes[t] * (1 - rans::entropy(seen[t]) / 8);
    all += bytes[t];
  }
  return saved / all;
}

std::vector<rans::Histogram> count_planes(const uint8_t* payload, const CodeMap& map) {
  std::vector<rans::Histogram> all(map.tables());
  std::mutex mutex;
  parallel_for(0, map.block_count(), kGrain, [&](int64_t begin, int64_t end) {
    std::vector<rans::Histogram> mine(map.tables());
    const auto& blocks = map.blocks();
    map.for_segments(blocks[static_cast<size_t>(begin)].first,
                     blocks[static_cast<size_t>(end - 1)].last, [&](const CodeMap::Segment& s) {
                       rans::count_bytes(payload + s.offset, static_cast<size_t>(s.size),
                                         mine[s.table]);
                     });
    const std::lock_guard lock(mutex);  // sums of whole numbers: any order
    for (size_t t = 0; t < all.size(); ++t)
      for (size_t b = 0; b < 256; ++b) all[t][b] += mine[t][b];
  });
  return all;
}

}  // namespace frugal::compress::entropy
