#include "train/step_recorder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "autograd/checkpoint.h"
#include "autograd/node.h"
#include "autograd/packed_pass.h"
#include "compress/offload/offload.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/wrapping_policy.h"
#include "core/integers.h"
#include "core/stopwatch.h"
#include "train/policy_parts.h"

namespace frugal::train {
namespace {

constexpr int64_t kBlock = 64;  // the allocator counts whole blocks

int64_t accounted(const Storage& storage) { return ceil_div(storage.bytes(), kBlock) * kBlock; }

bool counts_as_saved(Category category) {
  return category == Category::activation || category == Category::packed;
}

// Each node once, the oldest first.
std::vector<Node*> nodes_below(const Variable& root) {
  std::vector<Node*> nodes, pending{root.producer().get()};
  std::unordered_set<const Node*> seen;
  while (!pending.empty()) {
    Node* const node = pending.back();
    pending.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    nodes.push_back(node);
    for (const Edge& edge : node->inputs) pending.push_back(edge.node.get());
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->number < b->number; });
  return nodes;
}

int64_t total_of(const CategoryBytes& live) {
  return std::accumulate(live.begin(), live.end(), int64_t{0});
}

std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// How many items of the leading axis are looked at to measure an error.
int64_t measured_rows(const Shape& shape) {
  if (shape.dim() == 0 || shape.numel() == 0) return 1;
  return std::clamp<int64_t>(SavedRecord::kMeasured / (shape.numel() / shape[0]), 1, shape[0]);
}

std::vector<float> first_rows(const Tensor& tensor, int64_t rows) {
  const bool whole = tensor.dim() == 0 || rows == tensor.size(0);
  return (whole ? tensor : tensor.slice(0, 0, rows)).to_vector<float>();
}

}  // namespace

std::string_view name_of(SavedRecord::How how) {
  using How = SavedRecord::How;
  switch (how) {
    case How::kept:
      return "kept";
    case How::in_memory:
      return "in memory";
    case How::packed:
      return "packed";
    case How::moved:
      return "moved";
    case How::rebuilt:
      break;
  }
  return "rebuilt";
}

std::string_view name_of(MemoryCurve::Phase phase) {
  using Phase = MemoryCurve::Phase;
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      break;
  }
  return "update";
}

// Another one's packed tensor, with the time that it takes.
class StepRecorder::Recorded final : public Packed {
 public:
  Recorded(std::unique_ptr<Packed> inner, double& seconds)
      : inner_(std::move(inner)), seconds_(seconds) {}
  Tensor unpack() const override {
    const Stopwatch watch(seconds_);
    return inner_->unpack();
  }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    const Stopwatch watch(seconds_);
    return inner_->unpack_rows(begin, end);
  }
  void prefetch() override { inner_->prefetch(); }
  Tensor unpack_sign() const override {
    const Stopwatch watch(seconds_);
    return inner_->unpack_sign();
  }
  bool carries_sign() const override { return inner_->carries_sign(); }
  bool serves_one_op() const override { return inner_->serves_one_op(); }
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override {
    const Stopwatch watch(seconds_);
    return inner_->unpack_sign_rows(begin, end);
  }
  bool run(PackedPass& pass) const override {
    const Stopwatch watch(seconds_);
    return inner_->run(pass);
  }
  bool knows_variance() const override { return inner_->knows_variance(); }
  bool loses_nothing() const override { return inner_->loses_nothing(); }

 private:
  std::unique_ptr<Packed> inner_;
  double& seconds_;
};

