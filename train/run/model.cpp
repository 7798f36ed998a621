#include "train/run/model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <numeric>
#include <thread>

#include "autograd/record.h"
#include "core/cores.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/image/mask_files.h"
#include "data/image/picture.h"
#include "data/image/views.h"
#include "data/tables/csv_table.h"
#include "data/text/unicode.h"
#include "data/text/wordpiece.h"
#include "ops/dense/copy.h"
#include "train/tasks/make_task.h"

namespace frugal::train {
namespace {

using Kind = BatchSpec::Kind;

// Looks at `count` samples from `begin` on. of_bytes: they are pictures whose values must be those
// that bytes become. REQUIRES: [N, ...], contiguous on the cpu.
void check_numbers(const Tensor& samples, int64_t begin, int64_t count, bool of_bytes) {
  if (samples.dtype() != DType::f32) return;
  const int64_t one = samples.numel() / std::max<int64_t>(samples.size(0), 1);
  const auto* from = samples.data<float>();
  for (int64_t i = begin * one; i < (begin + count) * one; ++i) {
    FRUGAL_CHECK(std::isfinite(from[i]), "[predict] expected finite numbers, got {} in sample {}",
                 std::isnan(from[i]) ? std::abs(from[i]) : from[i], i / one);
    FRUGAL_CHECK(!of_bytes || (from[i] >= 0 && from[i] <= 1),
                 "[predict] expected pictures of numbers from 0 to 1, which are bytes divided by "
                 "255, as the network has learned from bytes, got {} in sample {}",
                 from[i], i / one);
  }
}

// Is `all` a shape [N, ...] of samples of the shape `one`? REQUIRES: an axis more than `one` has.
bool has_samples(const Shape& all, const Shape& one) {
  for (int axis = 0; axis < one.dim(); ++axis)
    if (all[axis + 1] != one[axis]) return false;
  return true;
}

void check(const PredictOptions& options) {
  const auto check_positive = [](const char* name, int64_t value) {
    FRUGAL_CHECK(value > 0, "[predict] expected {} of at least 1, got {}", name, value);
  };
  check_positive("batch_size", options.batch_size);
  check_positive("threads", options.threads);
  check_positive("top", options.top);
}

// Picture files of one batch, decoded by several threads: the crops of each file in turn.
struct Decoded {
  int64_t begin = 0;
  std::vector<float> pixels;
  std::vector<std::string> errors;  // one for each file; empty: it was read
};

Decoded decode(const std::vector<std::string>& paths, int64_t begin, int64_t count,
               const data::ViewOptions& view, const std::vector<data::Crop>& crops, int threads) {
  Decoded decoded;
  decoded.begin = begin;
  const auto each = static_cast<size_t>(view.height * view.width * view.channels) * crops.size();
  decoded.pixels.resize(each * static_cast<size_t>(count));
  decoded.errors.resize(static_cast<size_t>(count));
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      const auto at = static_cast<size_t>(i);
      try {
        data::read_views(paths[static_cast<size_t>(begin) + at], view, crops,
                         decoded.pixels.data() + at * each);
      } catch (const std::exception& e) {
        decoded.errors[at] = e.what();
        if (decoded.errors[at].empty()) decoded.errors[at] = "cannot be read";
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i)
    helpers.emplace_back([&work] {
      use_all_cores();
      work();
    });
  work();
  helpers.clear();  // joins them
  return decoded;
}

}  // namespace

Model::Model(std::shared_ptr<Module> network, ModelDescription description)
    : network_(std::move(network)), description_(std::move(description)) {
  FRUGAL_CHECK(network_ != nullptr, "[model] expected a network, got none");
  FRUGAL_CHECK(description_.task != nullptr || !description_.spec.has_views(),
               "[model] expected a network that gives classes, values or boxes; this one learns "
               "from views and gives features");
  if (description_.task == nullptr) description_.task = make_task(description_.spec);
  const PictureInput& pictures = description_.pictures;
  FRUGAL_CHECK(pictures.mean.size() == pictures.std.size() &&
                   (pictures.mean.empty() ||
                    static_cast<int64_t>(pictures.mean.size()) == pictures.view.channels),
               "[model] expected a mean and a std for each of {} channels, got {} and {}",
               pictures.view.channels, pictures.mean.size(), pictures.std.size());
  for (const double deviation : pictures.std)
    FRUGAL_CHECK(std::isfinite(deviation) && deviation > 0,
                 "[model] expected deviations above 0, got {}", deviation);
  const auto values = static_cast<int64_t>(description_.mask_values.size());
  FRUGAL_CHECK(values == 0 || values == description_.spec.classes,
               "[model] expected a value in masks for each of {} classes, got {}",
               description_.spec.classes, values);
}

// [N, outputs] f32 on the host.
Tensor Model::outputs(Batch batch) const {
  const NoGrad no_grad;
  const Task& task = *description_.task;
  batch = task.place(std::move(batch), *network_);
  Context context;
  context.training = false;
  context.set_model(*network_);
  return task.predict(task.run(*network_, batch, context).value());
}

Tensor Model::probabilities(Batch batch) const {
  FRUGAL_CHECK(!description_.spec.has_values(),
               "[predict] expected a network of classes; this one predicts numbers");
  return outputs(std::move(batch));
}

Prediction Model::best_of(const float* probabilities, int64_t count, int64_t top) const {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const int64_t shown = std::clamp<int64_t>(top, 0, count);
  std::partial_sort(order.begin(), order.begin() + shown, order.end(), [&](int64_t a, int64_t b) {
    return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
  });
  Prediction best;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t index = order[static_cast<size_t>(i)];
    const auto& names = description_.classes;
    best.push_back({index,
                    index < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(index)]
                                                               : std::to_string(index),
                    static_cast<double>(probabilities[index])});
  }
  return best;
}

