#include "train/run/checkpoint.h"

#include "models/state.h"
#include "train/run/weights.h"

namespace frugal::train {
namespace {

// The arrays of what was learned are not part of the text of a state.
void share_state(const Ranks& ranks, RunState& state) {
  const std::string text =
      ranks.communicator().broadcast(text_of(state), 0, "the state of the run");
  NamedTensors arrays;
  for (const auto& [name, array] : state.compression.learned.arrays)
    arrays.emplace_back(name, Tensor::from(array, {static_cast<int64_t>(array.size())}));
  arrays = ranks.broadcast(arrays, "what the policy learned");
  if (ranks.rank() == 0) return;
  state = run_state_from(text);
  for (const auto& [name, array] : arrays)
    state.compression.learned.arrays[name] = array.to_vector<float>();
}

}  // namespace

void share(const Ranks& ranks, Checkpoint& checkpoint) {
  if (ranks.alone()) return;
  const CategoryScope scope(Category::workspace);
  share_state(ranks, checkpoint.state);
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

void share(const Ranks& ranks, Compression::State& state) {
  if (ranks.alone()) return;
  const CategoryScope scope(Category::workspace);
  RunState whole;
  whole.compression = std::move(state);
  share_state(ranks, whole);
  state = std::move(whole.compression);
}

std::vector<compress::Learned> gather(const Ranks& ranks, const compress::Learned& learned) {
  if (ranks.alone()) return {learned};
  RunState mine;
  mine.compression.learned = learned;
  std::vector<compress::Learned> all;
  for (const std::string& text :
       ranks.communicator().all_gather(text_of(mine), "what the policies learned"))
    all.push_back(run_state_from(text).compression.learned);
  return all;
}

}  // namespace frugal::train