class StepRecorder::RecordingCodec final : public Codec {
 public:
  RecordingCodec(StepRecorder& recorder, const Codec& inner) : recorder_(recorder), inner_(inner) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    return timed(tensor, info, [&] { return inner_.pack(tensor, info); });
  }
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override {
    return timed(tensor, info, [&] { return inner_.pack_and_run(tensor, info, pass); });
  }
  std::unique_ptr<SlicePacker> pack_slices(const Tensor& like, const SaveInfo& info) const override;

 private:
  class Slices;
  template <class Pack>
  std::unique_ptr<Packed> timed(const Tensor& tensor, const SaveInfo& info,
                                const Pack& pack) const {
    const auto live = [&] { return allocator(recorder_.device_).report().of(Category::packed); };
    SavedRecord& record = recorder_.decided_.at(info.seq).record;
    const int64_t before = live();
    std::unique_ptr<Packed> packed;
    {
      const Stopwatch watch(record.pack_seconds);
      packed = pack();
    }
    if (packed == nullptr) return nullptr;
    recorder_.note_packed(info, *packed, live() - before, tensor.shape(),
                          [&](int64_t rows) { return first_rows(tensor, rows); });
    return std::make_unique<Recorded>(std::move(packed), record.unpack_seconds);
  }
  StepRecorder& recorder_;
  const Codec& inner_;
};

// Another one's slices, with the time that packing them takes and the values that errors are
// measured at.
class StepRecorder::RecordingCodec::Slices final : public SlicePacker {
 public:
  Slices(StepRecorder& recorder, std::unique_ptr<SlicePacker> inner, const Shape& shape,
         const SaveInfo& info, int64_t bytes)
      : recorder_(recorder),
        inner_(std::move(inner)),
        shape_(shape),
        info_(info),
        bytes_(bytes),
        wanted_(recorder.measures_errors_ ? measured_rows(shape) : 0) {}
  int64_t unit() const override { return inner_->unit(); }
  bool carries_sign() const override { return inner_->carries_sign(); }
  void add(const Tensor& rows, const Tensor& mask) override {
    {
      const Stopwatch watch(recorder_.decided_.at(info_.seq).record.pack_seconds);
      inner_->add(rows, mask);
    }
    const int64_t taken = std::min(wanted_, rows.size(0));
    if (taken == 0) return;
    const std::vector<float> values = first_rows(rows, taken);
    values_.insert(values_.end(), values.begin(), values.end());
    wanted_ -= taken;
  }
  std::unique_ptr<Packed> finish() override {
    std::unique_ptr<Packed> packed = inner_->finish();
    recorder_.note_packed(info_, *packed, bytes_, shape_, [&](int64_t) { return values_; });
    return std::make_unique<Recorded>(std::move(packed),
                                      recorder_.decided_.at(info_.seq).record.unpack_seconds);
  }

 private:
  StepRecorder& recorder_;
  std::unique_ptr<SlicePacker> inner_;
  Shape shape_;
  SaveInfo info_;
  int64_t bytes_;
  int64_t wanted_;  // rows
  std::vector<float> values_;
};

std::unique_ptr<SlicePacker> StepRecorder::RecordingCodec::pack_slices(const Tensor& like,
                                                                       const SaveInfo& info) const {
  const auto live = [&] { return allocator(recorder_.device_).report().of(Category::packed); };
  const int64_t before = live();
  std::unique_ptr<SlicePacker> inner = inner_.pack_slices(like, info);
  if (inner == nullptr) return nullptr;
  return std::make_unique<Slices>(recorder_, std::move(inner), like.shape(), info, live() - before);
}

class StepRecorder::RecordingPolicy final : public compress::StandInPolicy {
 public:
  RecordingPolicy(StepRecorder& recorder, SavePolicy& inner)
      : StandInPolicy(inner), recorder_(recorder) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = inner().decide(info, value);
    if (recomputing()) return decision;  // it is gone before the backward function has ended
    // An op saves its tensors when its output is there, so the work before belongs to it, too.
    Moment& before = recorder_.moments_.back();
    if (!before.seq) {
      before.seq = info.seq;
      before.op = info.op;
    }
    Row& row = recorder_.decided_[info.seq];
    row.decided = decision.what;
    row.born = recorder_.moments_.size();
    row.record.op = info.op;
    row.record.slot = info.slot;
    row.record.seq = info.seq;
    row.record.shape = value.shape();
    row.record.raw_bytes = value.nbytes();
    if (decision.what != Decision::pack) {
      recorder_.mark({MemoryCurve::Phase::forward});
      return decision;
    }
    recorder_.mark({MemoryCurve::Phase::forward, 0, info.seq, "", info.op});
    if (decision.codec->moves()) row.record.how = SavedRecord::How::moved;
    auto& codec = codecs_[decision.codec];
    if (codec == nullptr) codec = std::make_unique<RecordingCodec>(recorder_, *decision.codec);
    decision.codec = codec.get();
    return decision;
  }
  bool decides_by_shape() const override { return inner().decides_by_shape(); }
  BackwardObserver* observer() override { return inner().observer(); }

 private:
  StepRecorder& recorder_;
  std::map<const Codec*, std::unique_ptr<RecordingCodec>> codecs_;
};