void Model::check_pictures() const {
  FRUGAL_CHECK(description_.spec.kind == Kind::images,
               "[predict] expected a network that reads pictures; this one reads {}",
               unit_of(description_.spec));
  FRUGAL_CHECK(
      !description_.spec.target_of_each_pixel(),
      "[predict] expected a network that classifies whole pictures; this one gives a class "
      "to each pixel");
  FRUGAL_CHECK(!description_.spec.has_boxes(),
               "[predict] expected a network that classifies whole pictures; this one finds boxes: "
               "models::Detector::detect() gives them");
  check_size_of_pictures();
}

void Model::check_size_of_pictures() const {
  const data::ViewOptions& view = description_.pictures.view;
  FRUGAL_CHECK(view.height > 0 && view.width > 0 && (view.channels == 1 || view.channels == 3),
               "[predict] expected a network of pictures of 1 or 3 channels; the samples of this "
               "one are {}",
               description_.spec.sample.str());
}

void Model::check_texts() const {
  const BatchSpec& spec = description_.spec;
  FRUGAL_CHECK(!spec.target_of_each_token(),
               "[predict] expected a classifier of texts; this network gives an output for each "
               "token: `frugal generate` continues a text with it");
  const data::Tokenizer* const tokenizer = description_.text.tokenizer.get();
  FRUGAL_CHECK(tokenizer != nullptr && tokenizer->encoder_layout() != nullptr,
               "[predict] expected a tokenizer for encoders; the run has none, because its data "
               "are not texts");
}

// Samples of normalized values.
Batch Model::batch_of(std::vector<float> pixels, int64_t count) const {
  const PictureInput& input = description_.pictures;
  const auto channels = static_cast<size_t>(input.view.channels);
  if (!input.mean.empty()) {
    std::vector<float> mean, scale;
    for (size_t c = 0; c < channels; ++c) {
      mean.push_back(static_cast<float>(input.mean[c]));
      scale.push_back(static_cast<float>(1 / input.std[c]));
    }
    for (size_t i = 0; i < pixels.size(); i += channels)
      for (size_t c = 0; c < channels; ++c) pixels[i + c] = (pixels[i + c] - mean[c]) * scale[c];
  }
  const CategoryScope scope(Category::input);
  Batch batch;
  batch.input =
      Tensor::from(pixels, {count, input.view.height, input.view.width, input.view.channels});
  return batch;
}

