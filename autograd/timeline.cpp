#include "autograd/timeline.h"

#include <algorithm>

#include "core/error.h"
#include "core/memory/synchronize.h"

namespace frugal {
namespace {

thread_local Timeline* this_timeline = nullptr;

}  // namespace

Timeline* active_timeline() { return this_timeline; }
TimelineScope::TimelineScope(Timeline& timeline) : previous_(this_timeline) {
  this_timeline = &timeline;
}
TimelineScope::~TimelineScope() { this_timeline = previous_; }

Timeline::Timeline(Device device) : device_(device) {}

void Timeline::name_layer(uint64_t storage, const std::string& layer) {
  const auto [place, added] = layer_numbers_.emplace(layer, static_cast<int>(layers_.size()));
  if (added) layers_.push_back(layer);
  layer_of_storage_[storage] = place->second;
}

double Timeline::milliseconds() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
      .count();
}

double Timeline::now() {
  synchronize(device_);
  return milliseconds();
}

void Timeline::begin(Kind kind, const char* name, uint64_t node) {
  if (kind == Kind::phase) layer_ = 0;
  Open open;
  open.span.kind = kind;
  open.span.name = *name == '\0' && !open_.empty() ? open_.back().span.name : name;
  // What is unpacked and rebuilt belongs to the layer of the op whose backward runs.
  open.span.layer = node != 0                                 ? layer_of(node)
                    : !open_.empty() && is_in(Kind::backward) ? open_.back().span.layer
                                                              : layer_;
  open.span.begin = open.lap = now();
  open_.push_back(open);
}

void Timeline::end() {
  FRUGAL_ASSERT(!open_.empty());
  Open open = open_.back();
  open_.pop_back();
  open.span.end = now();
  open.span.own = open.span.end - open.span.begin - open.inside;
  add(open.span);
  // An op of the forward pass holds what is packed within it, and no pass.
  const bool is_part = open.span.kind == Kind::pack || open.span.kind == Kind::unpack ||
                       open.span.kind == Kind::rebuild;
  if (is_part || open_.empty()) return;
  open_.back().lap = open.span.end;
  open_.back().lap_inside = 0;
}

// Counts the span in the one around it.
void Timeline::add(Span span) {
  spans_.push_back(span);
  if (open_.empty()) return;
  open_.back().inside += span.end - span.begin;
  open_.back().lap_inside += span.end - span.begin;
}

void Timeline::op(const char* name) {
  if (open_.empty()) return;  // nobody knows where the op began
  Open& around = open_.back();
  Span span;
  span.kind = is_in(Kind::backward) ? Kind::rebuild : Kind::forward;
  span.name = name;
  span.layer = layer_;
  span.begin = around.lap;
  span.end = now();
  span.own = span.end - span.begin - around.lap_inside;
  spans_.push_back(span);
  around.inside += span.own;
  around.lap = span.end;
  around.lap_inside = 0;
}

void Timeline::reads(uint64_t storage) {
  const auto found = layer_of_storage_.find(storage);
  if (found != layer_of_storage_.end()) layer_ = found->second;
}

void Timeline::made(uint64_t node) { layer_of_node_[node] = layer_; }
void Timeline::keeps(std::vector<Saved> saved) { saved_ = std::move(saved); }

bool Timeline::is_in(Kind kind) const {
  return std::any_of(open_.begin(), open_.end(),
                     [&](const Open& open) { return open.span.kind == kind; });
}

int Timeline::layer_of(uint64_t node) const {
  const auto found = layer_of_node_.find(node);
  return found == layer_of_node_.end() ? 0 : found->second;
}

}  // namespace frugal