StepRecorder::StepRecorder(Module& model, Optimizer& optimizer, SavePolicy* policy)
    : device_(model.device()), optimizer_(optimizer) {
  if (policy != nullptr) {
    policy_ = std::make_unique<RecordingPolicy>(*this, *policy);
    // To unpack what a wrapper keeps moves bytes or decodes them, so errors are not measured there.
    const PolicyParts parts(*policy);
    offloads_ = parts.offload != nullptr;
    measures_errors_ = !parts.is_wrapped && device_.type != DeviceType::meta;
  }
  for (const auto& p : model.parameters()) {
    const Tensor& value = p.parameter->value();
    if (const auto& leaf = p.parameter->accumulator(); leaf != nullptr)
      leaf_of_[leaf.get()] = leaves_.size();
    leaf_by_storage_[value.storage()->id()] = leaves_.size();
    leaves_.push_back({p.name, layer_of(p.name), value.shape(), value.nbytes(),
                       p.parameter->accumulator() != nullptr});
  }
  trace_.emplace(device_);
  mark({MemoryCurve::Phase::forward});
}

StepRecorder::~StepRecorder() = default;

SavePolicy* StepRecorder::policy() const { return policy_.get(); }

// MemoryTrace notes the address with each event. The addresses live as long as the trace.
void StepRecorder::mark(Moment moment) {
  marks_.push_back('\0');
  moment_at_[&marks_.back()] = moments_.size();
  moments_.push_back(std::move(moment));
  MemoryTrace::mark(&marks_.back());
}

void StepRecorder::next_batch() { mark({MemoryCurve::Phase::forward}); }
void StepRecorder::update() { mark({MemoryCurve::Phase::update}); }

void StepRecorder::note_packed(const SaveInfo& info, const Packed& packed, int64_t bytes,
                               const Shape& shape, const FirstRows& values) {
  SavedRecord& record = decided_.at(info.seq).record;
  if (record.how != SavedRecord::How::moved) record.how = SavedRecord::How::packed;
  record.stored_bytes = bytes;
  if (offloads_) record.stored_bytes.reset();
  if (device_.type == DeviceType::cuda) record.pack_seconds = 0;
  if (measures_errors_) {
    StepMemory so_far;
    end_peak(device_, so_far);
    before_.raise(so_far);
    Moment aside = moments_.back();
    aside.aside = true;
    mark(std::move(aside));
    try {
      record.error = error_of(packed, shape, values);
    } catch (const OutOfMemory&) {
      // A run within a memory limit may have no room for it.
    }
    begin_peak(device_);
  }
  mark({MemoryCurve::Phase::forward});
}

std::optional<double> StepRecorder::error_of(const Packed& packed, const Shape& shape,
                                             const FirstRows& values) {
  const CategoryScope scope(Category::workspace);
  if (shape.numel() == 0) return std::nullopt;
  const int64_t taken = measured_rows(shape);
  const bool whole = shape.dim() == 0 || taken == shape[0];
  const std::vector<float> got =
      (whole ? packed.unpack() : packed.unpack_rows(0, taken)).to_vector<float>();
  const std::vector<float> wanted = values(taken);
  double squares = 0, errors = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double by = static_cast<double>(got[i]) - wanted[i];
    errors += by * by;
    squares += static_cast<double>(wanted[i]) * wanted[i];
  }
  const double error = errors == 0 ? 0 : std::sqrt(errors / squares);
  return std::isfinite(error) ? std::optional(error) : std::nullopt;
}

StepMemory StepRecorder::with_peak(StepMemory memory) const {
  StepMemory whole = before_;  // it came first, so it wins where both are equal
  whole.raise(memory);
  return whole;
}