// `views`: of each picture its crops, one behind the other. The mean over crops and mirror images.
Tensor Model::of_views(const std::vector<const float*>& views, size_t crops,
                       data::Views how) const {
  const data::ViewOptions& view = description_.pictures.view;
  const auto one = static_cast<size_t>(view.height * view.width * view.channels);
  const auto count = static_cast<int64_t>(views.size());
  Tensor sum;
  int64_t parts = 0;
  for (size_t crop = 0; crop < crops; ++crop) {
    std::vector<float> pixels;
    pixels.reserve(one * views.size());
    for (const float* each : views)
      pixels.insert(pixels.end(), each + crop * one, each + (crop + 1) * one);
    for (const bool mirrored : {false, true}) {
      if (mirrored && !data::mirrors(how)) continue;
      std::vector<float> own = pixels;
      if (mirrored) data::mirror(own.data(), count, view.height, view.width, view.channels);
      const Tensor found = probabilities(batch_of(std::move(own), count));
      ++parts;
      if (!sum.defined()) {
        sum = found;
        continue;
      }
      for (int64_t i = 0; i < sum.numel(); ++i) sum.mut<float>()[i] += found.data<float>()[i];
    }
  }
  for (int64_t i = 0; i < sum.numel(); ++i) sum.mut<float>()[i] /= static_cast<float>(parts);
  return sum;
}

Prediction Model::only_answer(const std::vector<const float*>& views,
                              const PredictOptions& options) const {
  const Tensor found = of_views(views, data::crops_of(options.views).size(), options.views);
  return best_of(found.data<float>(), found.size(1), options.top);
}

Prediction Model::predict(const Tensor& image, const PredictOptions& options) const {
  check(options);
  check_pictures();
  const data::ViewOptions& view = description_.pictures.view;
  FRUGAL_CHECK(image.defined() && image.dtype() == DType::f32 &&
                   image.shape() == Shape({view.height, view.width, view.channels}),
               "[predict] expected a picture [{}, {}, {}] f32, got {}", view.height, view.width,
               view.channels, describe(image));
  FRUGAL_CHECK(options.views != data::Views::ten_crop,
               "[predict] expected a decoded picture or a file for ten crops, got a tensor");
  const Tensor here = ops::contiguous(to_device(image, kCpu));
  check_numbers(here.view({1, view.height, view.width, view.channels}), 0, 1,
                description_.pictures.of_bytes);
  return only_answer({here.data<float>()}, options);
}

Prediction Model::predict(const data::Picture& picture, const PredictOptions& options) const {
  check(options);
  check_pictures();
  const data::ViewOptions& view = description_.pictures.view;
  const std::vector<data::Crop> crops = data::crops_of(options.views);
  std::vector<float> pixels(static_cast<size_t>(view.height * view.width * view.channels) *
                            crops.size());
  data::cut_views(picture, view, crops, pixels.data());
  return only_answer({pixels.data()}, options);
}

Prediction Model::predict(const std::string& input, const PredictOptions& options) const {
  Prediction found;
  predict_each({input}, options, [&](int64_t, const Answer& answer) {
    FRUGAL_CHECK(answer.error.empty(), "{}", answer.error);
    found = answer.prediction;
    return true;
  });
  return found;
}

data::CsvTable Model::table_of(const std::string& csv) const {
  FRUGAL_CHECK(description_.table != nullptr,
               "[predict] expected a network that was trained on a table");
  data::CsvTable table(csv, description_.table->input_columns(), description_.table_encoding);
  description_.table->warn_of_unknown(table);
  return table;
}

Tensor Model::rows_of(const std::string& csv) const {
  const data::CsvTable table = table_of(csv);
  return description_.table->inputs_of(table);
}

void Model::predict_rows(
    const Tensor& rows, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  const BatchSpec& spec = description_.spec;
  FRUGAL_CHECK(spec.kind == Kind::rows,
               "[predict] expected a network that reads rows; this one reads {}", unit_of(spec));
  const int64_t width = spec.sample[0];
  FRUGAL_CHECK(
      rows.defined() && rows.dtype() == DType::f32 && rows.dim() == 2 && rows.size(1) == width,
      "[predict] expected rows [N, {}] f32, got {}", width, describe(rows));
  predict_samples(rows, options, on_answer);
}

