#include "train/ranks/ranks.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/random/random_streams.h"
#include "distributed/agreement.h"
#include "ops/dense/copy.h"

namespace frugal::train {
namespace {

template <class T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Name, dtype and shape.
void put_form(std::string& bytes, const std::string& name, const Tensor& tensor) {
  put(bytes, static_cast<int64_t>(name.size()));
  bytes += name;
  put(bytes, tensor.dtype());
  put(bytes, tensor.dim());
  for (int a = 0; a < tensor.dim(); ++a) put(bytes, tensor.size(a));
}

class Bytes {
 public:
  explicit Bytes(const std::string& bytes) : bytes_(bytes) {}
  bool ended() const { return at_ == bytes_.size(); }
  const char* take(size_t size) {
    FRUGAL_CHECK(size <= bytes_.size() - at_,
                 "[ranks] expected {} more bytes of tensors, got {}: do all ranks run the same "
                 "program?",
                 size, bytes_.size() - at_);
    const char* const here = bytes_.data() + at_;
    at_ += size;
    return here;
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  // What put_form() wrote, with a tensor that is not filled.
  std::pair<std::string, Tensor> take_form() {
    const auto length = static_cast<size_t>(take<int64_t>());
    std::string name(take(length), length);
    const auto dtype = take<DType>();
    Shape shape;
    for (int a = take<int>(); a > 0; --a) shape.push_back(take<int64_t>());
    return {std::move(name), Tensor::empty(shape, dtype)};
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

// A row of numbers of each rank, on all ranks.
Tensor gathered(distributed::Communicator& all, std::span<const double> row, const char* what) {
  const CategoryScope scope(Category::workspace);
  const auto n = static_cast<int64_t>(row.size());
  const Tensor rows = Tensor::zeros({all.size(), n}, DType::f64);
  std::copy(row.begin(), row.end(), rows.mut<double>() + all.rank() * n);
  distributed::Bounds bounds;
  for (int64_t r = 0; r <= all.size(); ++r) bounds.push_back(r * n);
  all.all_gather(rows, bounds, what);
  return rows;
}

}  // namespace

std::vector<by_name::Option<RanksOptions>> RanksOptions::list() {
  namespace range = by_name::range;
  using Buckets = distributed::BucketOptions;
  const by_name::Option<Buckets> bytes{
      by_name::without_effect(
          {"bucket_bytes", range::bytes(),
           "Gradients are added up over the ranks in buckets of so many bytes, while the backward "
           "pass goes on; the first has 1 MiB."}),
      &Buckets::bytes};
  return {option_of(&RanksOptions::buckets, bytes),
          {{"sync_batch_norm", range::flag(),
            "Batch norms use the statistics of the whole batch, as one process does; false: those "
            "of a rank's share."},
           &RanksOptions::sync_batch_norm},
          {{"compress_gradients", range::multiple(4, 0, 8),
            "Gradients go between ranks in codes of so many bits, 8 or 4, and what the codes lose "
            "is added in the next step; 0: as they are."},
           &RanksOptions::compress_gradients}};
}

uint64_t seed_of_rank(uint64_t seed, int rank) {
  if (rank == 0) return seed;
  const auto words = philox(streams::kRankSeeds.key(seed), static_cast<uint64_t>(rank));
  return uint64_t{words[0]} << 32 | words[1];
}

Ranks::Ranks(const RanksOptions& options)
    : communicator_(options.communicator != nullptr ? options.communicator : distributed::alone()) {
}

double Ranks::sum(double value, const char* what) const {
  return communicator_->all_reduce(value, distributed::Reduction::sum, what);
}

int64_t Ranks::most(int64_t value, const char* what) const {
  if (alone()) return value;
  const CategoryScope scope(Category::workspace);
  const Tensor x = Tensor::from<int64_t>({value}, {1});
  communicator_->all_reduce(x, distributed::Reduction::max, what);
  return x.item<int64_t>();
}

std::vector<BatchResult> Ranks::sum(std::vector<BatchResult> results, double& weighted,
                                    int64_t& units) const {
  if (alone()) return results;
  std::vector<double> row = {weighted, static_cast<double>(units)};
  for (const BatchResult& result : results)
    row.insert(row.end(),
               {result.loss, result.weight, static_cast<double>(result.counted),
                static_cast<double>(result.correct), static_cast<double>(result.samples)});
  const Tensor rows = gathered(*communicator_, row, "results of the batches");
  const auto at = [&](int64_t rank, size_t i) {
    return rows.data<double>()[rank * static_cast<int64_t>(row.size()) + static_cast<int64_t>(i)];
  };
  weighted = 0;
  units = 0;
  for (int64_t r = 0; r < size(); ++r) {
    weighted += at(r, 0);
    units += static_cast<int64_t>(at(r, 1));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    BatchResult& result = results[i];
    double loss = 0;
    result.counted = result.correct = result.samples = 0;
    result.weight = 0;
    for (int64_t r = 0; r < size(); ++r) {
      const size_t first = 2 + 5 * i;
      const double weight = at(r, first + 1);
      // A loss that is not finite stays visible where nothing counted.
      loss += weight > 0 ? at(r, first) * weight : at(r, first) * 0;
      result.weight += weight;
      result.counted += static_cast<int64_t>(at(r, first + 2));
      result.correct += static_cast<int64_t>(at(r, first + 3));
      result.samples += static_cast<int64_t>(at(r, first + 4));
    }
    result.loss = result.weight > 0 ? loss / result.weight : loss;
  }
  return results;
}

StepMemory Ranks::most(const StepMemory& memory) const {
  if (alone()) return memory;
  std::vector<double> row = {
      static_cast<double>(memory.activation), static_cast<double>(memory.packed),
      static_cast<double>(memory.packed_elements), static_cast<double>(memory.peak)};
  for (const int64_t bytes : memory.at_peak) row.push_back(static_cast<double>(bytes));
  const Tensor rows = gathered(*communicator_, row, "the memory of a step");
  StepMemory most;
  for (int64_t r = 0; r < size(); ++r) {
    const auto* const numbers = rows.data<double>() + r * static_cast<int64_t>(row.size());
    const auto number = [&](size_t i) { return static_cast<int64_t>(numbers[i]); };
    StepMemory other;
    other.activation = number(0);
    other.packed = number(1);
    other.packed_elements = number(2);
    other.peak = number(3);
    for (size_t i = 0; i < other.at_peak.size(); ++i) other.at_peak[i] = number(4 + i);
    most.raise(other);
  }
  return most;
}

std::vector<double> Ranks::mean(const std::vector<uint64_t>& keys, std::vector<double> values,
                                const char* what) const {
  if (alone()) return values;
  std::string mine;
  for (size_t i = 0; i < keys.size(); ++i) {
    put(mine, keys[i]);
    put(mine, values[i]);
  }
  struct Sum {
    double sum = 0, count = 0;
  };
  std::map<uint64_t, Sum> sums;
  for (const std::string& theirs : communicator_->all_gather(mine, what))
    for (Bytes bytes(theirs); !bytes.ended();) {
      Sum& sum = sums[bytes.take<uint64_t>()];
      sum.sum += bytes.take<double>();
      ++sum.count;
    }
  for (size_t i = 0; i < keys.size(); ++i) {
    const Sum& sum = sums.at(keys[i]);
    values[i] = sum.sum / sum.count;
  }
  return values;
}

std::optional<std::vector<double>> Ranks::mean(const std::optional<std::vector<double>>& values,
                                               const char* what) const {
  if (alone()) return values;
  std::string mine;
  if (values)
    for (const double value : *values) put(mine, value);
  std::vector<double> sums;
  double count = 0;
  for (const std::string& theirs : communicator_->all_gather(mine, what)) {
    if (theirs.empty()) continue;
    const size_t n = theirs.size() / sizeof(double);
    FRUGAL_CHECK(sums.empty() || sums.size() == n, "[ranks] {}: expected {} numbers, got {}", what,
                 sums.size(), n);
    sums.resize(n);
    Bytes bytes(theirs);
    for (double& sum : sums) sum += bytes.take<double>();
    ++count;
  }
  if (count == 0) return std::nullopt;
  for (double& sum : sums) sum /= count;
  return sums;
}

Tensor Ranks::gather(const Tensor& rows, const char* what) const {
  if (alone()) return rows;
  const Tensor counts = Tensor::zeros({size()}, DType::i64);
  counts.mut<int64_t>()[rank()] = rows.size(0);
  communicator_->all_gather(counts, what);
  Shape shape = rows.shape();
  const int64_t width = rows.numel() / std::max<int64_t>(rows.size(0), 1);
  int64_t first = 0;
  shape[0] = 0;
  distributed::Bounds bounds = {0};
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) first = shape[0];
    shape[0] += counts.data<int64_t>()[r];
    bounds.push_back(shape[0] * width);
  }
  const Tensor all = Tensor::empty(shape, rows.dtype(), rows.device());
  ops::copy_into(all.slice(0, first, first + rows.size(0)), rows);
  communicator_->all_gather(all, bounds, what);
  return all;
}

NamedTensors Ranks::broadcast(const NamedTensors& tensors, const char* what) const {
  if (alone()) return tensors;
  // Names and shapes first, and then the values, which may be many bytes.
  const CategoryScope scope(Category::workspace);
  std::string forms;
  if (rank() == 0)
    for (const auto& [name, tensor] : tensors) put_form(forms, name, tensor);
  forms = communicator_->broadcast(forms, 0, what);
  NamedTensors result = tensors;
  if (rank() != 0) {
    result.clear();
    for (Bytes bytes(forms); !bytes.ended();) result.push_back(bytes.take_form());
  }
  distributed::broadcast_values(*communicator_, result);
  return result;
}

const Ranks& one_rank() {
  static const Ranks alone;
  return alone;
}

std::string bytes_of(const NamedTensors& tensors) {
  std::string bytes;
  const CategoryScope scope(Category::workspace);
  for (const auto& [name, tensor] : tensors) {
    const Tensor here = to_device(ops::contiguous(tensor), kCpu);
    put_form(bytes, name, here);
    if (here.numel() > 0)
      bytes.append(static_cast<const char*>(here.raw()), static_cast<size_t>(here.nbytes()));
  }
  return bytes;
}

NamedTensors tensors_from(const std::string& text) {
  NamedTensors tensors;
  const CategoryScope scope(Category::workspace);
  for (Bytes bytes(text); !bytes.ended();) {
    auto [name, tensor] = bytes.take_form();
    const auto size = static_cast<size_t>(tensor.nbytes());
    if (size > 0) std::memcpy(tensor.raw(), bytes.take(size), size);
    tensors.emplace_back(std::move(name), std::move(tensor));
  }
  return tensors;
}

}  // namespace frugal::train
