#include "data/detection/box_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/integers.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/random/random_streams.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/detection/box_checks.h"
#include "data/formats/file_bytes.h"
#include "data/image/draws.h"
#include "data/image/orientation.h"
#include "data/image/picture.h"
#include "data/loader.h"
#include "data/made_ahead.h"
#include "data/text/sequence_batches.h"

namespace frugal::data {
namespace {

// A number of an epoch's stream for each sample.
RngKey sample_key(RngKey epoch, int64_t index) {
  const auto words = philox(epoch, static_cast<uint64_t>(index));
  return {words[0] | static_cast<uint64_t>(words[1]) << 32, epoch.offset};
}

PictureSize scaled(PictureSize size, double factor) {
  constexpr double kRounding = 1e-6;  // so that 3 * (4 / 3.0) is 4
  const auto side = [&](int64_t extent) {
    const double exact = std::floor(static_cast<double>(extent) * factor + kRounding);
    return std::max<int64_t>(1, static_cast<int64_t>(exact));
  };
  return {side(size.height), side(size.width)};
}

PictureSize size_in_batch(PictureSize file, const BoxBatchOptions& options, RngKey key) {
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  if (options.letterbox)
    return scaled(file,
                  std::min(ratio(options.height, file.height), ratio(options.width, file.width)));
  const auto sides = static_cast<int64_t>(options.sides.size());
  const int64_t which = options.training ? draw(key, 1, sides) : sides - 1;
  const int64_t side = options.sides[static_cast<size_t>(which)];
  return scaled(file, std::min(ratio(side, std::min(file.height, file.width)),
                               ratio(options.longest, std::max(file.height, file.width))));
}

// What the list says of the size in the batch; nothing where it lacks the size.
std::optional<PictureSize> listed_size(const BoxPicture& picture, const BoxBatchOptions& options,
                                       RngKey key) {
  if (picture.height <= 0 || picture.width <= 0) return std::nullopt;
  return size_in_batch({picture.height, picture.width}, options, key);
}

// Noise around grey, and rectangles in colours of their classes.
Picture painted(const BoxPicture& picture, int64_t channels) {
  constexpr uint64_t kNoise = 64, kDarkest = 96;
  // Three channels, each dark or bright, have so many colours without black.
  constexpr int64_t kColours = 7;
  Picture out{picture.height, picture.width, channels, {}};
  const RngKey key{static_cast<uint64_t>(picture.id), 0};
  const int64_t values = picture.height * picture.width * channels;
  for (int64_t i = 0; i < values; ++i)
    out.pixels.push_back(
        static_cast<uint8_t>(kDarkest + uniform_int(key, static_cast<uint64_t>(i), kNoise)));
  for (const BoxObject& object : picture.objects) {
    const int64_t colour = (object.label - 1) % kColours + 1;
    for (auto y = static_cast<int64_t>(object.box[1]); y < static_cast<int64_t>(object.box[3]); ++y)
      for (auto x = static_cast<int64_t>(object.box[0]); x < static_cast<int64_t>(object.box[2]);
           ++x)
        for (int64_t k = 0; k < channels; ++k)
          out.pixels[static_cast<size_t>((y * picture.width + x) * channels + k)] =
              (colour >> k & 1) != 0 ? 255 : 0;
  }
  return out;
}

struct Rows {
  Tensor boxes, labels, counts, areas, difficult;
};

// The objects of a batch, picture after picture.
template <class Of>
Rows rows_of(size_t pictures, Of of) {
  int64_t all = 0;
  for (size_t n = 0; n < pictures; ++n) all += static_cast<int64_t>(of(n).size());
  Rows rows{Tensor::empty({all, 4}), Tensor::empty({all}, DType::i64),
            Tensor::empty({static_cast<int64_t>(pictures)}, DType::i64), Tensor::empty({all}),
            Tensor::empty({all}, DType::i64)};
  auto *box = rows.boxes.mut<float>(), *area = rows.areas.mut<float>();
  auto *label = rows.labels.mut<int64_t>(), *difficult = rows.difficult.mut<int64_t>();
  for (size_t n = 0; n < pictures; ++n) {
    const std::vector<BoxObject>& objects = of(n);
    for (const BoxObject& object : objects) {
      box = std::copy(object.box.begin(), object.box.end(), box);
      *label++ = object.label;
      *area++ = static_cast<float>(object.area);
      *difficult++ = object.difficult ? 1 : 0;
    }
    rows.counts.mut<int64_t>()[n] = static_cast<int64_t>(objects.size());
  }
  return rows;
}

}  // namespace

BoxSet random_boxes(int64_t height, int64_t width, int64_t classes, int64_t pictures, RngKey key) {
  constexpr int64_t kLeastSide = 16, kMostObjects = 4;
  FRUGAL_CHECK(height >= kLeastSide && width >= kLeastSide && classes >= 2 && pictures >= 1,
               "[boxes] expected pictures of at least {} pixels a side and 2 classes, got {} x {} "
               "and {}",
               kLeastSide, height, width, classes);
  BoxSet set;
  set.names.emplace_back("background");
  for (int64_t c = 1; c < classes; ++c) set.names.push_back(fmt::format("colour {}", c));
  for (int64_t i = 0; i < pictures; ++i) {
    BoxPicture picture;
    picture.height = height;
    picture.width = width;
    const RngKey own{key.seed, key.offset + static_cast<uint64_t>(i)};
    picture.id = draw(own, 0, int64_t{1} << 62);  // seeds the noise
    const int64_t objects = 1 + draw(own, 1, kMostObjects);
    for (int64_t k = 0; k < objects; ++k) {
      const auto at = static_cast<uint64_t>(2 + 8 * k);
      const int64_t tall = height / 8 + draw(own, at, height / 2);
      const int64_t wide = width / 8 + draw(own, at + 1, width / 2);
      const int64_t top = draw(own, at + 2, height - tall + 1);
      const int64_t left = draw(own, at + 3, width - wide + 1);
      BoxObject object;
      object.box = {static_cast<float>(left), static_cast<float>(top),
                    static_cast<float>(left + wide), static_cast<float>(top + tall)};
      object.label = 1 + draw(own, at + 4, classes - 1);
      object.area = static_cast<double>(tall * wide);
      picture.objects.push_back(object);
    }
    set.pictures.push_back(std::move(picture));
  }
  return set;
}

// A picture of a batch.
struct BoxBatches::Loaded {
  PictureSize file, size;
  std::vector<float> pixels;  // [height, width, channels]; empty: they are in the input
  std::vector<BoxObject> objects, crowds;
  std::string fault;  // not empty: it cannot be read
};

// A batch on its way, or a share of one. input: as large as the list says that it will be, or
// undefined where the list lacks sizes.
struct BoxBatches::Job {
  Tensor input;
  std::vector<int64_t> places;
  int64_t first_place = 0;  // the first of `places` before any was left out
  // Pictures of other shares, which count in the size of the batch. Empty with letterbox.
  std::vector<int64_t> other_places;
  std::vector<PictureSize> other_sizes;
  RngKey epoch;
  std::vector<Loaded> loaded;  // the picture of each place; its row in the input is `row`
  std::vector<int64_t> row;
};

BoxBatches::~BoxBatches() = default;

BoxBatches::BoxBatches(BoxSet set, const BoxBatchOptions& options)
    : set_(std::move(set)), options_(options) {
  const auto& o = options_;
  FRUGAL_CHECK(!set_.pictures.empty(), "[boxes] expected pictures, got none");
  FRUGAL_CHECK(
      o.batch_size >= 1 && (o.channels == 1 || o.channels == 3) && o.flip >= 0 && o.flip <= 1,
      "[boxes] expected a batch_size of at least 1, 1 or 3 channels and a probability to "
      "flip, got {}, {} and {}",
      o.batch_size, o.channels, o.flip);
  FRUGAL_CHECK(o.letterbox ? o.height >= 1 && o.width >= 1
                           : !o.sides.empty() && o.longest >= 1 && o.multiple >= 1 &&
                                 *std::min_element(o.sides.begin(), o.sides.end()) >= 1,
               "[boxes] expected sizes of at least one pixel, got less");
  FRUGAL_CHECK(static_cast<int64_t>(o.mean.size()) == o.channels && o.std.size() == o.mean.size() &&
                   std::all_of(o.std.begin(), o.std.end(), [](double s) { return s > 0; }),
               "[boxes] expected a mean and a positive std for each of {} channels", o.channels);
  const auto size = static_cast<int64_t>(set_.pictures.size());
  batches_ = o.drop_last ? size / o.batch_size : ceil_div(size, o.batch_size);
  if (batches_ == 0)
    throw OptionError("batch_size", fmt::format("expected at most {} pictures with drop_last, "
                                                "got {}",
                                                size, o.batch_size));
  samples_ = std::min(size, batches_ * o.batch_size);
  FRUGAL_CHECK(o.threads >= 0 && o.prefetch >= 1,
               "[boxes] expected at least 0 threads and a prefetch of at least 1, got {} and {}",
               o.threads, o.prefetch);
  ahead_ = std::make_unique<MadeAhead<Job>>(
      o.threads, o.prefetch, [this](int64_t number) { return begin(number); },
      [this](int64_t, Job& job, const MadeAhead<Job>::Part& part) {
        const auto count = static_cast<int64_t>(job.places.size());
        if (part.part == 0) find_other_sizes(job);
        make(job, part.begin(count), part.end(count));
      });
}

void BoxBatches::begin_epoch() {
  const auto size = static_cast<int64_t>(set_.pictures.size());
  if (options_.shuffle) {
    order_ = shuffled(size, epoch_key(options_.seed, streams::kLoader, 2 * state_.epoch));
  } else {
    order_.resize(static_cast<size_t>(size));
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  epoch_ready_ = true;
}

BoxBatches::Loaded BoxBatches::load(int64_t index, RngKey key) const {
  const BoxPicture& picture = set_.pictures[static_cast<size_t>(index)];
  Loaded loaded;
  PictureInfo about{picture.height, picture.width};  // the picture that boxes are about
  int turn = 1;                                      // how boxes are turned, as an orientation
  const int64_t c = options_.channels;
  const auto resize = [&](const Picture& whole) {
    loaded.pixels.resize(static_cast<size_t>(loaded.size.height * loaded.size.width * c));
    resize_into(whole, {0, 0, static_cast<double>(whole.height), static_cast<double>(whole.width)},
                loaded.size.height, loaded.size.width, loaded.pixels.data());
  };
  if (picture.path.empty()) {
    loaded.file = {picture.height, picture.width};
    loaded.size = size_in_batch(loaded.file, options_, key);
    resize(painted(picture, c));
  } else {
    const std::vector<uint8_t> bytes = read_file("boxes", picture.path);
    PictureReader reader(bytes, picture.path, options_.exif);
    loaded.file = {reader.info().height, reader.info().width};
    if (picture.height > 0 && picture.width > 0) {
      const auto fits =
          turn_of_annotations(about, reader.stored(), reader.orientation(), options_.exif);
      FRUGAL_CHECK(fits.has_value(),
                   "[boxes] {}: expected a picture of {} x {} pixels, as its list says, got {}",
                   in_quotes(picture.path), picture.width, picture.height,
                   sizes_text(reader.stored(), reader.orientation()));
      turn = *fits;
    } else {
      about = reader.info();
    }
    loaded.size = size_in_batch(loaded.file, options_, key);
    resize(reader.decode(c, loaded.size.height, loaded.size.width));
  }
  const bool flip = options_.training && uniform(key, 0) < static_cast<float>(options_.flip);
  if (flip)
    for (int64_t row = 0; row < loaded.size.height; ++row) {
      float* values = loaded.pixels.data() + row * loaded.size.width * c;
      for (int64_t left = 0, right = loaded.size.width - 1; left < right; ++left, --right)
        std::swap_ranges(values + left * c, values + (left + 1) * c, values + right * c);
    }
  for (size_t i = 0; i < loaded.pixels.size(); ++i) {
    const auto k = i % static_cast<size_t>(c);
    loaded.pixels[i] = (loaded.pixels[i] - static_cast<float>(options_.mean[k])) /
                       static_cast<float>(options_.std[k]);
  }
  const float right = static_cast<float>(loaded.size.width) / static_cast<float>(loaded.file.width);
  const float down =
      static_cast<float>(loaded.size.height) / static_cast<float>(loaded.file.height);
  for (size_t i = 0; i < picture.objects.size(); ++i) {
    BoxObject object = picture.objects[i];
    if (!object.counts() && options_.training) continue;
    try {
      if (fit_box(object.box, about.height, about.width) == BoxFit::empty) continue;
    } catch (const Error& e) {
      throw Error(
          fmt::format("[boxes] {}, object {}: {}", in_quotes(picture.path), i + 1, e.what()));
    }
    const auto [x1, y1, x2, y2] = turned_box(object.box, about, turn);
    object.box = {x1 * right, y1 * down, x2 * right, y2 * down};
    const auto width = static_cast<float>(loaded.size.width);
    if (flip)
      object.box = {width - object.box[2], object.box[1], width - object.box[0], object.box[3]};
    (object.counts() ? loaded.objects : loaded.crowds).push_back(object);
  }
  return loaded;
}

namespace {

// The sides of a batch with these pictures.
PictureSize common_size(const BoxBatchOptions& options, const std::vector<PictureSize>& pictures) {
  if (options.letterbox) return {options.height, options.width};
  PictureSize all{1, 1};
  for (const PictureSize& each : pictures) {
    all.height = std::max(all.height, round_up(each.height, options.multiple));
    all.width = std::max(all.width, round_up(each.width, options.multiple));
  }
  return all;
}

// Rows of pixels into picture `row` of an input [N, H, W, C].
void put(const float* pixels, PictureSize size, const Tensor& input, int64_t row) {
  const int64_t stride = input.size(2) * input.size(3), values = size.width * input.size(3);
  float* to = input.mut<float>() + row * input.size(1) * stride;
  for (int64_t y = 0; y < size.height; ++y)
    std::copy_n(pixels + y * values, values, to + y * stride);
}

}  // namespace

BoxBatches::Job BoxBatches::begin(int64_t number) const {
  const int64_t first = number * options_.batch_size;
  const int64_t last = std::min(first + options_.batch_size, samples_);
  const auto whole_begin = order_.begin() + first, whole_end = order_.begin() + last;
  const auto begin = whole_begin + share_.begin(last - first),
             end = whole_begin + share_.end(last - first);
  Job job;
  job.places.assign(begin, end);
  job.first_place = begin == end ? 0 : *begin;
  job.loaded.resize(job.places.size());
  job.row.resize(job.places.size());
  std::iota(job.row.begin(), job.row.end(), int64_t{0});
  job.epoch = epoch_key(options_.seed, streams::kLoader, 2 * state_.epoch + 1);
  std::vector<PictureSize> sizes;
  if (!options_.letterbox) {
    job.other_places.assign(whole_begin, begin);
    job.other_places.insert(job.other_places.end(), end, whole_end);
    for (auto at = whole_begin; at != whole_end; ++at) {
      const BoxPicture& picture = set_.pictures[static_cast<size_t>(*at)];
      const auto size = listed_size(picture, options_, sample_key(job.epoch, *at));
      if (!size) return job;
      sizes.push_back(*size);
    }
  }
  const PictureSize whole = common_size(options_, sizes);
  const CategoryScope category(Category::input);
  job.input = Tensor::zeros({end - begin, whole.height, whole.width, options_.channels});
  return job;
}

void BoxBatches::find_other_sizes(Job& job) const {
  for (const int64_t place : job.other_places) {
    const BoxPicture& picture = set_.pictures[static_cast<size_t>(place)];
    const RngKey key = sample_key(job.epoch, place);
    auto size = listed_size(picture, options_, key);
    try {
      if (!size) {
        const std::vector<uint8_t> bytes = read_file("boxes", picture.path);
        const PictureInfo info = PictureReader(bytes, picture.path, options_.exif).info();
        size = size_in_batch({info.height, info.width}, options_, key);
      }
    } catch (const Error&) {
      continue;  // the process that has this picture in its share reports the fault
    }
    job.other_sizes.push_back(*size);
  }
}

// Loads the pictures from `begin` to before `end`.
void BoxBatches::make(Job& job, int64_t begin, int64_t end) const {
  const auto load_some = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto at = static_cast<size_t>(i);
      Loaded& loaded = job.loaded[at];
      try {
        loaded = load(job.places[at], sample_key(job.epoch, job.places[at]));
      } catch (const Error& e) {
        loaded.fault = e.what();
        continue;
      }
      if (!job.input.defined() || loaded.size.height > job.input.size(1) ||
          loaded.size.width > job.input.size(2))
        continue;
      put(loaded.pixels.data(), loaded.size, job.input, i);
      loaded.pixels = {};
    }
  };
  if (options_.threads > 0)
    load_some(begin, end);
  else
    parallel_for(begin, end, 1, load_some);
}

