#include "distributed/agreement.h"

#include <algorithm>
#include <cstring>

#include "core/fnv.h"
#include "ops/dense/copy.h"

namespace frugal::distributed {
namespace {

// By words of 8 bytes.
uint64_t hash_of(const void* data, size_t bytes) {
  Fnv1a hash;
  const auto* at = static_cast<const char*>(data);
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min<size_t>(8, bytes - i));
    hash.add(word);
    hash.fold(29);
  }
  return hash.value();
}

std::string describe_parameter(const NamedVariables& parameters, size_t i) {
  const auto& [name, parameter] = parameters[i];
  return fmt::format("{} {} {}", name, parameter.shape(), name_of(parameter.dtype()));
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void check_same_parameters(Communicator& communicator, const NamedVariables& parameters) {
  if (communicator.size() == 1) return;
  std::string text;
  for (size_t i = 0; i < parameters.size(); ++i) text += describe_parameter(parameters, i) + '\n';
  const uint64_t value = hash_of(text.data(), text.size());
  const CategoryScope scope(Category::workspace);
  const Tensor hashes = Tensor::zeros({communicator.size()}, DType::i64);
  auto* const all = hashes.mut<int64_t>();
  std::memcpy(all + communicator.rank(), &value, sizeof value);
  communicator.all_gather(hashes, "hashes of the parameters' names and shapes");
  bool same = true;
  for (int r = 1; r < communicator.size(); ++r) same = same && all[r] == all[0];
  if (same) return;
  // All ranks see that, so all of them take part in this.
  const std::vector<std::string> texts =
      communicator.all_gather(text, "the parameters' names and shapes");
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const std::vector<std::string> first = lines_of(texts[0]), other = lines_of(texts[r]);
    size_t at = 0;
    while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
    throw Error(fmt::format(
        "[distributed] expected all ranks to have the same parameters, got {} on rank 0 and {} on "
        "rank {}. Number {} is {} on rank 0 and {} on rank {}",
        first.size(), other.size(), r, at, at < first.size() ? first[at] : "missing",
        at < other.size() ? other[at] : "missing", r));
  }
}

void broadcast_values(Communicator& communicator, const NamedTensors& tensors, int root) {
  std::vector<Pending> pending;
  for (const auto& [name, tensor] : tensors)
    pending.push_back(communicator.begin_broadcast(tensor, root, name));
  for (Pending& each : pending) each.wait();
}

void check_same_values(Communicator& communicator, const NamedTensors& tensors) {
  if (communicator.size() == 1) return;
  const auto count = static_cast<int64_t>(tensors.size());
  const CategoryScope scope(Category::workspace);
  const Tensor hashes = Tensor::zeros({communicator.size(), count}, DType::i64);
  auto* const all = hashes.mut<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& tensor = tensors[static_cast<size_t>(i)].second;
    if (tensor.device() == kMeta) continue;
    const Tensor here = to_device(ops::contiguous(tensor), kCpu);
    const uint64_t value = hash_of(here.raw(), static_cast<size_t>(here.nbytes()));
    std::memcpy(all + communicator.rank() * count + i, &value, sizeof value);
  }
  Bounds bounds;
  for (int64_t r = 0; r <= communicator.size(); ++r) bounds.push_back(r * count);
  communicator.all_gather(hashes, bounds, "hashes of values");
  for (int64_t r = 1; r < communicator.size(); ++r)
    for (int64_t i = 0; i < count; ++i)
      FRUGAL_CHECK(all[r * count + i] == all[i],
                   "[distributed] expected equal values on all ranks, but '{}' of rank {} differs "
                   "from that of rank 0",
                   tensors[static_cast<size_t>(i)].first, r);
}

}  // namespace frugal::distributed
