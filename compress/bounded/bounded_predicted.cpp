#include "compress/bounded/bounded_predicted.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>

#include "compress/bounded/bounded_channels.h"
#include "compress/bounded/predicted_kernels.h"
#include "compress/entropy/entropy_plan.h"
#include "compress/entropy/rans.h"
#include "core/parallel.h"

namespace frugal::compress {

// A namespace of its own, because other codecs give the same names to parts of theirs.
namespace predicted {

using namespace bounded;

namespace {

constexpr int64_t kChunk = 131072;     // elements of a chunk, about
constexpr int64_t kMostTogether = 32;  // items of a chunk
constexpr int64_t kSamplePixels = 1024;
constexpr size_t kMostClasses = 16;
constexpr int64_t kClassElements = 32768;           // elements for each table, so that tables pay
constexpr double kWeightBits = 24, kMeanBits = 32;  // what they take for a channel
constexpr double kOctaves = 1;                      // between the residuals of a class
constexpr double kMostInPhases = 3;  // the largest deviation of residuals with phases, in codes
constexpr uint8_t kConstant = 254, kKept = 255;  // instead of a class

// The pixels of a tensor. An item is a run of rows of pixels, an image where that is small enough.
// The last item may be short. A chunk is `together` items; the last chunk may have fewer.
struct Grid {
  explicit Grid(const Shape& shape) {
    const int64_t numel = shape.numel();
    channels = shape.dim() == 0 ? 1 : std::max<int64_t>(shape.back(), 1);
    all = numel / channels;
    if (shape.dim() == 4 && shape[1] * shape[2] > 1) {
      width = shape[2];
      const int64_t most = std::clamp<int64_t>(kChunk / (width * channels),
                                               std::min<int64_t>(shape[1], 8), shape[1]);
      const int64_t strips = (shape[1] + most - 1) / most;
      height = (shape[1] + strips - 1) / strips;
    } else {
      // Runs of at most 64 rows, so that the last one is hardly shorter than the others.
      const int64_t runs = std::max<int64_t>((all + 63) / 64, 1);
      width = std::max<int64_t>((all + runs - 1) / runs, 1);
    }
    items = (all + pixels() - 1) / pixels();
    const int64_t most = std::clamp<int64_t>(kChunk / (pixels() * channels), 1, kMostTogether);
    while (together * 2 <= std::min(most, items)) together *= 2;
    chunks = (items + together - 1) / together;
  }
  int64_t pixels() const { return height * width; }
  int64_t items_in(int64_t chunk) const { return std::min(together, items - chunk * together); }
  // The first pixel of an item, and one after its last.
  int64_t first(int64_t item) const { return item * pixels(); }
  int64_t last(int64_t item) const { return std::min(all, (item + 1) * pixels()); }
  int64_t all = 0, channels = 1, height = 1, width = 1, items = 0, together = 1, chunks = 0;
};

struct Channel {
  float step = 0;  // the value, if the channel is constant
  int32_t mean = 0;
  int8_t left = 0, up = 0, corner = 0;
  uint8_t kind = kConstant;
  bool coded() const { return kind < kConstant; }
};
// Channels on bytes: one member of all channels after the other, or once if it is alike in all.
class ChannelBytes {
 public:
  explicit ChannelBytes(const std::vector<Channel>& channels) {
    put(channels, &Channel::kind);
    put(channels, &Channel::step);
    put(channels, &Channel::mean);
    put(channels, &Channel::left);
    put(channels, &Channel::up);
    put(channels, &Channel::corner);
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

  // Returns where the bytes end.
  static const uint8_t* read(const uint8_t* from, std::vector<Channel>& channels) {
    from = get(from, channels, &Channel::kind);
    from = get(from, channels, &Channel::step);
    from = get(from, channels, &Channel::mean);
    from = get(from, channels, &Channel::left);
    from = get(from, channels, &Channel::up);
    return get(from, channels, &Channel::corner);
  }

 private:
  template <class T>
  void put(const std::vector<Channel>& channels, T Channel::*member) {
    const bool alike = std::all_of(channels.begin(), channels.end(), [&](const Channel& each) {
      return each.*member == channels[0].*member;
    });
    bytes_.push_back(alike ? 1 : 0);
    for (size_t c = 0; c < (alike ? 1 : channels.size()); ++c) {
      const T value = channels[c].*member;
      const size_t at = bytes_.size();
      bytes_.resize(at + sizeof value);
      std::memcpy(bytes_.data() + at, &value, sizeof value);
    }
  }
  template <class T>
  static const uint8_t* get(const uint8_t* from, std::vector<Channel>& channels,
                            T Channel::*member) {
    const bool alike = *from++ != 0;
    for (Channel& channel : channels) {
      std::memcpy(&(channel.*member), from, sizeof(T));
      if (!alike) from += sizeof(T);
    }
    return alike ? from + sizeof(T) : from;
  }
  std::vector<uint8_t> bytes_;
};

// The channels in the order in which they are coded: class by class.
struct Order {
  struct Class {
    int64_t first = 0, count = 0;  // in `channel`
    int shift = kPhases;
  };
  Order(std::span<const Channel> channels, std::span<const int> shifts) {
    for (size_t k = 0; k < shifts.size(); ++k) {
      const auto first = static_cast<int64_t>(channel.size());
      for (size_t c = 0; c < channels.size(); ++c)
        if (channels[c].kind == k) channel.push_back(static_cast<int32_t>(c));
      classes.push_back({first, static_cast<int64_t>(channel.size()) - first, shifts[k]});
    }
    for (size_t c = 0; c < channels.size(); ++c) {
      if (channels[c].kind == kKept) kept.push_back(static_cast<int32_t>(c));
      if (channels[c].kind == kConstant) constant.push_back(static_cast<int32_t>(c));
    }
    in_order = std::is_sorted(channel.begin(), channel.end()) && channel.size() == channels.size();
  }
  std::vector<int32_t> channel, kept, constant;
  std::vector<Class> classes;
  bool in_order = false;  // all channels are coded, as they lie
};

// Where the values of a pixel lie in chunks of `items` items: class by class, item by item.
struct Layout {
  struct Run {
    int64_t begin = 0, end = 0;  // lanes
    int shift = kPhases;
    int64_t symbols = 0;  // where the symbols of its pixels begin, [pixels][size]
    int64_t size() const { return end - begin; }
  };
  Layout(std::span<const Channel> channels, const Order& order, int64_t number, int64_t pixels)
      : items(number) {
    for (const Order::Class& each : order.classes) {
      runs.push_back({each.first * items, (each.first + each.count) * items, each.shift, room});
      room += pixels * each.count * items + kSpare;
      low_bytes += std::max(each.shift, 0) * each.count * items;
      for (int64_t g = 0; g < items; ++g)
        for (int64_t i = each.first; i < each.first + each.count; ++i)
          add(channels[static_cast<size_t>(order.channel[static_cast<size_t>(i)])]);
    }
    count = static_cast<int64_t>(lanes.step.size());
    for (int64_t i = 0; i < kSpare; ++i) add({});
    stride = count + kSpare;
  }
  int64_t items, count = 0, stride = 0;  // lanes
  int64_t low_bytes = 0;                 // for 8 pixels
  int64_t room = 0;                      // for symbols
  std::vector<Run> runs;
  PredictLanes lanes;

