#include "distributed/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/words/quoted.h"

namespace frugal::distributed {

void Lane::advance(Transport& transport, int64_t limit) {
  while (!flying_.empty() && transport.test(flying_.front())) {
    flying_.pop_front();
    passed_ = std::min(passed_ + kSegment, bytes_);
  }
  while (begun_ < bytes_ && static_cast<int64_t>(flying_.size()) < kWindow) {
    const int64_t n = std::min(kSegment, bytes_ - begun_);
    if (begun_ + n > limit) return;
    char* const place = data_ + (ring_ ? begun_ / kSegment % kWindow * kSegment : begun_);
    flying_.push_back(is_in() ? transport.receive(peer_, tag_, place, n)
                              : transport.send(peer_, tag_, place, n));
    begun_ += n;
  }
}

const char* Lane::at(int64_t offset) const {
  return data_ + (ring_ ? offset / kSegment % kWindow * kSegment : offset);
}

Collective::Collective(Transport& transport, std::string text, Tags tags)
    : transport_(transport),
      text_(std::move(text)),
      tags_(tags),
      peers_(static_cast<size_t>(transport.size())) {}

int Collective::tag(Stream stream) const {
  constexpr int kNumbers = Transport::kTags / 3 / kChannels;
  const auto number = static_cast<int>(tags_.number % kNumbers);
  return (tags_.channel * kNumbers + number) * 3 + static_cast<int>(stream);
}

void Collective::meet(int peer, bool send, bool receive, std::string words) {
  Peer& at = peers_[static_cast<size_t>(peer)];
  at.mine = words.empty() ? text_ : std::move(words);
  at.mine.resize(static_cast<size_t>(kHeader), ' ');
  at.theirs.resize(static_cast<size_t>(kHeader));
  at.expects = receive;
  if (send)
    at.lanes.emplace_back(Lane::Direction::out, peer, tag(Stream::header), at.mine.data(), kHeader);
  if (receive)
    at.lanes.emplace_back(Lane::Direction::in, peer, tag(Stream::header), at.theirs.data(),
                          kHeader);
}

bool Collective::met(int peer) const {
  const Peer& at = peers_[static_cast<size_t>(peer)];
  return !at.expects || at.lanes.back().finished();
}

bool Collective::advance() {
  bool done = true;
  for (size_t r = 0; r < peers_.size(); ++r)
    for (Lane& lane : peers_[r].lanes) {
      if (lane.finished()) continue;
      lane.advance(transport_, kHeader);
      done = done && lane.finished();
      if (!lane.is_in() || !lane.finished() || peers_[r].theirs == peers_[r].mine) continue;
      const auto words = [](const std::string& header) {
        return header.substr(0, header.find_last_not_of(' ') + 1);
      };
      throw Error(fmt::format(
          "[distributed] expected all ranks to do the same, got {} here, and {} on rank {}",
          words(peers_[r].mine), printable(words(peers_[r].theirs), static_cast<size_t>(kHeader)),
          r));
    }
  move();
  return done && std::all_of(lanes_.begin(), lanes_.end(),
                             [](const Lane& lane) { return lane.finished(); });
}

namespace {

void add_peers(const std::vector<Lane>& lanes, bool in, std::vector<int>& out) {
  for (const Lane& lane : lanes)
    if (lane.is_in() == in && !lane.finished() &&
        std::find(out.begin(), out.end(), lane.peer()) == out.end())
      out.push_back(lane.peer());
}

}  // namespace

int64_t Collective::passed() const {
  int64_t bytes = 0;
  for (const Peer& peer : peers_)
    for (const Lane& lane : peer.lanes) bytes += lane.passed();
  for (const Lane& lane : lanes_) bytes += lane.passed();
  return bytes;
}

std::vector<int> Collective::silent() const {
  std::vector<int> ranks;
  // Who has not even said what it does is the reason why others are late.
  for (const Peer& peer : peers_) add_peers(peer.lanes, true, ranks);
  if (ranks.empty()) add_peers(lanes_, true, ranks);
  return ranks;
}

std::vector<int> Collective::deaf() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) add_peers(peer.lanes, false, ranks);
  add_peers(lanes_, false, ranks);
  return ranks;
}

