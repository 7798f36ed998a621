#include "apps/cli/plan_explain.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "apps/cli/report.h"
#include "apps/config/keys/config_readers.h"
#include "apps/text/wrapped.h"
#include "core/words/nouns.h"
#include "train/planning/bytes.h"
#include "train/planning/way_steps.h"

namespace frugal::apps {
namespace {

using How = SavedRecord::How;

int64_t stored(const SavedRecord& record) { return record.stored_bytes.value_or(0); }

// Names a tensor alike in all steps, however they keep it: the order of a layer's tensors is fixed.
using Place = std::tuple<std::string, std::string, int, std::vector<int64_t>>;
Place place_of(const SavedRecord& record) {
  return {record.layer, record.op, record.slot, {record.shape.begin(), record.shape.end()}};
}
class Others {
 public:
  explicit Others(const std::vector<SavedRecord>& records) {
    for (const SavedRecord& record : records) {
      if (record.seq) by_seq_[*record.seq] = &record;
      by_place_[place_of(record)] = &record;
    }
  }
  const SavedRecord* find(const SavedRecord& record) const {
    if (record.seq) {
      const auto found = by_seq_.find(*record.seq);
      return found == by_seq_.end() ? nullptr : found->second;
    }
    const auto found = by_place_.find(place_of(record));
    return found == by_place_.end() ? nullptr : found->second;
  }

 private:
  std::map<uint64_t, const SavedRecord*> by_seq_;
  std::map<Place, const SavedRecord*> by_place_;
};

constexpr const char* kPacked = "compression.bits=2";

std::string lower_of(const Config& config, const SavedRecord& record, const Others& packed) {
  if (stored(record) == 0) return "";
  const SavedRecord* other = packed.find(record);
  if (other == nullptr) return fmt::format("{}: in the codes of a neighbour", kPacked);
  if (other->how == How::rebuilt) return fmt::format("{}: rebuilt", kPacked);
  if (stored(*other) < stored(record))
    return fmt::format("{}: {}", kPacked, short_bytes(stored(*other)));
  if (is_read(config, "train.checkpointing") && !config.train.checkpointing)
    return "train.checkpointing=true: recomputed, unless a block begins with it";
  if (config.compression.offload.empty() && record.how == How::packed)
    return "compression.offload: in a file";
  return is_read(config, "data.batch_size") ? "a smaller data.batch_size" : "";
}

std::string how_text(const Explanation::Tensor& tensor) {
  const std::string name(name_of(tensor.record.how));
  return tensor.record.how == How::packed ? fmt::format("{:.2f} bits", tensor.bits) : name;
}

}  // namespace

Explanation explain_step(const Config& config, const train::PlannedRun& run,
                         train::WaySteps& steps) {
  const StepRecord now = steps.record(own_way(run));
  train::Way two_bits = bits_way(run, 2);
  two_bits.checkpointed_blocks = run.options.checkpointed_blocks;
  if (run.complete) run.complete(two_bits);
  const StepRecord packed = steps.record(two_bits);
  const Others others(packed.tensors);
  Explanation result;
  result.memory = now.memory;
  result.rest = now.memory.saved();
  std::vector<const SavedRecord*> order;
  std::map<std::string, Explanation::Op> ops;
  for (const SavedRecord& record : now.tensors) {
    Explanation::Op& op = ops[record.op];
    op.name = record.op;
    ++op.tensors;
    op.rebuilt += record.how == How::rebuilt ? 1 : 0;
    op.bytes += stored(record);
    result.rest -= stored(record);
    if (stored(record) > 0) order.push_back(&record);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return stored(*a) > stored(*b); });
  for (const SavedRecord* record : order) {
    if (result.largest.size() == Explanation::kLargest) {
      ++result.others;
      result.other_bytes += stored(*record);
      continue;
    }
    const auto elements = static_cast<double>(std::max<int64_t>(record->shape.numel(), 1));
    result.largest.push_back({*record, 8 * static_cast<double>(stored(*record)) / elements,
                              lower_of(config, *record, others)});
  }
  for (auto& [name, op] : ops) result.ops.push_back(std::move(op));
  std::stable_sort(result.ops.begin(), result.ops.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

std::string text_of(const Explanation& explanation) {
  std::string text = fmt::format("saved for the backward pass: {}; peak of the step: {}\n",
                                 readable_bytes(explanation.memory.saved()),
                                 readable_bytes(explanation.memory.peak));
  for (const Explanation::Tensor& tensor : explanation.largest) {
    const SavedRecord& r = tensor.record;
    text += fmt::format("{:>6}  {:<10} {} {}\n", short_bytes(stored(r)), how_text(tensor), r.op,
                        r.shape.str()) +
            wrapped(fmt::format("        {}{}\n", r.layer,
                                tensor.lower.empty() ? "" : "; " + tensor.lower));
  }
  if (explanation.others > 0)
    text += fmt::format("{:>6}  {}\n", short_bytes(explanation.other_bytes),
                        with_noun(explanation.others, "other tensor"));
  if (explanation.rest > 0)
    text +=
        fmt::format("{:>6}  no op's tensor, or moved to a file\n", short_bytes(explanation.rest));
  std::vector<std::vector<std::string>> rows = {{"op", "saves", "rebuilt", "bytes"}};
  for (const Explanation::Op& op : explanation.ops)
    rows.push_back(
        {op.name, std::to_string(op.tensors), std::to_string(op.rebuilt), short_bytes(op.bytes)});
  return text + "\n" + table(rows);
}

Json to_json(const Explanation& explanation) {
  Json tensors = Json::array(), ops = Json::array();
  for (const Explanation::Tensor& tensor : explanation.largest) {
    const SavedRecord& r = tensor.record;
    tensors.push_back({{"layer", r.layer},
                       {"op", r.op},
                       {"shape", std::vector<int64_t>(r.shape.begin(), r.shape.end())},
                       {"kept", name_of(r.how)},
                       {"bits", tensor.bits},
                       {"raw_bytes", r.raw_bytes},
                       {"stored_bytes", stored(r)},
                       {"lower", tensor.lower}});
  }
  for (const Explanation::Op& op : explanation.ops)
    ops.push_back({{"op", op.name},
                   {"tensors", op.tensors},
                   {"rebuilt", op.rebuilt},
                   {"stored_bytes", op.bytes}});
  Json memory = memory_json(explanation.memory);
  memory.erase("host_peak_rss");
  return {{"memory", memory},
          {"largest", tensors},
          {"others", {{"tensors", explanation.others}, {"stored_bytes", explanation.other_bytes}}},
          {"rest_bytes", explanation.rest},
          {"ops", ops}};
}

}  // namespace frugal::apps