 private:
  void add(const Channel& channel) {
    lanes.step.push_back(channel.step);
    lanes.inverse.push_back(channel.step > 0 ? 1 / channel.step : 0);
    const int32_t start = channel.mean >> 4;
    lanes.start.push_back(static_cast<float>(start));
    lanes.fraction.push_back(static_cast<int16_t>(channel.mean - 16 * start));
    lanes.left.push_back(static_cast<int16_t>(channel.left * 256));
    lanes.up.push_back(static_cast<int16_t>(channel.up * 256));
    lanes.corner.push_back(static_cast<int16_t>(channel.corner * 256));
  }
};

// What all chunks of a tensor share.
struct Format {
  Format(const Grid& of, std::vector<Channel> channel_list, std::vector<int> shift_list)
      : grid(of),
        channels(std::move(channel_list)),
        shifts(std::move(shift_list)),
        order(channels, shifts),
        whole(channels, order, grid.together, grid.pixels()),
        rest(channels, order, std::max<int64_t>(grid.items_in(grid.chunks - 1), 0), grid.pixels()) {
  }
  const Layout& layout(int64_t chunk) const {
    return grid.items_in(chunk) == grid.together ? whole : rest;
  }
  int64_t kept_bytes(int64_t chunk) const {
    const int64_t first = chunk * grid.together;
    const int64_t pixels = grid.last(first + grid.items_in(chunk) - 1) - grid.first(first);
    return 4 * pixels * static_cast<int64_t>(order.kept.size());
  }
  int64_t low_bytes(int64_t chunk) const {
    return (grid.pixels() + 7) / 8 * layout(chunk).low_bytes;
  }
  Grid grid;
  std::vector<Channel> channels;
  std::vector<int> shifts;
  Order order;
  Layout whole, rest;
};

// How values are rounded.
struct Dither {
  CodeStream stream;
  bool drawn = false;                                      // else u is 1/2
  float offset() const { return drawn ? 0x1p-9f : 0.0f; }  // u = byte / 256 + offset
  void bytes(const Format& format, int64_t chunk, uint8_t* to) const {
    const Grid& grid = format.grid;
    const Layout& layout = format.layout(chunk);
    if (!drawn) {
      std::memset(to, 128, static_cast<size_t>(grid.pixels() * layout.stride));
      return;
    }
    for (const Order::Class& each : format.order.classes)
      for (int64_t g = 0; g < layout.items; ++g)
        dither_bytes(stream, grid.first(chunk * grid.together + g), grid.pixels(),
                     (each.first + 1) / 2 * 2, each.count, layout.stride,
                     to + each.first * layout.items + g * each.count);
  }
};

// The places of two rows of pixels, from which the next ones are predicted.
class Places {
 public:
  Places(const Layout& layout, int64_t width)
      : stride_(layout.stride),
        width_(width),
        at_(static_cast<size_t>((2 * width + 1) * layout.stride)) {}
  int16_t* place(int64_t row, int64_t column) {
    return at_.data() + (1 + row % 2 * width_ + column) * stride_;
  }
  Neighbours of(int64_t row, int64_t column) {
    const int16_t* const none = at_.data();  // the mean
    return {column > 0 ? place(row, column - 1) : none, row > 0 ? place(row - 1, column) : none,
            row > 0 && column > 0 ? place(row - 1, column - 1) : none};
  }