void Model::check_arrays(const Tensor& samples) const {
  const BatchSpec& spec = description_.spec;
  FRUGAL_CHECK(spec.kind != Kind::graph && !spec.target_of_each_pixel() &&
                   !spec.target_of_each_token() && !spec.has_boxes(),
               "[predict] expected a network with one answer for each sample; this one has others");
  const bool tokens = spec.kind == Kind::sequences;
  const int axes = spec.sample.dim();
  const bool fits = samples.defined() && samples.dim() == axes + 1 &&
                    samples.dtype() == (tokens ? DType::i64 : DType::f32) &&
                    (tokens ? samples.size(1) >= 1 && samples.size(1) <= spec.sample[0]
                            : has_samples(samples.shape(), spec.sample));
  FRUGAL_CHECK(fits, "[predict] expected samples {} {}, one behind the other, got {}", spec.sample,
               tokens ? "i64" : "f32", describe(samples));
}

// REQUIRES: samples contiguous on the cpu, and checked.
Batch Model::batch_of_arrays(const Tensor& samples, int64_t begin, int64_t count) const {
  const int64_t one = samples.numel() / std::max<int64_t>(samples.size(0), 1);
  const auto part = [&](auto zero) {
    const auto* const from = samples.data<decltype(zero)>() + begin * one;
    return std::vector<decltype(zero)>(from, from + count * one);
  };
  if (description_.spec.kind == Kind::images) return batch_of(part(0.0f), count);
  const CategoryScope scope(Category::input);
  const Shape shape{count, one};
  Batch batch;
  if (description_.spec.kind == Kind::rows) {
    batch.input = Tensor::from(part(0.0f), shape);
    return batch;
  }
  batch.input = Tensor::from(part(int64_t{0}), shape);
  batch.extras = {{"attention_mask", Tensor::full(shape, 1, DType::i64)},
                  {"token_type_ids", Tensor::zeros(shape, DType::i64)}};
  return batch;
}

void Model::predict_arrays(
    const Tensor& samples, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  predict_samples(description_.table == nullptr ? samples : description_.table->inputs_of(samples),
                  options, on_answer);
}

void Model::predict_samples(
    const Tensor& samples, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  const BatchSpec& spec = description_.spec;
  check_arrays(samples);
  check(options);
  const Tensor here = ops::contiguous(to_device(samples, kCpu));
  data::CsvEncoding::Number scale;
  if (description_.table != nullptr) scale = description_.table->encoding().value;
  for (int64_t begin = 0; begin < here.size(0); begin += options.batch_size) {
    const int64_t count = std::min(options.batch_size, here.size(0) - begin);
    check_numbers(here, begin, count, spec.kind == Kind::images && description_.pictures.of_bytes);
    const Tensor found = outputs(batch_of_arrays(here, begin, count));
    for (int64_t i = 0; i < count; ++i) {
      const float* row = found.data<float>() + i * found.size(1);
      Answer answer;
      if (spec.has_values())
        for (int64_t k = 0; k < found.size(1); ++k)
          answer.values.push_back(static_cast<double>(row[k]) * scale.std + scale.mean);
      else
        answer.prediction = best_of(row, found.size(1), options.top);
      if (!on_answer(begin + i, answer)) return;
    }
  }
}

void Model::predict_each(
    const std::vector<std::string>& inputs, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  check(options);
  if (description_.spec.kind == Kind::sequences)
    each_text(inputs, options, on_answer);
  else if (description_.spec.target_of_each_pixel())
    each_mask(inputs, options, on_answer);
  else
    each_picture(inputs, options, on_answer);
}