void StepRecorder::before_backward(const Variable& loss, const StepMemory& memory) {
  between_ = memory;
  std::string layer;
  for (Node* const node : nodes_below(loss)) {
    bool named = false;
    for (const Edge& edge : node->inputs) {
      const auto leaf = leaf_of_.find(edge.leaf.get());
      if (edge.leaf == nullptr || leaf == leaf_of_.end()) continue;
      Leaf& used = leaves_[leaf->second];
      if (used.first_use == 0) used.first_use = node->number;
      if (!std::exchange(named, true)) layer = used.layer;
    }
    for (int slot = 0; slot < node->slots.size() && !named; ++slot) {  // frozen parameters
      const SavedTensor& saved = node->slots[slot];
      if (!saved.defined() || saved.role() != Role::weight || !saved.is_raw()) continue;
      const auto leaf = leaf_by_storage_.find(saved.unpack().storage()->id());
      if (leaf == leaf_by_storage_.end()) continue;
      layer = leaves_[leaf->second].layer;
      named = true;
    }
    for (int slot = 0; slot < node->slots.size(); ++slot) note_slot(*node, slot, layer);
    if (node->backward)
      node->backward = [this, layer, op = node->op, number = node->number,
                        run = std::move(node->backward)](const Backward& b) {
        mark({MemoryCurve::Phase::backward, number, std::nullopt, layer, op});
        return run(b);
      };
  }
  for (Moment& moment : moments_)
    if (moment.seq) moment.layer = decided_.at(*moment.seq).record.layer;
  mark({MemoryCurve::Phase::backward});
}

void StepRecorder::note_slot(const Node& node, int slot, const std::string& layer) {
  const SavedTensor& saved = node.slots[slot];
  if (!saved.defined() || saved.role() == Role::weight) return;
  const std::vector<uint64_t> sources = saved.rests_on();
  const auto use = [&](Row& row) {
    if (row.last_use == 0) row.last_use = node.number;
    if (std::exchange(row.found, true)) return false;
    row.order = rows_++;
    row.record.layer = layer;
    return true;
  };
  for (const uint64_t seq : sources)
    if (saved.is_recipe())
      if (const auto row = decided_.find(seq); row != decided_.end() && row->second.last_use == 0)
        row->second.last_use = node.number;
  if (saved.is_recipe()) {
    // The first tensor that was decided about and was not met yet, if it is this one: another op
    // may have saved the same tensor before.
    const auto next = std::find_if(decided_.begin(), decided_.end(),
                                   [](const auto& item) { return !item.second.found; });
    if (next == decided_.end()) return;
    Row& row = next->second;
    if (row.decided != Decision::rebuild || row.record.op != node.op || row.record.slot != slot ||
        row.record.shape.numel() != saved.shape().numel())
      return;
    use(row);
    row.record.how = SavedRecord::How::rebuilt;
    row.record.shape = saved.shape();
    return;
  }
  if (!saved.is_raw()) {
    const auto row = sources.empty() ? decided_.end() : decided_.find(sources.front());
    if (row == decided_.end()) return;  // a mask that codes carry
    use(row->second);
    row->second.record.shape = saved.shape();
    return;
  }
  const Tensor value = saved.unpack();
  const Storage& storage = *value.storage();
  if (storage.category() == Category::parameter) return;
  const auto known = sources.empty() ? decided_.end() : decided_.find(sources.front());
  Row& row = known != decided_.end() ? known->second : undecided_[{storage.id(), value.offset()}];
  if (!use(row)) return;
  row.record.op = node.op;
  row.record.slot = slot;
  row.record.shape = saved.shape();
  row.record.raw_bytes = value.nbytes();
  row.record.error.reset();
  row.record.how = SavedRecord::How::kept;
  row.record.stored_bytes = 0;
  if (!counts_as_saved(storage.category()))
    row.record.how = SavedRecord::How::in_memory;
  else if (counted_.insert(storage.id()).second)
    row.record.stored_bytes = accounted(storage);
}