 private:
  int64_t stride_, width_;
  std::vector<int16_t> at_;
};

// The symbols of a chunk before they are coded.
struct Symbols {
  uint8_t* bytes;  // for each run [pixels][size]
  uint16_t* low;   // for each run [pixels][size]; null: no residual has low bits
  std::vector<int32_t> large;
};

void stage(const float* x, const Format& format, const Layout& layout, int64_t chunk, int64_t pixel,
           float* lanes) {
  const Grid& grid = format.grid;
  const auto channels = static_cast<size_t>(grid.channels);
  for (int64_t g = 0; g < layout.items; ++g) {
    const int64_t at = grid.first(chunk * grid.together + g) + pixel;
    const float* const from = x + at * grid.channels;
    if (format.order.in_order && format.order.classes.size() == 1 && at < grid.all) {
      std::memcpy(lanes + static_cast<size_t>(g) * channels, from, channels * 4);
      continue;
    }
    for (const Order::Class& each : format.order.classes) {
      float* const to = lanes + each.first * layout.items + g * each.count;
      const int32_t* const channel = format.order.channel.data() + each.first;
      for (int64_t i = 0; i < each.count; ++i) {
        const Channel& of = format.channels[static_cast<size_t>(channel[i])];
        to[i] = at < grid.all ? from[channel[i]]
                              : static_cast<float>(of.mean + 8) / 16 * of.step;  // costs few bits
      }
    }
  }
}

void make_symbols(const float* x, const Format& format, int64_t chunk, const Dither& dither,
                  uint8_t* random, Symbols& symbols) {
  const Layout& layout = format.layout(chunk);
  const Grid& grid = format.grid;
  dither.bytes(format, chunk, random);
  Places places(layout, grid.width);
  std::vector<float> values(static_cast<size_t>(layout.stride), 0.0f);
  for (int64_t h = 0; h < grid.height; ++h)
    for (int64_t w = 0; w < grid.width; ++w) {
      const int64_t pixel = h * grid.width + w, at = pixel * layout.stride;
      stage(x, format, layout, chunk, pixel, values.data());
      int16_t* const place = places.place(h, w);
      for (const Layout::Run& run : layout.runs) {
        const PixelLanes lanes{layout.lanes, places.of(h, w), random + at, dither.offset(),
                               run.shift,    run.begin,       run.end};
        const int64_t to = run.symbols + pixel * run.size();
        uint8_t* const bytes = symbols.bytes + to;
        if (!code_lanes(lanes, values.data(), place, bytes,
                        symbols.low == nullptr ? nullptr : symbols.low + to))
          continue;
        const int mask = run.shift < 0 ? (1 << kResidualBits) - 1 : 255;
        for (int64_t j = run.begin; j < run.end; ++j)
          if ((bytes[j - run.begin] & mask) == 0)
            symbols.large.push_back(code_of(values[static_cast<size_t>(j)], lanes, j));
      }
    }
}

// The low bits of the residuals of a chunk as planes, [8 pixels][run].
void pack_low(const Format& format, int64_t chunk, const uint16_t* low, uint8_t* to) {
  const Layout& layout = format.layout(chunk);
  std::vector<uint32_t> codes(static_cast<size_t>(8 * layout.count));
  for (int64_t first = 0; first < format.grid.pixels(); first += 8)
    for (const Layout::Run& run : layout.runs) {
      if (run.shift <= 0) continue;
      const int64_t n = run.size();
      std::fill(codes.begin(), codes.end(), 0u);
      for (int64_t r = 0; r < std::min<int64_t>(8, format.grid.pixels() - first); ++r)
        std::copy_n(low + run.symbols + (first + r) * n, n,
                    codes.begin() + static_cast<std::ptrdiff_t>(r * n));
      pack_planes(codes.data(), n, n, run.shift, to);
      to += run.shift * n;
    }
}
void unpack_low(const Format& format, int64_t chunk, const uint8_t* from, uint16_t* low) {
  const Layout& layout = format.layout(chunk);
  std::vector<uint32_t> codes(static_cast<size_t>(8 * layout.count));
  for (int64_t first = 0; first < format.grid.pixels(); first += 8)
    for (const Layout::Run& run : layout.runs) {
      if (run.shift <= 0) continue;
      const int64_t n = run.size();
      unpack_planes(from, n, run.shift, n, codes.data());
      from += run.shift * n;
      for (int64_t r = 0; r < std::min<int64_t>(8, format.grid.pixels() - first); ++r)
        for (int64_t j = 0; j < n; ++j)
          low[(first + r) * layout.stride + run.begin + j] =
              static_cast<uint16_t>(codes[static_cast<size_t>(r * n + j)]);
    }
}

// A chunk while it is decoded.
struct Decoding {
  Decoding(const Format& of, int64_t number, const Dither& dither, const uint8_t* from,
           const uint8_t* until, uint8_t* random_bytes, uint16_t* low_bits)
      : format(of),
        layout(of.layout(number)),
        chunk(number),
        kept(from),
        random(random_bytes),
        low(low_bits),
        offset(dither.offset()),
        places(layout, of.grid.width),
        base(static_cast<size_t>(layout.stride)),
        values(base.size(), 0.0f),
        bytes(base.size()),
        contexts(base.size()),
        decoder(begin(from), until) {
    dither.bytes(format, chunk, random);
    if (layout.low_bytes > 0) unpack_low(format, chunk, planes, low);
  }
  // Where the stream begins; finds what lies before it.
  const uint8_t* begin(const uint8_t* from) {
    from += format.kept_bytes(chunk);
    uint32_t count;
    std::memcpy(&count, from, 4);
    large = from + 4;
    planes = large + 4 * int64_t{count};
    return planes + format.low_bytes(chunk);
  }
  PixelLanes lanes(int64_t h, int64_t w, const Layout::Run& run) {
    const uint8_t* const u = random + (h * format.grid.width + w) * layout.stride;
    return {layout.lanes, places.of(h, w), u, offset, run.shift, run.begin, run.end};
  }
  void predict(int64_t h, int64_t w, const Layout::Run& run) {
    predict_lanes(lanes(h, w, run), base.data(), contexts.data());
  }
  void rebuild(int64_t h, int64_t w, const Layout::Run& run) {
    const PixelLanes of = lanes(h, w, run);
    int16_t* const place = places.place(h, w);
    const uint16_t* const rest =
        low == nullptr ? nullptr : low + (h * format.grid.width + w) * layout.stride;
    if (!rebuild_lanes(of, base.data(), bytes.data(), rest, place, values.data())) return;
    const int mask = run.shift < 0 ? (1 << kResidualBits) - 1 : 255;
    for (int64_t j = run.begin; j < run.end; ++j) {
      const auto at = static_cast<size_t>(j);
      if ((bytes[at] & mask) != 0) continue;
      int32_t q;
      std::memcpy(&q, large, 4);
      large += 4;
      place[j] = place_of(q, of, j);
      values[at] = value_of(q, of, j);
    }
  }
  // Writes a pixel of all items as far as it lies in elements [begin, end).
  void put(int64_t pixel, int64_t from, int64_t until, float* out) const {
    const Grid& grid = format.grid;
    for (int64_t g = 0; g < layout.items; ++g) {
      const int64_t at = grid.first(chunk * grid.together + g) + pixel;
      const int64_t first = at * grid.channels;
      const int64_t begin = std::max(first, from), end = std::min(first + grid.channels, until);
      if (at >= grid.all || begin >= end) continue;
      const bool is_whole = end - begin == grid.channels;
      std::vector<float> pixels(is_whole ? 0 : static_cast<size_t>(grid.channels));
      put_pixel(g, at, is_whole ? out + (first - from) : pixels.data());
      if (!is_whole)
        std::copy_n(pixels.data() + (begin - first), end - begin, out + (begin - from));
    }
  }