void BoxBatches::skip_faults(Job& job) {
  if (job.loaded.empty()) return;  // an empty share
  for (size_t i = 0; i < job.loaded.size();) {
    if (job.loaded[i].fault.empty()) {
      ++i;
      continue;
    }
    FRUGAL_CHECK(options_.skip_bad, "{}; data.skip_bad: true leaves it out", job.loaded[i].fault);
    log().warn("picture {} is left out, the {} until now: {}", job.places[i], ordinal(++skipped_),
               job.loaded[i].fault);
    const auto at = static_cast<std::ptrdiff_t>(i);
    job.loaded.erase(job.loaded.begin() + at);
    job.places.erase(job.places.begin() + at);
    job.row.erase(job.row.begin() + at);
  }
  if (job.loaded.empty() && options_.training) take_another(job);
}

// Takes the next picture of the set that can be read, because a step needs one.
void BoxBatches::take_another(Job& job) const {
  const auto pictures = static_cast<int64_t>(set_.pictures.size());
  for (int64_t i = 1; i < pictures; ++i) {
    const int64_t place = (job.first_place + i) % pictures;
    try {
      job.loaded = {load(place, sample_key(job.epoch, place))};
    } catch (const Error&) {
      continue;  // its own batch reports it
    }
    job.places = {place};
    job.row = {0};
    job.input = {};
    return;
  }
  throw Error("[boxes] expected a picture that can be read, got none");
}

