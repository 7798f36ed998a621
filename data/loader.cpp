#include "data/loader.h"

#include <algorithm>
#include <numeric>

#include "core/random/random_streams.h"
#include "data/image/draws.h"
#include "data/image/mix.h"
#include "data/made_ahead.h"

namespace frugal::data {
namespace {

uint64_t word(RngKey key, uint64_t index) {
  const auto words = philox(key, index);
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

}  // namespace

std::vector<int64_t> shuffled(int64_t count, RngKey key) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[uniform_int(key, i, i)]);
  return order;
}

struct Loader::Impl {
  Impl(DatasetPtr source, const LoaderOptions& wanted)
      : dataset(std::move(source)), options(wanted) {
    FRUGAL_CHECK(dataset != nullptr && dataset->size() > 0,
                 "[loader] expected a dataset with samples, got an empty one");
    FRUGAL_CHECK(options.batch_size >= 1, "[loader] expected a batch_size of at least 1, got {}",
                 options.batch_size);
    FRUGAL_CHECK(options.threads >= 0, "[loader] expected at least 0 threads, got {}",
                 options.threads);
    FRUGAL_CHECK(options.prefetch >= 1, "[loader] expected a prefetch of at least 1, got {}",
                 options.prefetch);
    const int64_t size = dataset->size(), full = size / options.batch_size;
    batches = options.drop_last || size % options.batch_size == 0 ? full : full + 1;
    if (batches == 0)
      throw OptionError("batch_size", fmt::format("expected at most {} samples with drop_last, "
                                                  "got {}",
                                                  size, options.batch_size));
    targets = dataset->target_rows();
    has_pixels = dataset->target_shape().dim() > 0;
    FRUGAL_CHECK(!options.mix.mixes() || (!targets.defined() && !has_pixels),
                 "[loader] expected samples of one class each to mix, got other targets");
    if (const DatasetPtr& second = options.second_view; second != nullptr) {
      FRUGAL_CHECK(second->size() == size && second->sample_shape() == dataset->sample_shape(),
                   "[loader] expected second views of {} samples {}, got {} of {}", size,
                   dataset->sample_shape(), second->size(), second->sample_shape());
      FRUGAL_CHECK(!options.mix.mixes() && !has_pixels,
                   "[loader] expected no second view beside mixed samples or classes of pixels");
    }
    if (options.mix.classes == 0) options.mix.classes = dataset->classes();
    ahead = std::make_unique<Ahead>(
        options.threads, options.prefetch, [this](int64_t batch) { return allocate(batch); },
        [this](int64_t batch, Made& made, const Ahead::Part& part) { fill(batch, made, part); },
        [this](int64_t batch, const Made& made) { finish(batch, made); });
  }

  // A batch on its way.
  struct Made {
    Batch batch;
    std::vector<int64_t> labels;  // one for each sample; unused where samples have other targets
  };
  using Ahead = MadeAhead<Made>;

  // The order of an epoch. An epoch has two keys: the even one for the order, the odd one for
  // samples.
  RngKey epoch_key(uint64_t purpose) const {
    const uint64_t seed = word(streams::kLoader.key(options.seed), 0);
    return {seed, static_cast<uint64_t>(state.epoch) * 2 + purpose};
  }

  void begin_epoch() {
    order.resize(static_cast<size_t>(dataset->size()));
    if (options.shuffle) {
      order = shuffled(dataset->size(), epoch_key(0));
    } else {
      std::iota(order.begin(), order.end(), int64_t{0});
    }
    sample_key = epoch_key(1);
    mix_key = {word(streams::kMixedSamples.key(options.seed), 0),
               static_cast<uint64_t>(state.epoch)};
    epoch_ready = true;
  }

  // Places in `order`.
  struct Span {
    int64_t begin, end;
  };
  Span whole_of(int64_t batch) const {
    const int64_t begin = batch * options.batch_size;
    return {begin, std::min(begin + options.batch_size, dataset->size())};
  }
  Span share_of(int64_t batch) const {
    const auto [begin, end] = whole_of(batch);
    return {begin + share.begin(end - begin), begin + share.end(end - begin)};
  }

  Made allocate(int64_t batch) const {
    const auto [begin, end] = share_of(batch);
    const int64_t count = end - begin;
    Shape shape{count};
    for (int64_t extent : dataset->sample_shape()) shape.push_back(extent);
    const CategoryScope category(Category::input);
    Batch made;
    made.input = Tensor::empty(shape);
    if (options.second_view != nullptr)
      made.extras.emplace_back("second_view", Tensor::empty(shape));
    made.samples = Tensor::empty({count}, DType::i64);
    if (options.mix.mixes()) {
      made.target = Tensor::empty({count, options.mix.classes});
      made.floats = FloatTargets::shares;
    } else if (targets.defined()) {
      made.target = Tensor::empty({count, targets.width});
      made.floats = targets.kind;
    } else {
      Shape target{count};
      for (const int64_t extent : dataset->target_shape()) target.push_back(extent);
      made.target = Tensor::empty(target, DType::i64);
    }
    return {std::move(made), std::vector<int64_t>(static_cast<size_t>(count))};
  }

