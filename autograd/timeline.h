// Timeline: what a thread's training steps spend their time on, op by op, and what each op keeps
// for the backward pass. Without an active timeline an op, a pass over a node and a codec pay one
// comparison each.
//
// Spans nest: a backward span holds what it unpacks and rebuilds. An op of the forward pass ends
// when record() is called, and it began where the op before it ended. On CUDA the timeline waits
// for the device at both ends of each span, so steps take longer than without it.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/device.h"

namespace frugal {

class Timeline {
 public:
  //   phase:    a part of a step that holds spans of other kinds
  //   forward:  an op; what runs between two ops belongs to the second one
  //   backward: an op, with the sums of its gradients
  //   pack:     a codec packs what an op saves, or what was rebuilt and waits
  //   unpack:   a codec unpacks what the backward of an op reads
  //   rebuild:  a recipe runs for the backward of an op; an op of a recomputed block
  //   update:   the optimizer
  //   load:     the next batch
  enum class Kind : uint8_t { phase, forward, backward, pack, unpack, rebuild, update, load };
  static constexpr int kKinds = 8;

  struct Span {
    Kind kind{};
    const char* name = "";      // name of the op, the phase, the update or the load
    int layer = 0;              // index in layers()
    double begin = 0, end = 0;  // milliseconds since the timeline was made
    double own = 0;             // milliseconds without the spans inside
  };
  // A tensor that is kept when the backward pass begins, under the first op that keeps it. Tensors
  // that live anyway, such as parameters, are left out.
  struct Saved {
    const char* op = "";
    int layer = 0;
    int64_t raw = 0;     // bytes of the tensor
    int64_t stored = 0;  // bytes that it takes; 0 if a recipe rebuilds it
  };

  explicit Timeline(Device device);  // where the steps run
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Ops that read this storage are of this layer, and so are the ops after them, up to the next op
  // that reads a known storage. Before any, ops of a phase are of layer 0, "".
  void name_layer(uint64_t storage, const std::string& layer);
  const std::vector<std::string>& layers() const { return layers_; }

  // Spans in the order of their ends.
  const std::vector<Span>& spans() const { return spans_; }
  // What the last forward pass kept.
  const std::vector<Saved>& saved() const { return saved_; }
  double milliseconds() const;  // time since the timeline was made

  // For autograd and whoever runs steps; TimeSpan calls the first two. `name` lives as long as the
  // timeline. Empty: the name of the span around. `node`: see made(); 0: the layer of now.
  void begin(Kind kind, const char* name, uint64_t node = 0);
  void end();
  void op(const char* name);             // an op of the forward pass ends
  void reads(uint64_t storage);          // an op of the forward pass reads a storage
  void made(uint64_t node);              // an op has made the node of this number
  void keeps(std::vector<Saved> saved);  // all that is kept when the backward pass begins
  bool is_in(Kind kind) const;           // is a span of this kind open?
  int layer_of(uint64_t node) const;
  int layer() const { return layer_; }           // the next op has it
  void set_layer(int layer) { layer_ = layer; }  // a part of the forward pass runs again

 private:
  struct Open {
    Span span;
    double inside = 0;      // milliseconds of the spans inside
    double lap = 0;         // where the op that runs in it began
    double lap_inside = 0;  // milliseconds of the spans inside of that op
  };
  double now();
  void add(Span span);
  Device device_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Open> open_;
  std::vector<Span> spans_;
  std::vector<Saved> saved_;
  std::vector<std::string> layers_{""};
  std::map<std::string, int> layer_numbers_{{"", 0}};
  std::unordered_map<uint64_t, int> layer_of_storage_, layer_of_node_;
  int layer_ = 0;
};

// The active timeline of this thread, or null.
Timeline* active_timeline();

// Makes `timeline` the active one of this thread.
class TimelineScope {
 public:
  explicit TimelineScope(Timeline& timeline);
  ~TimelineScope();
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline* previous_;
};

// A span of the active timeline, if there is one, from here to the end of the scope.
class TimeSpan {
 public:
  explicit TimeSpan(Timeline::Kind kind, const char* name = "", uint64_t node = 0)
      : timeline_(active_timeline()) {
    if (timeline_ != nullptr) timeline_->begin(kind, name, node);
  }
  ~TimeSpan() {
    if (timeline_ != nullptr) timeline_->end();
  }
  TimeSpan(const TimeSpan&) = delete;
  TimeSpan& operator=(const TimeSpan&) = delete;

 private:
  Timeline* timeline_;
};

}  // namespace frugal