namespace {

// Every rank sends each other rank the terms of that rank's share, adds what comes for its own
// share, and sends the sums to all others. Segments follow each other through these three stages.
class SharedOperation final : public Collective {
 public:
  SharedOperation(Transport& transport, std::string text, Tags tags, const Sharing& sharing)
      : Collective(transport, std::move(text), tags), sharing_(sharing) {
    const int ranks = transport.size(), rank = transport.rank();
    for (int r = 0; r < ranks; ++r)
      if (r != rank) meet(r, true, true);
    auto* ring = static_cast<char*>(sharing.workspace);
    const int64_t mine = share_bytes(rank);
    const int64_t ring_bytes = Sharing::workspace_bytes(mine, 2);
    if (sharing.reduce)
      for (int r = 0; r < ranks; ++r) {
        if (r == rank) continue;
        lanes_.emplace_back(Lane::Direction::out, r, tag(Stream::terms), share_of(r),
                            share_bytes(r));
        lanes_.emplace_back(Lane::Direction::in, r, tag(Stream::terms), ring, mine, true);
        ring += ring_bytes;
      }
    if (sharing.gather)
      for (int r = 0; r < ranks; ++r) {
        if (r == rank) continue;
        lanes_.emplace_back(Lane::Direction::out, r, tag(Stream::results), share_of(rank), mine);
        lanes_.emplace_back(Lane::Direction::in, r, tag(Stream::results), share_of(r),
                            share_bytes(r));
      }
    if (!sharing.reduce) reduced_ = mine;
  }

 protected:
  void move() override {
    const int64_t mine = share_bytes(transport_.rank());
    const size_t peers = static_cast<size_t>(transport_.size()) - 1;
    const size_t terms = sharing_.reduce ? 2 * peers : 0;
    for (size_t i = 0; i < terms; i += 2) {
      lanes_[i].advance(transport_, lanes_[i].bytes());
      if (met(lanes_[i + 1].peer()))
        lanes_[i + 1].advance(transport_, reduced_ + kWindow * kSegment);
    }
    while (reduced_ < mine) {
      const int64_t n = std::min(kSegment, mine - reduced_);
      bool here = true;
      for (size_t i = 1; i < terms; i += 2) here = here && lanes_[i].passed() >= reduced_ + n;
      if (!here) break;
      reduce(n, terms);
      reduced_ += n;
      // Another segment may come while the next one is added.
      for (size_t i = 1; i < terms; i += 2)
        lanes_[i].advance(transport_, reduced_ + kWindow * kSegment);
      for (size_t i = terms; i < lanes_.size(); i += 2) lanes_[i].advance(transport_, reduced_);
    }
    for (size_t i = terms; i < lanes_.size(); i += 2) {
      lanes_[i].advance(transport_, reduced_);
      Lane& in = lanes_[i + 1];
      // A result replaces a term, which must be gone by then.
      if (met(in.peer()))
        in.advance(transport_, sharing_.reduce ? lanes_[i - terms].passed() : in.bytes());
    }
  }

 private:
  int64_t element() const { return static_cast<int64_t>(size_of(sharing_.dtype)); }
  char* share_of(int rank) const {
    return static_cast<char*>(sharing_.data) +
           sharing_.bounds[static_cast<size_t>(rank)] * element();
  }
  int64_t share_bytes(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return (sharing_.bounds[r + 1] - sharing_.bounds[r]) * element();
  }
  void reduce(int64_t bytes, size_t terms) {
    char* const mine = share_of(transport_.rank()) + reduced_;
    std::vector<const void*> parts;
    for (size_t i = 1; i < terms; i += 2) parts.push_back(lanes_[i].at(reduced_));
    parts.insert(parts.begin() + transport_.rank(), mine);
    reduce_parts(sharing_.dtype, sharing_.reduction, parts, mine, bytes / element());
  }

  Sharing sharing_;
  int64_t reduced_ = 0;  // bytes of this rank's share
};

class Broadcast final : public Collective {
 public:
  Broadcast(Transport& transport, std::string text, Tags tags, void* data, int64_t bytes, int root)
      : Collective(transport, std::move(text), tags) {
    const int ranks = transport.size(), place = (transport.rank() - root + ranks) % ranks;
    // The parent's place is this one without its lowest bit; children have one more bit below it.
    const int lowest = place == 0 ? ranks : place & -place;
    const auto rank_at = [&](int at) { return (at + root) % ranks; };
    if (place != 0) {
      const int parent = rank_at(place - lowest);
      meet(parent, true, true);
      lanes_.emplace_back(Lane::Direction::in, parent, tag(Stream::results), data, bytes);
    }
    for (int bit = 1; bit < lowest && place + bit < ranks; bit *= 2) {
      const int child = rank_at(place + bit);
      meet(child, true, true);
      lanes_.emplace_back(Lane::Direction::out, child, tag(Stream::results), data, bytes);
    }
  }

