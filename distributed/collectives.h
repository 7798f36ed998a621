// Collectives: operations of all ranks as messages between two. Internal to distributed.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/transport.h"

namespace frugal::distributed {

constexpr int64_t kSegment = 512 << 10;  // bytes of a message, at most
constexpr int64_t kWindow = 4;           // messages of one stream that are on the way at once
constexpr int64_t kHeader = 128;         // bytes that say which operation this is

// A stream of bytes to or from one rank, cut into segments.
class Lane {
 public:
  enum class Direction : uint8_t { out, in };
  // `data` holds all bytes, or, with `ring`, the last kWindow segments.
  Lane(Direction direction, int peer, int tag, void* data, int64_t bytes, bool ring = false)
      : direction_(direction),
        peer_(peer),
        tag_(tag),
        data_(static_cast<char*>(data)),
        bytes_(bytes),
        ring_(ring) {}

  // Ends what has arrived and begins what is due: the segments that end at or before `limit`, or
  // at the end of the stream if the limit lies beyond.
  void advance(Transport& transport, int64_t limit);
  bool finished() const { return passed_ == bytes_; }
  int64_t passed() const { return passed_; }  // bytes from the begin that are through
  const char* at(int64_t offset) const;       // REQUIRES: `offset` begins a segment
  int peer() const { return peer_; }
  int64_t bytes() const { return bytes_; }
  bool is_in() const { return direction_ == Direction::in; }

 private:
  Direction direction_;
  int peer_, tag_;
  char* data_;
  int64_t bytes_;
  bool ring_;
  int64_t begun_ = 0, passed_ = 0;
  std::deque<Transport::Request> flying_;
};

// Chooses the tags of an operation. Equal on all ranks.
constexpr int kChannels = 8;
struct Tags {
  int channel = 0;
  int64_t number = 0;  // number of the operation in its channel
};

// One operation of this rank.
class Collective {
 public:
  // `text` says what this rank does.
  Collective(Transport& transport, std::string text, Tags tags);
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Goes on as far as it can without waiting. True: it is done.  Errors: another rank does
  // something else.
  bool advance();
  const std::string& text() const { return text_; }
  int64_t passed() const;           // bytes that are through, of all lanes
  std::vector<int> silent() const;  // the ranks from which something has still to come
  std::vector<int> deaf() const;    // the ranks that have still to take something

 protected:
  enum class Stream : uint8_t { header, terms, results };
  int tag(Stream stream) const;
  // Headers go between this rank and a peer. Both must say the same: text(), or `words`.
  void meet(int peer, bool send, bool receive, std::string words = {});
  bool met(int peer) const;  // whether its header has come, or none is due
  virtual void move() = 0;
  Transport& transport_;
  std::vector<Lane> lanes_;  // data of the operation, without the headers

 private:
  std::string text_;
  Tags tags_;
  struct Peer {
    std::string mine, theirs;
    std::vector<Lane> lanes;
    bool expects = false;
  };
  std::vector<Peer> peers_;  // peers by rank
};

// Reduces, gathers, or first one and then the other.
struct Sharing {
  void* data = nullptr;
  DType dtype = DType::f32;
  Bounds bounds;
  bool reduce, gather;
  Reduction reduction = Reduction::sum;
  void* workspace = nullptr;  // Sharing::workspace_bytes()

  // What the terms of the other ranks need.
  static int64_t workspace_bytes(int64_t share_bytes, int ranks);
};
std::unique_ptr<Collective> share(Transport& transport, std::string text, Tags tags,
                                  const Sharing& sharing);
// `data` goes from the root along a binary tree.
std::unique_ptr<Collective> broadcast(Transport& transport, std::string text, Tags tags, void* data,
                                      int64_t bytes, int root);

// Each rank sends each other rank a share of its own. The shares of this rank itself are left
// alone.
struct Exchange {
  void* send = nullptr;
  Bounds send_bounds;  // in bytes
  void* receive = nullptr;
  Bounds receive_bounds;
};
std::unique_ptr<Collective> exchange(Transport& transport, const std::string& what, Tags tags,
                                     const Exchange& shares);

// out[i] = the reduction of parts[0][i], parts[1][i], ... in this order. `out` may be one of the
// parts. f32, f64, i64 or bf16.
void reduce_parts(DType dtype, Reduction reduction, const std::vector<const void*>& parts,
                  void* out, int64_t elements);

}  // namespace frugal::distributed
