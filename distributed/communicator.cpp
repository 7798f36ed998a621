#include "distributed/communicator.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "autograd/record.h"
#include "core/words/quoted.h"
#include "distributed/collectives.h"
#include "ops/dense/copy.h"

namespace frugal::distributed {
namespace {

class Alone final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Pending begin_all_reduce(const Tensor&, Reduction, std::string) override { return {}; }
  Pending begin_reduce_scatter(const Tensor&, const Bounds&, Reduction, std::string) override {
    return {};
  }
  Pending begin_all_gather(const Tensor&, const Bounds&, std::string) override { return {}; }
  Pending begin_broadcast(const Tensor&, int, std::string) override { return {}; }
  CommunicatorPtr channel() override { return alone(); }
  void abort(const std::string& message) override {
    fmt::print(stderr, "rank 0: {}\n", without_controls(message));
    std::exit(1);
  }
};

class Imagined final : public Communicator {
 public:
  explicit Imagined(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  Pending begin_all_reduce(const Tensor& x, Reduction, std::string) override {
    take_workspace(x, even_bounds(x.numel(), ranks_));
    return {};
  }
  Pending begin_reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction,
                               std::string) override {
    take_workspace(x, bounds);
    return {};
  }
  Pending begin_all_gather(const Tensor& x, const Bounds& bounds, std::string) override {
    if (x.device() != kCpu) return {};
    auto* const bytes = static_cast<char*>(x.raw());
    const auto size = static_cast<int64_t>(size_of(x.dtype()));
    for (size_t r = 1; r + 1 < bounds.size(); ++r) {
      const int64_t elements = std::min(bounds[r + 1] - bounds[r], bounds[1]);
      std::memcpy(bytes + bounds[r] * size, bytes, static_cast<size_t>(elements * size));
    }
    return {};
  }
  Pending begin_broadcast(const Tensor&, int, std::string) override { return {}; }
  CommunicatorPtr channel() override { return imagined(ranks_); }
  void abort(const std::string& message) override { alone()->abort(message); }

 private:
  // What terms of other ranks need, as a PeerCommunicator keeps it. In a run on CUDA it is on the
  // host, which is not counted.
  void take_workspace(const Tensor& x, const Bounds& bounds) {
    if (x.device() != kMeta || !runs_as_cpu(kMeta)) return;
    const int64_t bytes =
        Sharing::workspace_bytes(bounds[1] * static_cast<int64_t>(size_of(x.dtype())), ranks_);
    if (workspace_.defined() && workspace_.nbytes() >= bytes) return;
    const CategoryScope scope(Category::workspace);
    workspace_ = Tensor::empty({bytes}, DType::u8, kMeta);
  }

  int ranks_;
  Tensor workspace_;
};

// The number that a variable of the environment holds; none: it is not set.
std::optional<int> number_of(const char* variable, int least) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view value = text;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  FRUGAL_CHECK(error == std::errc() && end == value.data() + value.size() && number >= least,
               "[distributed] expected the environment's {} to be a number of at least {}, got {}",
               variable, least, in_quotes(value));
  return number;
}

Tensor bytes_of(std::string_view text) {
  const CategoryScope scope(Category::workspace);
  Tensor bytes = Tensor::empty({static_cast<int64_t>(text.size())}, DType::u8);
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

std::string text_of(const Tensor& bytes, int64_t begin, int64_t end) {
  if (begin == end) return {};
  const auto* first = reinterpret_cast<const char*>(bytes.data<uint8_t>());
  return std::string(first + begin, first + end);
}

}  // namespace

Bounds even_bounds(int64_t elements, int ranks) {
  Bounds bounds;
  const int64_t each = elements / ranks, more = elements % ranks;
  for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(each * r + std::min(more, r));
  return bounds;
}

int64_t sent_elements(int64_t elements, const Communicator& communicator) {
  const Bounds bounds = even_bounds(elements, communicator.size());
  const auto r = static_cast<size_t>(communicator.rank());
  const int64_t mine = bounds[r + 1] - bounds[r];
  return elements - mine + (communicator.size() - 1) * mine;
}

void check_bounds(const char* op, const Bounds& bounds, int64_t elements, int ranks) {
  bool fit = bounds.size() == static_cast<size_t>(ranks) + 1 && bounds.front() == 0 &&
             bounds.back() == elements;
  for (size_t i = 0; fit && i + 1 < bounds.size(); ++i) fit = bounds[i] <= bounds[i + 1];
  FRUGAL_CHECK(fit, "[{}] expected {} bounds in ascending order from 0 to {}, got {}", op,
               ranks + 1, elements, fmt::join(bounds, ", "));
}