 protected:
  void move() override {
    for (Lane& lane : lanes_) {
      const bool root = !lanes_.front().is_in();
      if (!lane.is_in())
        lane.advance(transport_, root ? lane.bytes() : lanes_.front().passed());
      else if (met(lane.peer()))
        lane.advance(transport_, lane.bytes());
    }
  }
};

class ExchangeOperation final : public Collective {
 public:
  ExchangeOperation(Transport& transport, const std::string& what, Tags tags,
                    const Exchange& shares)
      : Collective(transport,
                   fmt::format("all_to_all of {} bytes{}{}", shares.send_bounds.back(),
                               what.empty() ? "" : ": ", what),
                   tags) {
    const int rank = transport.rank();
    const auto add = [&](Lane::Direction direction, int peer, void* data, const Bounds& bounds) {
      const auto p = static_cast<size_t>(peer);
      lanes_.emplace_back(direction, peer, tag(Stream::results),
                          static_cast<char*>(data) + bounds[p], bounds[p + 1] - bounds[p]);
      return lanes_.back().bytes();
    };
    for (int r = 0; r < transport.size(); ++r) {
      if (r == rank) continue;
      const int64_t there = add(Lane::Direction::out, r, shares.send, shares.send_bounds);
      const int64_t here = add(Lane::Direction::in, r, shares.receive, shares.receive_bounds);
      // Both say the same of the two shares between them. A share of which only one of them knows
      // would wait for ever, or be taken for another one.
      const bool first = rank < r;
      meet(r, true, true,
           fmt::format("all_to_all, {} bytes from rank {} to {} and {} back{}{}",
                       first ? there : here, std::min(rank, r), std::max(rank, r),
                       first ? here : there, what.empty() ? "" : ": ", what));
    }
  }

 protected:
  void move() override {
    for (Lane& lane : lanes_)
      if (!lane.is_in() || met(lane.peer())) lane.advance(transport_, lane.bytes());
  }
};

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};

template <class T, class F>
void reduce_as(const std::vector<const void*>& parts, void* out, int64_t elements, F f) {
  using W = typename Wide<T>::type;
  if (parts.size() == 2) {
    const auto *a = static_cast<const T*>(parts[0]), *b = static_cast<const T*>(parts[1]);
    T* to = static_cast<T*>(out);
    for (int64_t i = 0; i < elements; ++i)
      to[i] = static_cast<T>(f(static_cast<W>(a[i]), static_cast<W>(b[i])));
    return;
  }
  constexpr int64_t kBlock = 1024;
  std::array<W, kBlock> sums{};
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    W* const s = sums.data();
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) s[i] = static_cast<W>(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = static_cast<const T*>(parts[p]) + begin;
      for (int64_t i = 0; i < n; ++i) s[i] = f(s[i], static_cast<W>(part[i]));
    }
    T* to = static_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(s[i]);
  }
}

template <class T>
void reduce_typed(Reduction reduction, const std::vector<const void*>& parts, void* out,
                  int64_t elements) {
  using W = typename Wide<T>::type;
  switch (reduction) {
    case Reduction::sum:
      if constexpr (std::is_integral_v<W>)  // whole numbers that are too large wrap around
        return reduce_as<T>(parts, out, elements, [](W a, W b) {
          return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        });
      else
        return reduce_as<T>(parts, out, elements, [](W a, W b) { return a + b; });
    case Reduction::max:
      return reduce_as<T>(parts, out, elements, [](W a, W b) { return b > a || b != b ? b : a; });
    case Reduction::min:
      return reduce_as<T>(parts, out, elements, [](W a, W b) { return b < a || b != b ? b : a; });
  }
}

}  // namespace

void reduce_parts(DType dtype, Reduction reduction, const std::vector<const void*>& parts,
                  void* out, int64_t elements) {
  switch (dtype) {
    case DType::f32:
      return reduce_typed<float>(reduction, parts, out, elements);
    case DType::f64:
      return reduce_typed<double>(reduction, parts, out, elements);
    case DType::i64:
      return reduce_typed<int64_t>(reduction, parts, out, elements);
    case DType::bf16:
      return reduce_typed<BFloat16>(reduction, parts, out, elements);
    default:
      throw InternalError("no reduction of this dtype");
  }
}

int64_t Sharing::workspace_bytes(int64_t share_bytes, int ranks) {
  const int64_t segments = (share_bytes + kSegment - 1) / kSegment;
  const int64_t ring =
      segments <= 1 ? (share_bytes + 63) / 64 * 64 : std::min(segments, kWindow) * kSegment;
  return (ranks - 1) * ring;
}

std::unique_ptr<Collective> share(Transport& transport, std::string text, Tags tags,
                                  const Sharing& sharing) {
  return std::make_unique<SharedOperation>(transport, std::move(text), tags, sharing);
}

std::unique_ptr<Collective> exchange(Transport& transport, const std::string& what, Tags tags,
                                     const Exchange& shares) {
  return std::make_unique<ExchangeOperation>(transport, what, tags, shares);
}

std::unique_ptr<Collective> broadcast(Transport& transport, std::string text, Tags tags, void* data,
                                      int64_t bytes, int root) {
  return std::make_unique<Broadcast>(transport, std::move(text), tags, data, bytes, root);
}

}  // namespace frugal::distributed