void Model::each_picture(
    const std::vector<std::string>& inputs, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  check_pictures();
  const data::ViewOptions& view = description_.pictures.view;
  const std::vector<data::Crop> crops = data::crops_of(options.views);
  const auto all = static_cast<int64_t>(inputs.size());
  const auto start = [&](int64_t begin) {
    const int64_t count = std::clamp<int64_t>(all - begin, 0, options.batch_size);
    return std::async(std::launch::async, [&, begin, count] {
      return decode(inputs, begin, count, view, crops, options.threads);
    });
  };
  auto coming = start(0);
  for (int64_t begin = 0; begin < all; begin += options.batch_size) {
    const Decoded decoded = coming.get();
    coming = start(begin + options.batch_size);
    const size_t each = decoded.pixels.size() / decoded.errors.size();
    std::vector<const float*> good;
    for (size_t i = 0; i < decoded.errors.size(); ++i)
      if (decoded.errors[i].empty()) good.push_back(decoded.pixels.data() + i * each);
    const Tensor found = good.empty() ? Tensor() : of_views(good, crops.size(), options.views);
    int64_t row = 0;
    for (size_t i = 0; i < decoded.errors.size(); ++i) {
      Answer answer;
      answer.error = decoded.errors[i];
      if (answer.error.empty())
        answer.prediction =
            best_of(found.data<float>() + row++ * found.size(1), found.size(1), options.top);
      if (!on_answer(begin + static_cast<int64_t>(i), answer)) return;
    }
  }
}

// The class of each pixel.
std::vector<uint8_t> Model::classes_of(const data::Picture& picture,
                                       const PredictOptions& options) const {
  const BatchSpec& spec = description_.spec;
  const data::ViewOptions& view = description_.pictures.view;
  FRUGAL_ASSERT(picture.channels == view.channels);
  struct Window {
    int64_t top, left;
  };
  std::vector<Window> windows;
  for (const int64_t top : data::window_starts(picture.height, view.height))
    for (const int64_t left : data::window_starts(picture.width, view.width))
      windows.push_back({top, left});
  const auto one = static_cast<size_t>(view.height * view.width * view.channels);
  const auto all = static_cast<int64_t>(windows.size());
  std::vector<uint8_t> classes(static_cast<size_t>(picture.height * picture.width));
  std::vector<bool> known(classes.size());
  for (int64_t begin = 0; begin < all; begin += options.batch_size) {
    const int64_t count = std::min(options.batch_size, all - begin);
    std::vector<float> pixels(one * static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const Window& window = windows[static_cast<size_t>(begin + i)];
      float* const to = pixels.data() + static_cast<size_t>(i) * one;
      const int64_t width = std::min(view.width, picture.width - window.left) * view.channels;
      for (int64_t y = 0; y < std::min(view.height, picture.height - window.top); ++y) {
        const uint8_t* const from =
            picture.pixels.data() +
            ((window.top + y) * picture.width + window.left) * view.channels;
        for (int64_t x = 0; x < width; ++x)
          to[y * view.width * view.channels + x] = static_cast<float>(from[x]) / 255;
      }
    }
    const Tensor found = outputs(batch_of(std::move(pixels), count));  // [count * H * W, C]
    // A network may have more outputs than the data have classes. Only these have values in masks.
    const int64_t choices = std::min(spec.classes, found.size(1));
    for (int64_t i = 0; i < count; ++i) {
      const Window& window = windows[static_cast<size_t>(begin + i)];
      for (int64_t y = 0; y < std::min(view.height, picture.height - window.top); ++y)
        for (int64_t x = 0; x < std::min(view.width, picture.width - window.left); ++x) {
          const auto at = static_cast<size_t>((window.top + y) * picture.width + window.left + x);
          if (known[at]) continue;
          known[at] = true;
          const float* const row =
              found.data<float>() + ((i * view.height + y) * view.width + x) * found.size(1);
          classes[at] = static_cast<uint8_t>(std::max_element(row, row + choices) - row);
        }
    }
  }
  return classes;
}

data::Picture Model::mask_of(const data::Picture& picture, std::vector<uint8_t> classes) const {
  data::Picture mask{picture.height, picture.width, 1, std::move(classes)};
  if (!description_.mask_values.empty())
    for (uint8_t& value : mask.pixels)
      value = static_cast<uint8_t>(description_.mask_values.at(value));
  return mask;
}