  RngKey key_of(int64_t index) const {
    return {word(sample_key, static_cast<uint64_t>(index)), sample_key.offset};
  }

  void fill(int64_t batch, Made& made, const Ahead::Part& part) const {
    const Batch& out = made.batch;
    const auto [begin, end] = share_of(batch);
    const int64_t count = end - begin;
    if (count == 0) return;
    const int64_t floats = out.input.numel() / count;
    float* input = out.input.mut<float>();
    float* const second =
        options.second_view == nullptr ? nullptr : out.extras.front().second.mut<float>();
    // Numbers in the target of a sample that has a class for each pixel.
    const int64_t pixels = out.target.numel() / count;
    for (int64_t i = part.begin(count); i < part.end(count); ++i) {
      const int64_t index = order[static_cast<size_t>(begin + i)];
      out.samples.mut<int64_t>()[i] = index;
      const RngKey key = key_of(index);
      if (has_pixels)
        dataset->get_pixels_into(index, key, input + i * floats,
                                 out.target.mut<int64_t>() + i * pixels);
      else
        made.labels[static_cast<size_t>(i)] = dataset->get_into(index, key, input + i * floats);
      if (second != nullptr)
        options.second_view->get_into(index, second_view_key(key), second + i * floats);
    }
  }

  void finish(int64_t batch, const Made& made) const {
    const auto& [out, labels] = made;
    if (has_pixels || labels.empty()) return;
    if (options.mix.mixes())
      mix(batch, out, labels);
    else if (targets.defined())
      fill_rows(labels, out.target);
    else
      std::copy(labels.begin(), labels.end(), out.target.mut<int64_t>());
  }

  void mix(int64_t batch, const Batch& out, const std::vector<int64_t>& labels) const {
    const RngKey key{word(mix_key, static_cast<uint64_t>(batch)), mix_key.offset};
    const Span whole = whole_of(batch), own = share_of(batch);
    if (own.begin == whole.begin && own.end == whole.end) {
      mix_samples(out, labels, options.mix, key);
      return;
    }
    // The first sample of a share is mixed with one of another share.
    const int64_t place = own.begin > whole.begin ? own.begin - 1 : whole.end - 1;
    const int64_t index = order[static_cast<size_t>(place)];
    SampleBefore before{std::vector<float>(static_cast<size_t>(dataset->sample_shape().numel()))};
    before.label = dataset->get_into(index, key_of(index), before.values.data());
    mix_samples(out, labels, options.mix, key, &before);
  }

  void fill_rows(const std::vector<int64_t>& labels, const Tensor& out) const {
    const int64_t width = out.size(1);
    float* to = out.mut<float>();
    for (const int64_t label : labels) {
      if (label == kIgnored)
        std::fill_n(to, width, static_cast<float>(kIgnored));
      else
        std::copy_n(targets.row(label), width, to);
      to += width;
    }
  }

  DatasetPtr dataset;
  LoaderOptions options;
  TargetRows targets;
  bool has_pixels = false;  // samples have a class for each pixel
  int64_t batches = 0;
  LoaderState state;

  // Workers read the members from here on, so they change only after ahead->drain().
  Share share;
  // The members up to mix_key belong to the current epoch.
  bool epoch_ready = false;
  std::vector<int64_t> order;
  RngKey sample_key, mix_key;

  std::unique_ptr<Ahead> ahead;  // the last member, whose threads use the others
};

Loader::Loader(DatasetPtr dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

Loader::~Loader() = default;

std::optional<Batch> Loader::next() {
  LoaderState& state = impl_->state;
  if (state.next_batch == impl_->batches) {
    impl_->ahead->drain();
    state = {state.epoch + 1, 0};
    impl_->epoch_ready = false;
    return std::nullopt;
  }
  if (!impl_->epoch_ready) impl_->begin_epoch();
  Batch batch = impl_->ahead->take(state.next_batch, impl_->batches).batch;
  ++state.next_batch;
  return batch;
}

int64_t Loader::batches() const { return impl_->batches; }

int64_t Loader::samples() const {
  return std::min(impl_->dataset->size(), impl_->batches * impl_->options.batch_size);
}

LoaderState Loader::state() const { return impl_->state; }

void Loader::seek(const LoaderState& state) {
  FRUGAL_CHECK(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= impl_->batches,
               "[loader] expected an epoch of at least 0 and a batch in [0, {}], got {} and {}",
               impl_->batches, state.epoch, state.next_batch);
  impl_->ahead->drain();
  impl_->state = state;
  impl_->epoch_ready = false;
}

void Loader::set_share(const Share& share) {
  check_share(share);
  impl_->ahead->drain();
  impl_->share = share;
}

int64_t Loader::smallest_batch() const { return smallest_of(samples(), impl_->options.batch_size); }

int64_t Loader::ahead() const { return impl_->options.threads > 0 ? impl_->options.prefetch : 0; }

}  // namespace frugal::data