Pending Communicator::begin_all_to_all(const Tensor& send, const Bounds& send_bounds,
                                       const Tensor& receive, const Bounds& receive_bounds,
                                       std::string what) {
  check_bounds("all_to_all", send_bounds, send.numel(), size());
  check_bounds("all_to_all", receive_bounds, receive.numel(), size());
  if (send.device() == kMeta) return {};
  if (size() > 1) throw InternalError("a communicator without all_to_all: " + what);
  FRUGAL_CHECK(send.numel() == receive.numel(),
               "[all_to_all] expected as many elements as are sent, {}, got {}", send.numel(),
               receive.numel());
  receive.bump_version();
  ops::copy_into(receive.view({receive.numel()}), send.view({send.numel()}));
  return {};
}

void Communicator::all_reduce(const Tensor& x, Reduction reduction, std::string what) {
  begin_all_reduce(x, reduction, std::move(what)).wait();
}

double Communicator::all_reduce(double value, Reduction reduction, std::string what) {
  if (size() == 1) return value;
  const CategoryScope scope(Category::workspace);
  const Tensor x = Tensor::from<double>({value}, {1});
  all_reduce(x, reduction, std::move(what));
  return x.item();
}

void Communicator::reduce_scatter(const Tensor& x, const Bounds& bounds, Reduction reduction,
                                  std::string what) {
  begin_reduce_scatter(x, bounds, reduction, std::move(what)).wait();
}

void Communicator::all_gather(const Tensor& x, const Bounds& bounds, std::string what) {
  begin_all_gather(x, bounds, std::move(what)).wait();
}

void Communicator::all_gather(const Tensor& x, std::string what) {
  all_gather(x, even_bounds(x.numel(), size()), std::move(what));
}

std::vector<std::string> Communicator::all_gather(std::string_view bytes, std::string what) {
  if (size() == 1) return {std::string(bytes)};
  const CategoryScope scope(Category::workspace);
  const Tensor lengths = Tensor::zeros({size()}, DType::i64);
  lengths.mut<int64_t>()[rank()] = static_cast<int64_t>(bytes.size());
  all_gather(lengths, "lengths of " + what);
  Bounds bounds{0};
  for (int r = 0; r < size(); ++r) bounds.push_back(bounds.back() + lengths.data<int64_t>()[r]);
  const Tensor all = Tensor::empty({bounds.back()}, DType::u8);
  if (!bytes.empty())
    std::memcpy(all.mut<uint8_t>() + bounds[static_cast<size_t>(rank())], bytes.data(),
                bytes.size());
  all_gather(all, bounds, std::move(what));
  std::vector<std::string> texts;
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    texts.push_back(text_of(all, bounds[r], bounds[r + 1]));
  return texts;
}

void Communicator::broadcast(const Tensor& x, int root, std::string what) {
  begin_broadcast(x, root, std::move(what)).wait();
}

std::string Communicator::broadcast(std::string_view bytes, int root, std::string what) {
  if (size() == 1) return std::string(bytes);
  const CategoryScope scope(Category::workspace);
  const Tensor length = Tensor::from<int64_t>({static_cast<int64_t>(bytes.size())}, {1});
  broadcast(length, root, "the length of " + what);
  const Tensor all =
      rank() == root ? bytes_of(bytes) : Tensor::empty({length.item<int64_t>()}, DType::u8);
  broadcast(all, root, std::move(what));
  return text_of(all, 0, all.numel());
}

void Communicator::all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                              const Bounds& receive_bounds, std::string what) {
  begin_all_to_all(send, send_bounds, receive, receive_bounds, std::move(what)).wait();
}

void Communicator::barrier(std::string what) {
  if (size() == 1) return;
  const CategoryScope scope(Category::workspace);
  all_gather(Tensor::zeros({size()}, DType::u8), what.empty() ? "a barrier" : std::move(what));
}

CommunicatorPtr alone() {
  static const auto one = std::make_shared<Alone>();
  return one;
}

CommunicatorPtr imagined(int ranks) {
  if (ranks == 1) return alone();
  return std::make_shared<Imagined>(ranks);
}

#ifndef FRUGAL_CUDA
std::string nccl_library() { return {}; }
#endif

Launch launch() {
  struct Variables {
    const char *ranks, *rank, *on_host, *rank_on_host;
  };
  for (const Variables& names :
       {Variables{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                  "OMPI_COMM_WORLD_LOCAL_RANK"},
        Variables{"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
        Variables{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS_PER_NODE",
                  "SLURM_LOCALID"}}) {
    const auto ranks = number_of(names.ranks, 1);
    if (!ranks) continue;
    return {*ranks, names.ranks, number_of(names.rank, 0).value_or(0),
            number_of(names.on_host, 1).value_or(1), number_of(names.rank_on_host, 0).value_or(0)};
  }
  return {};
}

}  // namespace frugal::distributed