  // Writes a pixel of an item, which has the number `at` of all.
  void put_pixel(int64_t g, int64_t at, float* to) const {
    const Grid& grid = format.grid;
    const Order& order = format.order;
    if (order.in_order && order.classes.size() == 1) {
      std::memcpy(to, values.data() + g * grid.channels, static_cast<size_t>(grid.channels) * 4);
      return;
    }
    for (const Order::Class& each : order.classes) {
      const float* const source = values.data() + each.first * layout.items + g * each.count;
      const int32_t* const channel = order.channel.data() + each.first;
      for (int64_t i = 0; i < each.count; ++i) to[channel[i]] = source[i];
    }
    for (const int32_t c : order.constant) to[c] = format.channels[static_cast<size_t>(c)].step;
    const uint8_t* source = kept + 4 * static_cast<int64_t>(order.kept.size()) *
                                       (at - grid.first(chunk * grid.together));
    for (const int32_t c : order.kept) {
      std::memcpy(to + c, source, 4);
      source += 4;
    }
  }

  const Format& format;
  const Layout& layout;
  int64_t chunk;
  const uint8_t *kept, *large = nullptr, *planes = nullptr;
  uint8_t* random;
  uint16_t* low;
  float offset;
  Places places;
  std::vector<int16_t> base;
  std::vector<float> values;
  std::vector<uint8_t> bytes, contexts;
  rans::Decoder decoder;
};

// The class whose table a class uses. Classes that leave low bits out have about the same upper
// bits.
std::vector<size_t> tables_of(const std::vector<int>& shifts) {
  std::vector<size_t> tables;
  size_t first = shifts.size();
  for (size_t k = 0; k < shifts.size(); ++k) {
    if (shifts[k] > 0) first = std::min(first, k);
    tables.push_back(shifts[k] > 0 ? first : k);
  }
  return tables;
}

enum : uint8_t { kPlain, kCoded };

class PackedPredicted final : public Payload {
 public:
  PackedPredicted(Tensor payload, const Shape& shape, DType dtype, const Dither& dither)
      : Payload(std::move(payload), shape, dtype), dither_(dither) {}