StepRecord StepRecorder::finish(const StepMemory& memory) {
  StepRecord record;
  record.memory = memory;
  record.memory.activation = between_.activation;
  record.memory.packed = between_.packed;
  trace_->stop();
  if (!offloads_) record.curve = curve();
  trace_.reset();
  std::vector<const Row*> rows;
  for (const auto& [seq, row] : decided_)
    if (row.found) rows.push_back(&row);
  for (const auto& [place, row] : undecided_) rows.push_back(&row);
  std::sort(rows.begin(), rows.end(),
            [](const Row* a, const Row* b) { return a->order < b->order; });
  for (const Row* row : rows) {
    record.tensors.push_back(row->record);
    if (device_.type == DeviceType::cuda) record.tensors.back().unpack_seconds = 0;
  }
  return record;
}

MemoryCurve StepRecorder::curve() const {
  struct Event {
    size_t moment;
    const CategoryBytes* live;
  };
  std::vector<Event> events;
  size_t moment = 0;
  for (const MemoryTrace::Event& event : trace_->events()) {
    // Others mark phases, too; then the moment stays.
    if (const auto at = moment_at_.find(event.phase); at != moment_at_.end()) moment = at->second;
    if (!moments_[moment].aside) events.push_back({moment, &event.live});
  }
  MemoryCurve curve;
  curve.events = static_cast<int64_t>(events.size());
  if (events.empty()) return curve;
  const size_t points = std::min(MemoryCurve::kPoints, events.size());
  size_t highest = 0;
  for (size_t i = 0; i < points; ++i) {
    size_t top = i * events.size() / points;
    for (size_t k = top; k < (i + 1) * events.size() / points; ++k)
      if (total_of(*events[k].live) > total_of(*events[top].live)) top = k;
    if (i == 0 || total_of(*events[top].live) > total_of(*events[highest].live)) {
      highest = top;
      curve.peak = i;
    }
    curve.points.push_back({moments_[events[top].moment].phase, *events[top].live});
  }
  const Moment& at = moments_[events[highest].moment];
  curve.layer = at.layer;
  curve.op = at.op;
  name_largest(curve, at, events[highest].moment, *events[highest].live);
  return curve;
}

// What is left of a category after the tensors that are known is one part without a name.
void StepRecorder::name_largest(MemoryCurve& curve, const Moment& at, size_t moment,
                                const CategoryBytes& live) const {
  using Phase = MemoryCurve::Phase;
  std::vector<MemoryCurve::Part> parts;
  CategoryBytes left = live;
  const auto add = [&](Category category, const std::string& name, const std::string& op,
                       const Shape& shape, int64_t bytes) {
    int64_t& rest = left[static_cast<size_t>(category)];
    bytes = std::min(bytes, rest);
    if (bytes <= 0) return;
    rest -= bytes;
    parts.push_back({category, name, op, shape, bytes});
  };
  const auto add_saved = [&](const Row& row) {
    const bool alive = at.phase == Phase::forward    ? row.born <= moment
                       : at.phase == Phase::backward ? at.node == 0 || row.last_use <= at.node
                                                     : false;
    if (!row.found || !alive || !row.record.stored_bytes) return;
    add(row.record.how == SavedRecord::How::packed ? Category::packed : Category::activation,
        row.record.layer, row.record.op, row.record.shape, *row.record.stored_bytes);
  };
  for (const auto& [seq, row] : decided_) add_saved(row);
  for (const auto& [place, row] : undecided_) add_saved(row);
  for (const Leaf& leaf : leaves_) {
    add(Category::parameter, leaf.name, "", leaf.shape, leaf.bytes);
    const bool complete = at.phase == Phase::update ||
                          (at.phase == Phase::backward && at.node > 0 && leaf.first_use > at.node);
    if (leaf.trained && complete) add(Category::gradient, leaf.name, "", leaf.shape, leaf.bytes);
  }
  for (const auto& [name, tensor] : optimizer_.own_state())
    add(Category::optimizer, name, "", tensor.shape(), tensor.nbytes());
  for (size_t i = 0; i < kCategories; ++i)
    if (left[i] > 0) parts.push_back({static_cast<Category>(i), "", "", {}, left[i]});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (parts.size() > MemoryCurve::kLargest) parts.resize(MemoryCurve::kLargest);
  curve.largest = std::move(parts);
}

}  // namespace frugal::train
