#include "compress/entropy/entropy_kernels.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/parallel.h"

namespace frugal::compress::entropy {

namespace {

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

// A stream of a block while it is made.
struct BlockStream {
  std::vector<Segment> segments;
  std::vector<rans::EncodeSegment> coded;  // the coded planes, the last one first
  uint8_t* until = nullptr;                // the end of the buffer
};

// Replaces the codes of the block by its raw planes and its stream, and returns their length.
int64_t replace(uint8_t* codes, const Block& block, const std::vector<Plan>& plans,
                const BlockStream& made, const uint8_t* stream) {
  const auto is_raw = [&](const Segment& segment) {
    return plans[static_cast<size_t>(segment.table)].kind == Kind::raw;
  };
  int64_t length = made.until - stream;
  for (const Segment& segment : made.segments)
    if (is_raw(segment)) length += segment.size;
  if (length >= block.bytes) return block.bytes;
  // Moves the raw planes together. They only move to lower addresses.
  uint8_t* to = codes + block.at;
  for (const Segment& segment : made.segments) {
    if (!is_raw(segment)) continue;
    std::memmove(to, codes + segment.at, static_cast<size_t>(segment.size));
    to += segment.size;
  }
  std::memcpy(to, stream, static_cast<size_t>(made.until - stream));
  return length;
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
    const Tensor scratch =
        byte_tensor(room * std::min<int64_t>(end - begin, 2), Category::workspace);
    BlockStream a, b;
    a.until = scratch.mut<uint8_t>() + room;
    b.until = a.until + room;
    const auto start = [&](const Block& block, BlockStream& made) {
      made.segments.clear();
      map.for_segments(block, [&](const Segment& s) { made.segments.push_back(s); });
      made.coded.clear();
      for (size_t s = made.segments.size(); s-- > 0;) {
        const Segment& segment = made.segments[s];
        const auto& table = tables[static_cast<size_t>(segment.table)];
        if (table.has_value())
          made.coded.push_back({codes + segment.at, static_cast<size_t>(segment.size), &*table});
      }
    };
    auto i = static_cast<size_t>(begin);
    for (; i + 1 < static_cast<size_t>(end); i += 2) {
      start(blocks[i], a), start(blocks[i + 1], b);
      rans::Encoder first(a.until), second(b.until);
      rans::Encoder::put_two(first, a.coded, second, b.coded);
      lengths[i] = replace(codes, blocks[i], plans, a, first.finish());
      lengths[i + 1] = replace(codes, blocks[i + 1], plans, b, second.finish());
    }
    if (i < static_cast<size_t>(end)) {
      start(blocks[i], a);
      rans::Encoder encoder(a.until);
      for (const rans::EncodeSegment& s : a.coded) encoder.put(s.bytes, s.size, *s.table);
      lengths[i] = replace(codes, blocks[i], plans, a, encoder.finish());
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
    aside = byte_tensor(ends, Category::workspace);
    metadata = aside.data<uint8_t>();
    copy_metadata(before, map, aside.mut<uint8_t>());
  }
  uint8_t* const codes = close_up(before, map);
  const std::vector<int64_t> lengths = encode(codes, map, plans);
  const int64_t size = std::accumulate(lengths.begin(), lengths.end(), streams);
  Tensor payload = byte_tensor(size, Category::packed);
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
    // Writes all but the coded planes of a block, and begins to decode these.
    const auto start = [&](int64_t b, std::optional<rans::Decoder>& decoder,
                           std::vector<rans::DecodeSegment>& segments) {
      const Block& block = map.blocks()[static_cast<size_t>(b)];
      const int64_t at = b == 0 ? streams : end_of_stream(ends, b - 1);
      const int64_t stream_end = end_of_stream(ends, b);
      const uint8_t* raw = from + at;
      segments.clear();
      if (stream_end - at == block.bytes) {
        map.for_segments(block, [&](const Segment& s) {
          std::memcpy(to + s.offset, raw + (s.at - block.at), static_cast<size_t>(s.size));
        });
        raw = from + stream_end;
      } else {
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
              segments.push_back({out, size, &*tables[t]});
              break;
          }
        });
      }
      decoder.emplace(raw, from + stream_end);
    };
    std::optional<rans::Decoder> first, second;
    std::vector<rans::DecodeSegment> a, b;
    int64_t i = begin;
    for (; i + 1 < end; i += 2) {
      start(i, first, a), start(i + 1, second, b);
      rans::Decoder::get_two(*first, a, *second, b);
    }
    if (i < end) {
      start(i, first, a);
      for (const rans::DecodeSegment& s : a) first->get(s.bytes, s.size, *s.table);
    }
  });
}

}  // namespace frugal::compress::entropy