 private:
  void decode(int64_t begin, int64_t end, float* out) const override;
  Dither dither_;
};

void PackedPredicted::decode(int64_t begin, int64_t end, float* out) const {
  const uint8_t* at = bytes();
  if (*at++ == kPlain) {
    std::memcpy(out, at + 4 * begin, static_cast<size_t>(end - begin) * 4);
    return;
  }
  const Grid grid(shape());
  std::vector<int> shifts(*at++);
  for (int& shift : shifts) {
    int8_t stored;
    std::memcpy(&stored, at++, 1);
    shift = stored;
  }
  const std::vector<size_t> table_of = tables_of(shifts);
  std::vector<std::optional<rans::ContextTable>> tables(shifts.size());
  for (size_t k = 0; k < shifts.size(); ++k) {
    if (table_of[k] != k) continue;
    entropy::Plan plan;
    at = entropy::read_table(at, plan);
    tables[k].emplace(plan.frequencies, shifts[k] < 0 ? kResidualBits : 8);
  }
  std::vector<Channel> channels(static_cast<size_t>(grid.channels));
  at = ChannelBytes::read(at, channels);
  const Format format(grid, std::move(channels), std::move(shifts));
  const uint8_t* const ends = at;
  const int64_t start = ends + 8 * grid.chunks - bytes();
  const auto end_of = [&](int64_t chunk) {
    int64_t to = start;
    if (chunk >= 0) std::memcpy(&to, ends + 8 * chunk, 8);
    return bytes() + to;
  };
  const int64_t size = grid.together * grid.pixels() * grid.channels;
  const int64_t first = begin / size, last = (end + size - 1) / size;
  const int64_t pairs = (last - first + 1) / 2, stride = grid.pixels() * format.whole.stride;
  const bool low = format.whole.low_bytes > 0;
  const CategoryScope scope(Category::workspace);
  const int64_t rooms = 2 * parallel_ranges(pairs, 1);
  const Tensor randoms = Tensor::empty({rooms, stride}, DType::u8);
  const Tensor lows = Tensor::empty({low ? rooms : 0, 2 * stride}, DType::u8);
  std::atomic<int64_t> next = 0;
  parallel_for(0, pairs, 1, [&](int64_t from, int64_t until) {
    const int64_t room = 2 * next++;
    const auto decoding = [&](int64_t chunk, int64_t k) {
      auto* const rest = low ? reinterpret_cast<uint16_t*>(lows.mut<uint8_t>()) : nullptr;
      return std::make_unique<Decoding>(format, chunk, dither_, end_of(chunk - 1), end_of(chunk),
                                        randoms.mut<uint8_t>() + (room + k) * stride,
                                        low ? rest + (room + k) * stride : nullptr);
    };
    for (int64_t i = from; i < until; ++i) {
      const int64_t chunk = first + 2 * i;
      const auto a = decoding(chunk, 0);
      const auto b = chunk + 1 < last ? decoding(chunk + 1, 1) : nullptr;
      const bool alike = b != nullptr && a->layout.items == b->layout.items;
      for (int64_t h = 0; h < grid.height; ++h)
        for (int64_t w = 0; w < grid.width; ++w) {
          for (size_t k = 0; k < tables.size(); ++k) {
            const rans::ContextTable& table = *tables[table_of[k]];
            const auto get = [&](Decoding& of) {
              const Layout::Run& run = of.layout.runs[k];
              return rans::ContextSegment{of.bytes.data() + run.begin,
                                          of.contexts.data() + run.begin};
            };
            const auto count = [&](const Decoding& of) {
              return static_cast<size_t>(of.layout.runs[k].size());
            };
            a->predict(h, w, a->layout.runs[k]);
            if (b != nullptr) b->predict(h, w, b->layout.runs[k]);
            if (alike) {
              rans::Decoder::get_two(a->decoder, get(*a), b->decoder, get(*b), count(*a), table);
            } else {
              a->decoder.get(get(*a), count(*a), table);
              if (b != nullptr) b->decoder.get(get(*b), count(*b), table);
            }
            a->rebuild(h, w, a->layout.runs[k]);
            if (b != nullptr) b->rebuild(h, w, b->layout.runs[k]);
          }
          a->put(h * grid.width + w, begin, end, out);
          if (b != nullptr) b->put(h * grid.width + w, begin, end, out);
        }
    }
  });
}

// What a sample says of the channels.
Moments sample(const float* x, const Grid& grid, std::vector<float>& mean) {
  const auto count = static_cast<size_t>(grid.channels);
  Moments moments;
  for (auto* each : {&moments.own, &moments.left, &moments.up, &moments.corner, &moments.pair})
    each->assign(count, 0.0f);
  mean.assign(count, 0.0f);
  const int64_t whole = grid.all / grid.pixels();  // items that are not short
  const int64_t items =
      std::min(whole, std::max<int64_t>((kSamplePixels + grid.pixels() - 1) / grid.pixels(), 1));
  if (items == 0) {  // one short item, of one row
    add_values(x, grid.all, grid.channels, mean.data());
    for (float& each : mean) each /= static_cast<float>(std::max<int64_t>(grid.all, 1));
    add_products(x, 1, grid.all, grid.channels, mean.data(), moments);
    return moments;
  }
  const auto at = [&](int64_t i) { return x + grid.first(i * whole / items) * grid.channels; };
  for (int64_t i = 0; i < items; ++i) add_values(at(i), grid.pixels(), grid.channels, mean.data());
  for (float& each : mean) each /= static_cast<float>(items * grid.pixels());
  for (int64_t i = 0; i < items; ++i)
    add_products(at(i), grid.height, grid.width, grid.channels, mean.data(), moments);
  return moments;
}

// The weights that predict best, for values whose neighbours have errors of variance `noise`.
// Returns the variance of what is left.
double best_weights(const Moments& moments, size_t c, double noise, Channel& channel) {
  const double n = std::max<double>(static_cast<double>(moments.pixels), 1);
  const auto at = [&](const std::vector<float>& of) { return static_cast<double>(of[c]) / n; };
  const double own = at(moments.own), left = at(moments.left), up = at(moments.up),
               corner = at(moments.corner), pair = at(moments.pair);
  // Left and corner differ by a row, up and corner by a column.
  const double noisy = own + noise;
  std::array<std::array<double, 4>, 3> m = {
      {{noisy, pair, up, left}, {pair, noisy, left, up}, {up, left, noisy, corner}}};
  if (!(noisy > 0)) return own;
  for (size_t i = 0; i < 3; ++i) {
    m[i][i] += 1e-3 * noisy;
    for (size_t k = i + 1; k < 3; ++k) {
      const double share = m[k][i] / m[i][i];
      for (size_t j = i; j < 4; ++j) m[k][j] -= share * m[i][j];
    }
    if (!(m[i][i] > 0)) return own;
  }
  std::array<double, 3> weights{};
  for (size_t i = 3; i-- > 0;) {
    double sum = m[i][3];
    for (size_t j = i + 1; j < 3; ++j) sum -= m[i][j] * weights[j];
    weights[i] = sum / m[i][i];
  }
  const auto rounded = [](double weight) {
    return static_cast<int8_t>(
        std::isfinite(weight) ? std::clamp(std::round(128 * weight), -127.0, 127.0) : 0);
  };
  channel.left = rounded(weights[0]);
  channel.up = rounded(weights[1]);
  channel.corner = rounded(weights[2]);
  return std::max(own - weights[0] * left - weights[1] * up - weights[2] * corner, 0.0);
}

// The channel without its class; kKept and kConstant are decided here.
Channel channel_of(const Range& range, double bound, const ErrorBoundedOptions& options) {
  Channel channel;
  if (range.values == 0) return channel;
  const Steps steps = steps_of(
      range, bound, options,
      [&](double allowed, double most) {
        // f32 rounds x / step, its sum with u, and the result: by at most 5 * 2^-24 of the value.
        // u has 256 values, so the variance may be larger than step^2 / 12 by 2^-14 of it.
        return (allowed - most * 0x1p-21) * (options.expected ? std::sqrt(3.0) * (1 - 0x1p-14) : 2);
      },
      1 - 0x1p-23);
  channel.kind = steps.kind == Steps::kept ? kKept : steps.kind == Steps::constant ? kConstant : 0;
  channel.step = steps.step;
  return channel;
}

// Puts coded channels into classes of about equal residuals, and returns the shift of each class.
// deviation: of the residuals, in codes. `unit`: a class has a multiple of so many channels, as far
// as there are enough. tables: how many classes may have frequencies of their own.
std::vector<int> classify(std::vector<Channel>& channels, const std::vector<double>& deviation,
                          int64_t unit, int64_t tables) {
  // The upper bits of residuals with a deviation of 8 tell the shape of a distribution.
  const auto shift_of = [](double largest) {
    return largest <= kMostInPhases ? kPhases
                                    : std::max(static_cast<int>(std::log2(largest)) - 3, 0);
  };
  std::vector<size_t> order;
  for (size_t c = 0; c < channels.size(); ++c)
    if (channels[c].coded()) order.push_back(c);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return deviation[a] < deviation[b]; });
  std::vector<int> shifts;
  const auto step = static_cast<size_t>(unit);
  for (size_t begin = 0; begin < order.size();) {
    const double limit = std::max(deviation[order[begin]], 0.1) * std::exp2(kOctaves);
    const auto joins = [&](size_t end) {
      const double largest = deviation[order[std::min(end + step, order.size()) - 1]];
      if (order.size() - end < step || largest <= limit) return true;
      const bool last = static_cast<int64_t>(shifts.size()) + 1 >= tables;
      return shifts.size() + 1 == kMostClasses || (last && shift_of(largest) <= 0);
    };
    size_t end = begin + step;
    while (end < order.size() && joins(end)) end += step;
    end = std::min(end, order.size());
    for (size_t i = begin; i < end; ++i)
      channels[order[i]].kind = static_cast<uint8_t>(shifts.size());
    shifts.push_back(shift_of(deviation[order[end - 1]]));
    begin = end;
  }
  return shifts;
}

Format format_of(const float* x, const Tensor& tensor, const ErrorBound& bound,
                 const ErrorBoundedOptions& options) {
  const Grid grid(tensor.shape());
  std::vector<Channel> channels;
  const std::vector<Range> ranges = ranges_of(x, make_view(tensor.shape()), false);
  for (int64_t c = 0; c < grid.channels; ++c)
    channels.push_back(channel_of(ranges[static_cast<size_t>(c)], bound.at(c), options));
  if (grid.all == 0) return {grid, std::move(channels), {}};
  std::vector<float> mean;
  const Moments moments = sample(x, grid, mean);
  std::vector<double> deviation(channels.size(), 0);
  // What the weights and the means of channels save, in bits for each pixel.
  double by_weights = 0, by_means = 0, coded = 0;
  for (size_t c = 0; c < channels.size(); ++c) {
    Channel& channel = channels[c];
    if (!channel.coded()) continue;
    const double step = static_cast<double>(channel.step);
    const double noise = options.rounding == Rounding::nearest ? 0 : step * step / 12;
    const double place = std::round(static_cast<double>(mean[c]) / step * 16 - 8);
    channel.mean = static_cast<int32_t>(std::clamp(place, -16 * kMostSteps, 16 * kMostSteps));
    const double own =
        static_cast<double>(moments.own[c]) / std::max(static_cast<double>(moments.pixels), 1.0);
    const double left = best_weights(moments, c, noise, channel), least = step * step / 12;
    const double square = static_cast<double>(mean[c]) * static_cast<double>(mean[c]);
    by_weights += std::log2((own + least) / (left + least)) / 2;
    by_means += std::log2(1 + square / (left + least)) / 2;
    deviation[c] = std::sqrt(left) / step;
    ++coded;
  }
  const auto pixels = static_cast<double>(grid.all);
  for (size_t c = 0; c < channels.size(); ++c) {
    Channel& channel = channels[c];
    if (!channel.coded()) continue;
    const double step = static_cast<double>(channel.step);
    double square = deviation[c] * deviation[c];
    if (by_weights * pixels < kWeightBits * coded) {
      channel.left = channel.up = channel.corner = 0;
      square = static_cast<double>(moments.own[c]) /
               std::max(static_cast<double>(moments.pixels), 1.0) / step / step;
    }
    if (by_means * pixels < kMeanBits * coded) {
      channel.mean = -8;
      square += static_cast<double>(mean[c]) * static_cast<double>(mean[c]) / step / step;
    }
    deviation[c] = std::sqrt(square);
  }
  const int64_t unit = std::max<int64_t>(rans::kStates / std::gcd(rans::kStates, grid.together), 2);
  const int64_t tables = std::max<int64_t>(grid.all * grid.channels / kClassElements, 1);
  std::vector<int> shifts = classify(channels, deviation, unit, tables);
  return {grid, std::move(channels), std::move(shifts)};
}

std::unique_ptr<Payload> packed(const Tensor& tensor, const ErrorBound& bound, const SaveInfo& info,
                                const ErrorBoundedOptions& options) {
  const Tensor x = on_host(checked("bounded_predicted", tensor, bound));
  const Dither dither{code_stream(options.seed, info), options.rounding == Rounding::stochastic};
  if (x.device() == kMeta)
    return std::make_unique<PackedPredicted>(meta_payload(0, tensor.numel(), options),
                                             tensor.shape(), tensor.dtype(), dither);
  const auto* values = x.data<float>();
  const Format format = format_of(values, tensor, bound, options);
  const Grid& grid = format.grid;
  const size_t classes = format.shifts.size();
  const std::vector<size_t> table_of = tables_of(format.shifts);
  const int64_t chunks = grid.chunks, stride = grid.pixels() * format.whole.stride;
  const int64_t size = format.whole.room;
  const bool low = format.whole.low_bytes > 0;
  const CategoryScope scope(Category::workspace);
  const Tensor all = Tensor::empty({chunks, size}, DType::u8);
  const Tensor lows = Tensor::empty({low ? chunks : 0, 2 * size}, DType::u8);
  const Tensor randoms = Tensor::empty({parallel_ranges(chunks, 1), stride}, DType::u8);
  std::vector<Symbols> symbols(static_cast<size_t>(chunks));
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    auto* const rest = low ? reinterpret_cast<uint16_t*>(lows.mut<uint8_t>()) : nullptr;
    symbols[static_cast<size_t>(chunk)] = {
        all.mut<uint8_t>() + chunk * size, low ? rest + chunk * size : nullptr, {}};
  }
  std::vector<rans::Histogram> histograms(classes);
  std::mutex mutex;
  std::atomic<int64_t> next = 0;
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    uint8_t* const random = randoms.mut<uint8_t>() + next++ * stride;
    std::vector<rans::Counter> mine(classes);
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      Symbols& made = symbols[static_cast<size_t>(chunk)];
      make_symbols(values, format, chunk, dither, random, made);
      const Layout& layout = format.layout(chunk);
      for (size_t k = 0; k < classes; ++k)
        mine[k].add(made.bytes + layout.runs[k].symbols,
                    static_cast<size_t>(layout.runs[k].size() * grid.pixels()));
    }
    const std::lock_guard lock(mutex);  // sums of whole numbers: any order
    for (size_t k = 0; k < classes; ++k) mine[k].add_to(histograms[table_of[k]]);
  });

  std::vector<entropy::Plan> plans(classes);
  std::vector<std::optional<rans::EncodeTable>> tables(classes);
  const ChannelBytes channels(format.channels);
  int64_t head = 2 + static_cast<int64_t>(channels.bytes().size()) + 8 * chunks;
  for (size_t k = 0; k < classes; ++k) {
    ++head;
    if (table_of[k] != k) continue;
    plans[k].kind = entropy::Kind::coded;
    plans[k].frequencies =
        rans::context_frequencies(histograms[k], format.shifts[k] < 0 ? kResidualBits : 8);
    tables[k].emplace(plans[k].frequencies);
    head += plans[k].table_bytes();
  }
  std::vector<Tensor> coded(static_cast<size_t>(chunks));
  const auto room = static_cast<int64_t>(rans::stream_bound(static_cast<size_t>(size)));
  const int64_t pairs = (chunks + 1) / 2;
  const Tensor rooms = Tensor::empty({parallel_ranges(pairs, 1), 2 * room}, DType::u8);
  next = 0;
  parallel_for(0, pairs, 1, [&](int64_t begin, int64_t end) {
    const CategoryScope inner(Category::workspace);
    uint8_t* const scratch = rooms.mut<uint8_t>() + 2 * room * next++;
    std::array<std::vector<rans::EncodeSegment>, 2> segments;
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t here = std::min<int64_t>(2, chunks - 2 * pair);
      std::array<uint8_t*, 2> until = {scratch + room, scratch + 2 * room};
      std::array<rans::Encoder, 2> encoders = {rans::Encoder(until[0]), rans::Encoder(until[1])};
      for (int64_t i = 0; i < 2; ++i) {
        auto& list = segments[static_cast<size_t>(i)];
        list.clear();
        if (i >= here) continue;
        const Layout& layout = format.layout(2 * pair + i);
        const uint8_t* const from = symbols[static_cast<size_t>(2 * pair + i)].bytes;
        // Where every pixel takes whole steps of the coder, one segment can hold all of them.
        const int64_t parts = classes == 1 && layout.count % rans::kStates == 0 ? 1 : grid.pixels();
        for (int64_t part = parts; part-- > 0;)
          for (size_t k = classes; k-- > 0;) {
            const Layout::Run& run = layout.runs[k];
            const int64_t bytes = grid.pixels() / parts * run.size();
            list.push_back({from + run.symbols + part * bytes, static_cast<size_t>(bytes),
                            &*tables[table_of[k]]});
          }
      }
      rans::Encoder::put_two(encoders[0], segments[0], encoders[1], segments[1]);
      for (int64_t i = 0; i < here; ++i) {
        const int64_t chunk = 2 * pair + i;
        const Symbols& made = symbols[static_cast<size_t>(chunk)];
        const uint8_t* const stream = encoders[static_cast<size_t>(i)].finish();
        const auto bytes = static_cast<size_t>(until[static_cast<size_t>(i)] - stream);
        const int64_t kept = format.kept_bytes(chunk), planes = format.low_bytes(chunk);
        const auto large = static_cast<uint32_t>(made.large.size());
        const Tensor part = Tensor::empty(
            {kept + 4 + 4 * int64_t{large} + planes + static_cast<int64_t>(bytes)}, DType::u8);
        auto* to = part.mut<uint8_t>();
        if (kept > 0) {
          const int64_t first = grid.first(chunk * grid.together);
          const int64_t pixels = kept / 4 / static_cast<int64_t>(format.order.kept.size());
          for (int64_t p = first; p < first + pixels; ++p)
            for (const int32_t c : format.order.kept) {
              std::memcpy(to, values + p * grid.channels + c, 4);
              to += 4;
            }
        }
        std::memcpy(to, &large, 4);
        if (large > 0) std::memcpy(to + 4, made.large.data(), 4 * size_t{large});
        to += 4 + 4 * int64_t{large};
        if (planes > 0) pack_low(format, chunk, made.low, to);
        std::memcpy(to + planes, stream, bytes);
        coded[static_cast<size_t>(chunk)] = part;
      }
    }
  });
  int64_t total = head;
  for (const Tensor& each : coded) total += each.numel();
  const int64_t plain = 1 + 4 * x.numel();
  const Tensor payload = packed_bytes(std::min(total, plain), kCpu);
  auto* to = payload.mut<uint8_t>();
  *to++ = total < plain ? kCoded : kPlain;
  if (total < plain) {
    *to++ = static_cast<uint8_t>(classes);
    for (const int shift : format.shifts) *to++ = static_cast<uint8_t>(shift);
    for (size_t k = 0; k < classes; ++k)
      if (table_of[k] == k) to = entropy::write_table(plans[k], to);
    to = std::copy(channels.bytes().begin(), channels.bytes().end(), to);
    int64_t at = head;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Tensor& each = coded[static_cast<size_t>(chunk)];
      std::memcpy(payload.mut<uint8_t>() + at, each.data<uint8_t>(),
                  static_cast<size_t>(each.numel()));
      at += each.numel();
      std::memcpy(to + 8 * chunk, &at, 8);
    }
  } else if (plain > 1) {
    std::memcpy(to, values, static_cast<size_t>(plain - 1));
  }
  return std::make_unique<PackedPredicted>(placed(payload, tensor.device()), tensor.shape(),
                                           tensor.dtype(), dither);
}

}  // namespace

}  // namespace predicted

std::unique_ptr<bounded::Payload> BoundedPredicted::pack(const Tensor& tensor,
                                                         const ErrorBound& bound,
                                                         const SaveInfo& info) const {
  return predicted::packed(tensor, bound, info, options_);
}

}  // namespace frugal::compress
