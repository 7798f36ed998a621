#include "compress/entropy/entropy_kernels.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/parallel.h"

namespace frugal::compress::entropy {

namespace {

Tensor bytes_of(int64_t size, Category category) {
  const CategoryScope scope(category);
  return Tensor::empty({size}, DType::u8);
}

std::vector<rans::Histogram> count_planes(const uint8_t* payload, const CodeMap& map) {
  std::vector<rans::Histogram> all(map.tables());
  std::mutex mutex;
  parallel_for(0, map.block_count(), 1, [&](int64_t begin, int64_t end) {
    std::vector<rans::Counter> mine(map.tables());
    map.for_segments(begin, end, [&](const Segment& s) {
      mine[static_cast<size_t>(s.table)].add(payload + s.offset, static_cast<size_t>(s.size));
    });
    const std::lock_guard lock(mutex);  // sums of whole numbers: any order
    for (size_t t = 0; t < all.size(); ++t) mine[t].add_to(all[t]);
  });
  return all;
}

// How often each byte occurs, for each table. Nothing if a sample shows that coding would save a
// smaller share of the codes than min_saving.
std::vector<rans::Histogram> count(const uint8_t* payload, const CodeMap& map, double min_saving) {
  const Sample sample = sample_of(map);
  std::vector<rans::Histogram> seen(map.tables());
  {
    std::vector<rans::Counter> counters(map.tables());
    for (const Sample::Piece& piece : sample.pieces)
      counters[static_cast<size_t>(piece.table)].add(payload + piece.offset,
                                                     static_cast<size_t>(piece.size));
    for (size_t t = 0; t < seen.size(); ++t) counters[t].add_to(seen[t]);
  }
  if (saving(sample, seen) < min_saving) return {};
  return count_planes(payload, map);
}

void copy_metadata(const uint8_t* payload, const CodeMap& map, uint8_t* to) {
  for (const Place& place : map.places())
    std::memcpy(to + place.metadata, payload + place.offset,
                static_cast<size_t>(place.codes - place.offset));
}

// Moves the codes of all parts together, and returns where they begin. With more than one part this
// overwrites the metadata.
uint8_t* close_up(uint8_t* payload, const CodeMap& map) {
  const std::vector<Place>& places = map.places();
  uint8_t* const begin = payload + places.front().codes;
  for (size_t i = 1; i < places.size(); ++i) {
    const int64_t end = i + 1 < places.size() ? places[i + 1].at : map.code_bytes();
    std::memmove(begin + places[i].at, payload + places[i].codes,
                 static_cast<size_t>(end - places[i].at));
  }
  return begin;
}

// Replaces the codes of each block by its stream, which begins where the block began. Returns the
// lengths of the streams.
std::vector<int64_t> encode(uint8_t* codes, const CodeMap& map, const std::vector<Plan>& plans) {
  std::vector<std::optional<rans::EncodeTable>> tables;
  for (const Plan& plan : plans) {
    tables.emplace_back();
    if (plan.kind == Kind::coded) tables.back().emplace(plan.frequencies);
  }
  const std::vector<Block>& blocks = map.blocks();
  std::vector<int64_t> lengths(blocks.size());
  int64_t largest = 0;
  for (const Block& block : blocks) largest = std::max(largest, block.bytes);
  const auto room = static_cast<int64_t>(rans::stream_bound(static_cast<size_t>(largest)));
  parallel_for(0, map.block_count(), 1, [&](int64_t begin, int64_t end) {
    const Tensor scratch = bytes_of(room, Category::workspace);
    std::vector<Segment> segments;
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
      const Block& block = blocks[b];
      segments.clear();
      map.for_segments(block, [&](const Segment& s) { segments.push_back(s); });
      uint8_t* const until = scratch.mut<uint8_t>() + room;
      rans::Encoder encoder(until);
      int64_t raw = 0;
      for (size_t s = segments.size(); s-- > 0;) {
        const Segment& segment = segments[s];
        const auto table = static_cast<size_t>(segment.table);
        if (tables[table].has_value())
          encoder.put(codes + segment.at, static_cast<size_t>(segment.size), *tables[table]);
        if (plans[table].kind == Kind::raw) raw += segment.size;
      }
      const uint8_t* const stream = encoder.finish();
      lengths[b] = raw + (until - stream);
      if (lengths[b] >= block.bytes) {
        lengths[b] = block.bytes;
        continue;
      }
      // Moves the raw planes together. They only move to lower addresses.
      uint8_t* to = codes + block.at;
      for (const Segment& segment : segments) {
        if (plans[static_cast<size_t>(segment.table)].kind != Kind::raw) continue;
        std::memmove(to, codes + segment.at, static_cast<size_t>(segment.size));
        to += segment.size;
      }
      std::memcpy(to, stream, static_cast<size_t>(until - stream));
    }
  });
  return lengths;
}

int64_t end_of_stream(const uint8_t* ends, int64_t block) {
  int64_t end;
  std::memcpy(&end, ends + block * 8, 8);
  return end;
}

}  // namespace

