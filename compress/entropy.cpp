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

Tensor bytes_of(int64_t size, Category category) {
  CategoryScope scope(category);
  return Tensor::empty({size}, DType::u8, kCpu);
}

// Replaces the codes of each block by its stream, at its beginning. Returns their lengths.
std::vector<int64_t> encode(uint8_t* payload, const GroupLayout& layout,
                            const std::vector<Plan>& plans) {
  std::vector<std::optional<rans::EncodeTable>> tables;
  for (const Plan& plan : plans) {
    tables.emplace_back();
    if (plan.kind == Kind::coded) tables.back().emplace(plan.frequencies);
  }
  std::vector<int64_t> lengths(static_cast<size_t>(blocks_of(layout)));
  const auto room =
      static_cast<int64_t>(rans::stream_bound(static_cast<size_t>(block_at(layout, 0).bytes)));
  parallel_for(0, blocks_of(layout), kGrain, [&](int64_t begin, int64_t end) {
    const Tensor scratch = bytes_of(room, Category::workspace);
    std::vector<Segment> segments;
    for (int64_t b = begin; b < end; ++b) {
      const Block block = block_at(layout, b);
      segments.clear();
      for_segments(layout, block.first, block.last,
                   [&](const Segment& s) { segments.push_back(s); });
      uint8_t* const until = scratch.mut<uint8_t>() + room;
      rans::Encoder encoder(until);
      int64_t raw = 0;
      for (size_t s = segments.size(); s-- > 0;) {
        const Segment& segment = segments[s];
        if (tables[segment.plane].has_value())
          encoder.put(payload + segment.offset, static_cast<size_t>(segment.size),
                      *tables[segment.plane]);
        if (plans[segment.plane].kind == Kind::raw) raw += segment.size;
      }
      const uint8_t* const stream = encoder.finish();
      int64_t& length = lengths[static_cast<size_t>(b)];
      length = raw + (until - stream);
      if (length >= block.bytes) {
        length = block.bytes;
        continue;
      }
      // Raw planes close up: they only move down.
      uint8_t* to = payload + block.offset;
      for (const Segment& segment : segments) {
        if (plans[segment.plane].kind != Kind::raw) continue;
        std::memmove(to, payload + segment.offset, static_cast<size_t>(segment.size));
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
  std::unique_ptr<Packed> packed = inner_->pack(tensor, info);
  const auto* plain = dynamic_cast<const Quantized*>(packed.get());
  if (plain == nullptr || plain->payload().device() != kCpu) return packed;
  const GroupLayout& layout = plain->layout();
  const int64_t bytes = layout.bytes();
  if (bytes == 0 || bytes < options_.min_bytes) return packed;
  auto* codes = plain->payload().mut<uint8_t>();
  if (estimate(codes, layout) < options_.min_saving) return packed;

  const Histograms histograms = count_planes(codes, layout);
  std::vector<Plan> plans;
  const int64_t blocks = blocks_of(layout), ends = layout.meta_offset(layout.groups);
  int64_t streams = ends + blocks * 8;  // where they begin
  double predicted = static_cast<double>(blocks * rans::kStates * 4);
  for (int p = 0; p < planes_of(layout.bits).count; ++p) {
    plans.push_back(plan_of(histograms[static_cast<size_t>(p)]));
    streams += plans.back().table_bytes();
    predicted += plans.back().bits / 8;
  }
  predicted += static_cast<double>(streams);
  if (predicted > (1 - options_.min_saving) * static_cast<double>(bytes)) return packed;

  const std::vector<int64_t> lengths = encode(codes, layout, plans);
  const int64_t size = std::accumulate(lengths.begin(), lengths.end(), streams);
  const Tensor payload = bytes_of(size + static_cast<int64_t>(rans::kReadBeyond), Category::packed);
  auto* to = payload.mut<uint8_t>();
  std::memcpy(to, codes, static_cast<size_t>(ends));
  uint8_t* table = to + ends + blocks * 8;
  for (const Plan& plan : plans) table = write_table(plan, table);
  int64_t at = streams;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    std::memcpy(to + at, codes + block_at(layout, b).offset, static_cast<size_t>(length));
    at += length;
    std::memcpy(to + ends + b * 8, &at, 8);
  }
  std::memset(to + at, 0, rans::kReadBeyond);
  return std::make_unique<EntropyCoded>(payload, *plain);
}

EntropyCoded::EntropyCoded(Tensor payload, const Quantized& quantized)
    : payload_(std::move(payload)), plain_(quantized.with_payload({})) {}

const Quantized& EntropyCoded::decoded() const {
  if (decoded_ != nullptr) return *decoded_;
  const GroupLayout& layout = plain_.layout();
  const Tensor plain = bytes_of(layout.bytes(), Category::workspace);
  const auto* from = payload_.data<uint8_t>();
  auto* to = plain.mut<uint8_t>();
  const int64_t metadata = layout.meta_offset(layout.groups);
  std::memcpy(to, from, static_cast<size_t>(metadata));
  const uint8_t* const ends = from + metadata;
  const uint8_t* table = ends + blocks_of(layout) * 8;
  std::array<Plan, 4> plans;
  std::vector<std::optional<rans::DecodeTable>> tables(plans.size());
  for (size_t p = 0; p < static_cast<size_t>(planes_of(layout.bits).count); ++p) {
    table = read_table(table, plans[p]);
    if (plans[p].kind == Kind::coded) tables[p].emplace(plans[p].frequencies);
  }
  const int64_t streams = table - from;
  parallel_for(0, blocks_of(layout), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Block block = block_at(layout, b);
      const int64_t at = b == 0 ? streams : end_of_stream(ends, b - 1);
      if (end_of_stream(ends, b) - at == block.bytes) {
        std::memcpy(to + block.offset, from + at, static_cast<size_t>(block.bytes));
        continue;
      }
      const uint8_t* raw = from + at;
      int64_t raw_bytes = 0;
      for_segments(layout, block.first, block.last, [&](const Segment& s) {
        if (plans[s.plane].kind == Kind::raw) raw_bytes += s.size;
      });
      rans::Decoder decoder(raw + raw_bytes);
      for_segments(layout, block.first, block.last, [&](const Segment& s) {
        uint8_t* const out = to + s.offset;
        const auto size = static_cast<size_t>(s.size);
        switch (plans[s.plane].kind) {
          case Kind::raw:
            std::memcpy(out, raw, size);
            raw += size;
            break;
          case Kind::constant:
            std::memset(out, plans[s.plane].byte, size);
            break;
          case Kind::coded:
            decoder.get(out, size, *tables[s.plane]);
            break;
        }
      });
    }
  });
  decoded_ = std::make_unique<Quantized>(plain_.with_payload(plain));
  return *decoded_;
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

// The variance is in the metadata alone, which lies where it does in a plain payload.
Tensor EntropyCoded::unpack_variance() const {
  return plain_.with_payload(payload_).unpack_variance();
}

}  // namespace frugal::compress
