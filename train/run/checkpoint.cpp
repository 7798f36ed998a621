#include "train/run/checkpoint.h"

#include "models/state.h"
#include "train/run/weights.h"

namespace frugal::train {
namespace {

// The arrays of what was learned are not part of the text of a state.
void share_state(const Ranks& ranks, RunState& state, CompressionState& compression) {
  const std::string text =
      ranks.communicator().broadcast(text_of(state, compression), 0, "the state of the run");
  NamedTensors arrays;
  for (const auto& [name, array] : compression.learned.arrays)
    arrays.emplace_back(name, Tensor::from(array, {static_cast<int64_t>(array.size())}));
  arrays = ranks.broadcast(arrays, "what the policy learned");
  if (ranks.rank() == 0) return;
  state = run_state_from(text, compression);
  for (const auto& [name, array] : arrays)
    compression.learned.arrays[name] = array.to_vector<float>();
}

}  // namespace

void share(const Ranks& ranks, Checkpoint& checkpoint) {
  if (ranks.alone()) return;
  const CategoryScope scope(Category::workspace);
  share_state(ranks, checkpoint.state, checkpoint.compression);
  checkpoint.model = ranks.broadcast(checkpoint.model, "the weights of the checkpoint");
  checkpoint.optimizer = ranks.broadcast(checkpoint.optimizer, "the optimizer of the checkpoint");
  checkpoint.exchange = ranks.broadcast(checkpoint.exchange, "what codes of gradients lost");
  checkpoint.path = ranks.communicator().broadcast(checkpoint.path, 0, "the checkpoint's path");
}

void apply(const Checkpoint& checkpoint, Module& model, Optimizer& optimizer) {
  for (const auto& [name, tensor] : checkpoint.model) check_finite(checkpoint.path, name, tensor);
  models::load_state_dict(model, checkpoint.model, checkpoint.path);
  optimizer.load_state(checkpoint.optimizer);
}

void share(const Ranks& ranks, CompressionState& state) {
  if (ranks.alone()) return;
  const CategoryScope scope(Category::workspace);
  RunState none;
  share_state(ranks, none, state);
}

std::vector<compress::Learned> gather(const Ranks& ranks, const compress::Learned& learned) {
  if (ranks.alone()) return {learned};
  CompressionState mine;
  mine.learned = learned;
  std::vector<compress::Learned> all;
  for (const std::string& text :
       ranks.communicator().all_gather(text_of({}, mine), "what the policies learned")) {
    CompressionState of_rank;
    run_state_from(text, of_rank);
    all.push_back(std::move(of_rank.learned));
  }
  return all;
}

}  // namespace frugal::train