Tensor encode_kernel(Cpu, const Tensor& plain, const CodeMap& map, double min_saving) {
  const std::vector<rans::Histogram> counted = count(plain.data<uint8_t>(), map, min_saving);
  if (counted.empty()) return {};
  const std::vector<Plan> plans = plans_of(map, counted, plain.nbytes(), min_saving);
  if (plans.empty()) return {};
  auto* const before = plain.mut<uint8_t>();
  const int64_t blocks = map.block_count(), ends = map.metadata_bytes();
  const int64_t streams = streams_at(map, plans);
  Tensor aside;
  const uint8_t* metadata = before;
  if (!map.is_one_part()) {
    aside = bytes_of(ends, Category::workspace);
    metadata = aside.data<uint8_t>();
    copy_metadata(before, map, aside.mut<uint8_t>());
  }
  uint8_t* const codes = close_up(before, map);
  const std::vector<int64_t> lengths = encode(codes, map, plans);
  const int64_t size = std::accumulate(lengths.begin(), lengths.end(), streams);
  Tensor payload = bytes_of(size, Category::packed);
  auto* to = payload.mut<uint8_t>();
  std::memcpy(to, metadata, static_cast<size_t>(ends));
  uint8_t* table = to + ends + blocks * 8;
  for (const Plan& plan : plans) table = write_table(plan, table);
  std::vector<int64_t> at(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), at.begin(), streams);
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
      std::memcpy(to + at[b], codes + map.blocks()[b].at, static_cast<size_t>(lengths[b]));
      const int64_t stream_end = at[b] + lengths[b];
      std::memcpy(to + ends + static_cast<int64_t>(b) * 8, &stream_end, 8);
    }
  });
  return payload;
}

void decode_kernel(Cpu, const Tensor& coded, const CodeMap& map, const Tensor& plain) {
  const auto* from = coded.data<uint8_t>();
  auto* to = plain.mut<uint8_t>();
  for (const Place& place : map.places())
    std::memcpy(to + place.offset, from + place.metadata,
                static_cast<size_t>(place.codes - place.offset));
  const uint8_t* const ends = from + map.metadata_bytes();
  const uint8_t* table = ends + map.block_count() * 8;
  std::vector<Plan> plans(map.tables());
  std::vector<std::optional<rans::DecodeTable>> tables(plans.size());
  for (size_t t = 0; t < plans.size(); ++t) {
    table = read_table(table, plans[t]);
    if (plans[t].kind == Kind::coded) tables[t].emplace(plans[t].frequencies);
  }
  const int64_t streams = table - from;
  parallel_for(0, map.block_count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Block& block = map.blocks()[static_cast<size_t>(b)];
      const int64_t at = b == 0 ? streams : end_of_stream(ends, b - 1);
      const int64_t stream_end = end_of_stream(ends, b);
      const uint8_t* raw = from + at;
      if (stream_end - at == block.bytes) {
        map.for_segments(block, [&](const Segment& s) {
          std::memcpy(to + s.offset, raw + (s.at - block.at), static_cast<size_t>(s.size));
        });
        continue;
      }
      int64_t raw_bytes = 0;
      map.for_segments(block, [&](const Segment& s) {
        if (plans[static_cast<size_t>(s.table)].kind == Kind::raw) raw_bytes += s.size;
      });
      rans::Decoder decoder(raw + raw_bytes, from + stream_end);
      map.for_segments(block, [&](const Segment& s) {
        uint8_t* const out = to + s.offset;
        const auto size = static_cast<size_t>(s.size), t = static_cast<size_t>(s.table);
        switch (plans[t].kind) {
          case Kind::raw:
            std::memcpy(out, raw, size);
            raw += size;
            break;
          case Kind::constant:
            std::memset(out, plans[t].byte, size);
            break;
          case Kind::coded:
            decoder.get(out, size, *tables[t]);
            break;
        }
      });
    }
  });
}

}  // namespace frugal::compress::entropy
