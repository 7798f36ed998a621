#include "compress/entropy.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "compress/entropy_plan.h"
#include "compress/rans.h"
#include "core/parallel.h"

namespace frugal::compress {

using namespace entropy;

namespace {

Tensor bytes_of(int64_t size, Category category, Device device = kCpu) {
  CategoryScope scope(category);
  return Tensor::empty({size}, DType::u8, device);
}

// Replaces the codes of each block by its stream, at its beginning. Returns their lengths.
std::vector<int64_t> encode(uint8_t* codes, const CodeMap& map, const std::vector<Plan>& plans) {
  std::vector<std::optional<rans::EncodeTable>> tables;
  for (const Plan& plan : plans) {
    tables.emplace_back();
    if (plan.kind == Kind::coded) tables.back().emplace(plan.frequencies);
  }
  const std::vector<CodeMap::Block>& blocks = map.blocks();
  std::vector<int64_t> lengths(blocks.size());
  int64_t largest = 0;
  for (const CodeMap::Block& block : blocks) largest = std::max(largest, block.bytes);
  const auto room = static_cast<int64_t>(rans::stream_bound(static_cast<size_t>(largest)));
  parallel_for(0, map.block_count(), kGrain, [&](int64_t begin, int64_t end) {
    const Tensor scratch = bytes_of(room, Category::workspace);
    std::vector<CodeMap::Segment> segments;
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
      const CodeMap::Block& block = blocks[b];
      segments.clear();
      map.for_segments(block.first, block.last,
                       [&](const CodeMap::Segment& s) { segments.push_back(s); });
      uint8_t* const until = scratch.mut<uint8_t>() + room;
      rans::Encoder encoder(until);
      int64_t raw = 0;
      for (size_t s = segments.size(); s-- > 0;) {
        const CodeMap::Segment& segment = segments[s];
        if (tables[segment.table].has_value())
          encoder.put(codes + segment.at, static_cast<size_t>(segment.size),
                      *tables[segment.table]);
        if (plans[segment.table].kind == Kind::raw) raw += segment.size;
      }
      const uint8_t* const stream = encoder.finish();
      lengths[b] = raw + (until - stream);
      if (lengths[b] >= block.bytes) {
        lengths[b] = block.bytes;
        continue;
      }
      // Raw planes close up: they only move down.
      uint8_t* to = codes + block.at;
      for (const CodeMap::Segment& segment : segments) {
        if (plans[segment.table].kind != Kind::raw) continue;
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

Entropy::Entropy(std::shared_ptr<const Codec> inner, const EntropyOptions& options)
    : inner_(std::move(inner)), options_(options) {
  FRUGAL_CHECK(inner_ != nullptr, "[entropy] expected an inner codec, got none");
  FRUGAL_CHECK(options.min_saving < 1, "[entropy] expected min_saving below 1, got {}",
               options.min_saving);
}

std::unique_ptr<Packed> Entropy::pack(const Tensor& tensor, const SaveInfo& info) const {
  return entropy_code(inner_->pack(tensor, info), options_);
}

int64_t coded_bytes(const Packed& packed) {
  if (const auto* coded = dynamic_cast<const EntropyCoded*>(&packed))
    return coded->payload().nbytes();
  const auto* plain = dynamic_cast<const Grouped*>(&packed);
  return plain != nullptr ? plain->payload().nbytes() : 0;
}

std::unique_ptr<Packed> coded_as(std::unique_ptr<Packed> packed, int64_t bytes,
                                 const EntropyOptions& options) {
  auto* const plain = dynamic_cast<Grouped*>(packed.get());
  if (plain == nullptr || plain->payload().device() != kMeta) return packed;
  const int64_t all = plain->payload().nbytes();
  if (all == 0 || all < options.min_bytes) return packed;
  Tensor payload = bytes_of(bytes, Category::packed, kMeta);
  packed.release();
  return std::make_unique<EntropyCoded>(std::move(payload), std::unique_ptr<Grouped>(plain));
}

namespace {

Tensor moved(const Tensor& payload, Device device, Category category) {
  const CategoryScope scope(category);
  return to_device(payload, device);
}

// The same with the payload on the host meanwhile.
std::unique_ptr<Packed> coded_there(std::unique_ptr<Packed> packed, Grouped& plain,
                                    const EntropyOptions& options) {
  const Tensor there = plain.take_payload();
  plain.put_payload(moved(there, kCpu, Category::workspace));
  packed = entropy_code(std::move(packed), options);
  auto& result = static_cast<Movable&>(*packed);
  if (packed.get() == &plain) {
    result.put_payload(there);
  } else {
    result.put_payload(moved(result.take_payload(), there.device(), Category::packed));
  }
  return packed;
}

}  // namespace

std::unique_ptr<Packed> entropy_code(std::unique_ptr<Packed> packed,
                                     const EntropyOptions& options) {
  auto* const plain = dynamic_cast<Grouped*>(packed.get());
  if (plain == nullptr || plain->payload().device() == kMeta) return packed;
  if (plain->payload().device() != kCpu) return coded_there(std::move(packed), *plain, options);
  const int64_t bytes = plain->payload().nbytes();
  if (bytes == 0 || bytes < options.min_bytes) return packed;
  const CodeMap map(plain->parts());
  auto* const before = plain->payload().mut<uint8_t>();
  if (estimate(before, map) < options.min_saving) return packed;

  std::vector<Plan> plans;
  const int64_t blocks = map.block_count(), ends = map.metadata_bytes();
  int64_t streams = ends + blocks * 8;  // where they begin
  double predicted = static_cast<double>(blocks * rans::kStates * 4);
  for (const rans::Histogram& histogram : count_planes(before, map)) {
    plans.push_back(plan_of(histogram));
    streams += plans.back().table_bytes();
    predicted += plans.back().bits / 8;
  }
  predicted += static_cast<double>(streams);
  if (predicted > (1 - options.min_saving) * static_cast<double>(bytes)) return packed;

  Tensor aside;
  const uint8_t* metadata = before;
  if (!map.is_one_part()) {
    aside = bytes_of(ends, Category::workspace);
    metadata = aside.data<uint8_t>();
    map.copy_metadata(before, aside.mut<uint8_t>());
  }
  uint8_t* const codes = map.close_up(before);
  const std::vector<int64_t> lengths = encode(codes, map, plans);
  const int64_t size = std::accumulate(lengths.begin(), lengths.end(), streams);
  const Tensor payload = bytes_of(size + static_cast<int64_t>(rans::kReadBeyond), Category::packed);
  auto* to = payload.mut<uint8_t>();
  std::memcpy(to, metadata, static_cast<size_t>(ends));
  uint8_t* table = to + ends + blocks * 8;
  for (const Plan& plan : plans) table = write_table(plan, table);
  int64_t at = streams;
  for (size_t b = 0; b < lengths.size(); ++b) {
    std::memcpy(to + at, codes + map.blocks()[b].at, static_cast<size_t>(lengths[b]));
    at += lengths[b];
    std::memcpy(to + ends + static_cast<int64_t>(b) * 8, &at, 8);
  }
  std::memset(to + at, 0, rans::kReadBeyond);
  packed.release();
  return std::make_unique<EntropyCoded>(payload, std::unique_ptr<Grouped>(plain));
}

EntropyCoded::EntropyCoded(Tensor payload, std::unique_ptr<Grouped> plain)
    : payload_(std::move(payload)), plain_(std::move(plain)), bytes_(plain_->payload().nbytes()) {
  plain_->take_payload();
}

const Grouped& EntropyCoded::decoded() const {
  if (decoded_) return *plain_;
  const Device device = payload_.device();
  Tensor plain = bytes_of(bytes_, Category::workspace, device == kMeta ? kMeta : kCpu);
  if (device == kMeta) {
    plain_->put_payload(std::move(plain));
    decoded_ = true;
    return *plain_;
  }
  const Tensor coded = moved(payload_, kCpu, Category::workspace);
  const CodeMap map(plain_->parts());
  const auto* from = coded.data<uint8_t>();
  auto* to = plain.mut<uint8_t>();
  map.put_metadata(from, to);
  const uint8_t* const ends = from + map.metadata_bytes();
  const uint8_t* table = ends + map.block_count() * 8;
  std::vector<Plan> plans(map.tables());
  std::vector<std::optional<rans::DecodeTable>> tables(plans.size());
  for (size_t t = 0; t < plans.size(); ++t) {
    table = read_table(table, plans[t]);
    if (plans[t].kind == Kind::coded) tables[t].emplace(plans[t].frequencies);
  }
  const int64_t streams = table - from;
  parallel_for(0, map.block_count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const CodeMap::Block& block = map.blocks()[static_cast<size_t>(b)];
      const int64_t at = b == 0 ? streams : end_of_stream(ends, b - 1);
      const uint8_t* raw = from + at;
      if (end_of_stream(ends, b) - at == block.bytes) {
        map.for_segments(block.first, block.last, [&](const CodeMap::Segment& s) {
          std::memcpy(to + s.offset, raw + (s.at - block.at), static_cast<size_t>(s.size));
        });
        continue;
      }
      int64_t raw_bytes = 0;
      map.for_segments(block.first, block.last, [&](const CodeMap::Segment& s) {
        if (plans[s.table].kind == Kind::raw) raw_bytes += s.size;
      });
      rans::Decoder decoder(raw + raw_bytes);
      map.for_segments(block.first, block.last, [&](const CodeMap::Segment& s) {
        uint8_t* const out = to + s.offset;
        const auto size = static_cast<size_t>(s.size);
        switch (plans[s.table].kind) {
          case Kind::raw:
            std::memcpy(out, raw, size);
            raw += size;
            break;
          case Kind::constant:
            std::memset(out, plans[s.table].byte, size);
            break;
          case Kind::coded:
            decoder.get(out, size, *tables[s.table]);
            break;
        }
      });
    }
  });
  plain_->put_payload(moved(plain, device, Category::workspace));
  decoded_ = true;
  return *plain_;
}

Tensor EntropyCoded::unpack() const { return decoded().unpack(); }
Tensor EntropyCoded::unpack_rows(int64_t begin, int64_t end) const {
  return decoded().unpack_rows(begin, end);
}
Tensor EntropyCoded::unpack_sign() const { return decoded().unpack_sign(); }
Tensor EntropyCoded::unpack_sign_rows(int64_t begin, int64_t end) const {
  return decoded().unpack_sign_rows(begin, end);
}
Tensor EntropyCoded::unpack_affine_rows(int64_t begin, int64_t end, const Tensor& affine) const {
  return decoded().unpack_affine_rows(begin, end, affine);
}

// The variance is in the metadata alone, which lies where it does in a plain payload of one part.
Tensor EntropyCoded::unpack_variance() const {
  if (!knows_variance()) return {};
  if (decoded_ || plain_->parts().size() > 1) return decoded().unpack_variance();
  plain_->put_payload(payload_);
  Tensor variance = plain_->unpack_variance();
  plain_->take_payload();
  return variance;
}

}  // namespace frugal::compress