void Model::each_mask(
    const std::vector<std::string>& inputs, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  const BatchSpec& spec = description_.spec;
  check_size_of_pictures();
  FRUGAL_CHECK(spec.classes >= 1 && spec.classes <= 256,
               "[predict] expected a network that gives one of 1 to 256 classes to each pixel, got "
               "one of {}",
               spec.classes);
  FRUGAL_CHECK(options.views == data::Views::centre,
               "[predict] expected no views with a network that gives a class to each pixel");
  for (size_t i = 0; i < inputs.size(); ++i) {
    Answer answer;
    try {
      const std::vector<uint8_t> bytes = data::read_file("predict", inputs[i]);
      const data::Picture picture =
          data::decode_picture(bytes, inputs[i], description_.pictures.view.channels, 0, 0,
                               description_.pictures.view.exif);
      const std::vector<uint8_t> classes = classes_of(picture, options);
      answer.mask = mask_of(picture, classes);
      std::vector<float> shares(static_cast<size_t>(spec.classes));
      for (const uint8_t each : classes) shares[each] += 1;
      for (float& share : shares) share /= static_cast<float>(classes.size());
      answer.prediction = best_of(shares.data(), spec.classes, options.top);
      std::erase_if(answer.prediction, [](const Guess& guess) { return guess.probability == 0; });
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& e) {
      answer.error = e.what();
    }
    if (!on_answer(static_cast<int64_t>(i), answer)) return;
  }
}

void Model::each_text(
    const std::vector<std::string>& inputs, const PredictOptions& options,
    const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const {
  check_texts();
  FRUGAL_CHECK(options.views == data::Views::centre,
               "[predict] expected no views with a network that reads text");
  const TextInput& text = description_.text;
  const data::Tokenizer& words = *text.tokenizer;
  const auto all = static_cast<int64_t>(inputs.size());
  for (int64_t begin = 0; begin < all; begin += options.batch_size) {
    const int64_t count = std::min(options.batch_size, all - begin);
    std::vector<data::TokenPair> rows;
    std::vector<std::string> errors(static_cast<size_t>(count));
    size_t longest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const std::string& input = inputs[static_cast<size_t>(begin + i)];
      const size_t tab = input.find('\t');
      if (text.pair != (tab != std::string::npos)) {
        errors[static_cast<size_t>(i)] =
            fmt::format("[predict] expected {}, got {}",
                        text.pair ? "two sentences with a tab between them" : "a text without tabs",
                        in_quotes(input));
        continue;
      }
      if (const size_t at = data::find_no_text(input); at != std::string::npos) {
        errors[static_cast<size_t>(i)] =
            fmt::format("[predict] expected a text in UTF-8, got the byte {:02x} in {}",
                        static_cast<unsigned char>(input[at]), in_quotes(input));
        continue;
      }
      if (input.find_first_not_of(" \t\r\n") == std::string::npos) {
        errors[static_cast<size_t>(i)] = "[predict] expected a text, got none";
        continue;
      }
      rows.push_back(text.pair ? words.pair(words.encode(input.substr(0, tab)),
                                            words.encode(input.substr(tab + 1)), text.max_length)
                               : words.single(words.encode(input), text.max_length));
      longest = std::max(longest, rows.back().ids.size());
    }
    Tensor found;
    if (!rows.empty()) {
      const CategoryScope scope(Category::input);
      const Shape shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)};
      Batch batch;
      batch.input =
          Tensor::full(shape, static_cast<double>(words.encoder_layout()->padding), DType::i64);
      Tensor mask = Tensor::zeros(shape, DType::i64), types = Tensor::zeros(shape, DType::i64);
      for (size_t row = 0; row < rows.size(); ++row)
        for (size_t i = 0; i < rows[row].ids.size(); ++i) {
          const size_t at = row * longest + i;
          batch.input.mut<int64_t>()[at] = rows[row].ids[i];
          mask.mut<int64_t>()[at] = 1;
          types.mut<int64_t>()[at] = i >= static_cast<size_t>(rows[row].second) ? 1 : 0;
        }
      batch.extras = {{"attention_mask", mask}, {"token_type_ids", types}};
      found = probabilities(std::move(batch));
    }
    int64_t row = 0;
    for (int64_t i = 0; i < count; ++i) {
      Answer answer;
      answer.error = errors[static_cast<size_t>(i)];
      if (answer.error.empty())
        answer.prediction =
            best_of(found.data<float>() + row++ * found.size(1), found.size(1), options.top);
      if (!on_answer(begin + i, answer)) return;
    }
  }
}

}  // namespace frugal::train