// The job's own input, unless pictures were left out or files have other sizes than the list says.
Tensor BoxBatches::input_of(Job& job) const {
  std::vector<PictureSize> sizes = job.other_sizes;
  for (const Loaded& each : job.loaded) sizes.push_back(each.size);
  const PictureSize whole = common_size(options_, sizes);
  const Shape shape{static_cast<int64_t>(job.loaded.size()), whole.height, whole.width,
                    options_.channels};
  if (job.input.defined() && job.input.shape() == shape) return std::move(job.input);
  const Tensor input = Tensor::zeros(shape);
  for (size_t i = 0; i < job.loaded.size(); ++i) {
    const Loaded& each = job.loaded[i];
    const auto to = static_cast<int64_t>(i);
    if (!each.pixels.empty()) {
      put(each.pixels.data(), each.size, input, to);
      continue;
    }
    std::vector<float> pixels;
    const int64_t values = each.size.width * options_.channels;
    const Tensor from = job.input[job.row[i]];
    for (int64_t y = 0; y < each.size.height; ++y) {
      const float* row = from.data<float>() + y * from.size(1) * options_.channels;
      pixels.insert(pixels.end(), row, row + values);
    }
    put(pixels.data(), each.size, input, to);
  }
  return input;
}

std::optional<Batch> BoxBatches::next() {
  if (state_.next_batch == batches_) {
    ahead_->drain();
    state_ = {state_.epoch + 1, 0};
    epoch_ready_ = found_ = false;
    return std::nullopt;
  }
  if (!epoch_ready_) begin_epoch();
  Job job = ahead_->take(state_.next_batch, batches_);
  skip_faults(job);
  // An evaluation goes on. The other processes of several wait for this batch, though it is empty.
  while (job.loaded.empty() && share_.is_whole()) {
    const bool is_last = ++state_.next_batch == batches_;
    FRUGAL_CHECK(!is_last || found_, "[boxes] expected a picture that can be read, got none");
    if (is_last) return next();
    job = ahead_->take(state_.next_batch, batches_);
    skip_faults(job);
  }
  const std::vector<Loaded>& loaded = job.loaded;
  const auto n = static_cast<int64_t>(loaded.size());
  const CategoryScope category(Category::input);
  Batch batch;
  batch.input = input_of(job);
  batch.target = Tensor::from(job.places, {n});
  batch.samples = batch.target;
  const Rows rows = rows_of(
      loaded.size(), [&](size_t i) -> auto& { return loaded[i].objects; });
  const Tensor sizes = Tensor::empty({n, 2}, DType::i64);
  const Tensor originals = Tensor::empty({n, 2}, DType::i64);
  for (int64_t i = 0; i < n; ++i) {
    const Loaded& each = loaded[static_cast<size_t>(i)];
    sizes.mut<int64_t>()[2 * i] = each.size.height;
    sizes.mut<int64_t>()[2 * i + 1] = each.size.width;
    originals.mut<int64_t>()[2 * i] = each.file.height;
    originals.mut<int64_t>()[2 * i + 1] = each.file.width;
  }
  batch.extras = {{"boxes", rows.boxes},
                  {"labels", rows.labels},
                  {"counts", rows.counts},
                  {"sizes", sizes},
                  {"originals", originals}};
  if (!options_.training) {
    const Tensor padded = Tensor::empty({n, 2}, DType::i64);
    for (int64_t i = 0; i < n; ++i) {
      const PictureSize own = common_size(options_, {loaded[static_cast<size_t>(i)].size});
      padded.mut<int64_t>()[2 * i] = own.height;
      padded.mut<int64_t>()[2 * i + 1] = own.width;
    }
    batch.extras.emplace_back("padded", padded);
    const Rows crowds = rows_of(
        loaded.size(), [&](size_t i) -> auto& { return loaded[i].crowds; });
    batch.extras.emplace_back("areas", rows.areas);
    batch.extras.emplace_back("crowd_boxes", crowds.boxes);
    batch.extras.emplace_back("crowd_labels", crowds.labels);
    batch.extras.emplace_back("crowd_difficult", crowds.difficult);
    batch.extras.emplace_back("crowd_counts", crowds.counts);
  }
  ++state_.next_batch;
  found_ = true;
  return batch;
}

void BoxBatches::seek(const LoaderState& state) {
  FRUGAL_CHECK(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= batches_,
               "[boxes] expected an epoch of at least 0 and a batch in [0, {}], got {} and {}",
               batches_, state.epoch, state.next_batch);
  ahead_->drain();
  if (state.epoch != state_.epoch) epoch_ready_ = false;
  state_ = state;
}

void BoxBatches::set_share(const Share& share) {
  check_share(share);
  ahead_->drain();
  share_ = share;
}

}  // namespace frugal::data
