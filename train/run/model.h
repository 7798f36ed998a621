// Model: a trained network with what turns pictures and texts into its batches.
//
//   auto model = frugal::train::load("runs/a");
//   auto top = model.predict("cat.jpg");   // the likeliest classes first
//   std::cout << top[0].name << ' ' << top[0].probability << '\n';
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/image/picture.h"
#include "models/module.h"
#include "train/task.h"

namespace frugal::data {
class CsvEncoder;
class CsvTable;
enum class TextEncoding : uint8_t;
class Tokenizer;
}  // namespace frugal::data

namespace frugal::train {

// How pictures become samples, which is how the evaluations of the training run saw them.
struct PictureInput {
  data::ViewOptions view;
  std::vector<double> mean, std;  // one for each channel, of values in [0, 1]; empty: values stay
  // The network has learned from bytes, which become 0 to 1: tensors must lie between these, too.
  bool of_bytes = false;
};

// How texts become samples. A classifier of texts needs a tokenizer with an encoder_layout().
struct TextInput {
  std::shared_ptr<const data::Tokenizer> tokenizer = {};
  int64_t max_length = 128;  // tokens; the rest of a text is cut off
  bool pair = false;         // a text is two sentences with a tab between them
};

// What a network takes and what its outputs mean.
struct ModelDescription {
  BatchSpec spec;
  TaskPtr task = {};  // null: make_task() chooses by `spec`
  PictureInput pictures = {};
  TextInput text = {};
  std::shared_ptr<const data::CsvEncoder> table = {};  // makes rows of a table inputs
  data::TextEncoding table_encoding = {};              // files of such rows have it; {}: UTF-8
  // The value of each class in masks, for a network that gives a class to each pixel. Empty:
  // classes are values.
  std::vector<int64_t> mask_values = {};
  // The number of each class in the lists of the data, for a network that finds boxes, where the
  // lists give classes numbers. [0], the background, means nothing. Empty: classes are numbers.
  std::vector<int64_t> category_ids = {};
  std::vector<std::string> classes = {};  // names in the order of the outputs; may be fewer or none
};

// One class. If it has no name, its number is its name.
struct Guess {
  int64_t index = 0;
  std::string name;
  double probability = 0;
};
using Prediction = std::vector<Guess>;  // the highest probability first

struct PredictOptions {
  int64_t top = 5;                          // guesses; fewer where there are fewer classes
  data::Views views = data::Views::centre;  // probabilities are averaged over a picture's views
  int64_t batch_size = 64;                  // inputs of one forward pass
  int threads = 2;                          // they decode picture files
};

// What a network says of one input among several, or why it says nothing.
struct Answer {
  Prediction prediction;       // a network of classes fills it
  std::vector<double> values;  // a network that predicts numbers fills it, in its data's units
  // A network that gives a class to each pixel fills it. The guesses in `prediction` are then the
  // classes that occur, with their shares of the pixels. Pixels have the values of masks. They are
  // computed in windows of the network's size, as in evaluations. A pixel in two windows has the
  // class of the first one.
  data::Picture mask;
  std::string error;
};

// Thread safety: none.
class Model {
 public:
  // Errors: no network; targets of views without a task; means and deviations of another number of
  // channels; a deviation that is not above 0; values of masks of another number of classes.
  Model(std::shared_ptr<Module> network, ModelDescription description);

  // A picture as a tensor: [H, W, C] f32 in [0, 1], of the network's size.
  // Errors, all three: another shape or dtype; numbers beyond [0, 1] for a network that has learned
  // from bytes; a network of other inputs; options below 1.
  Prediction predict(const Tensor& image, const PredictOptions& options = {}) const;
  // A decoded picture of any size: it is resized and cut as in evaluations.
  Prediction predict(const data::Picture& picture, const PredictOptions& options = {}) const;
  // The path of a picture file, or a text where the network reads text. Errors also: those of the
  // file; an empty text.
  Prediction predict(const std::string& input, const PredictOptions& options = {}) const;

  // Several inputs, in their order. `on_answer` gets each answer and ends the work by returning
  // false. Files of the next batch are decoded while the network computes. An input that cannot be
  // read is an answer with an error. Errors: a network of other inputs; views of a text or of
  // masks; options below 1; more than 256 classes of pixels.
  void predict_each(
      const std::vector<std::string>& inputs, const PredictOptions& options,
      const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const;

  // A CSV file with the columns and in the encoding of those that the network has learned from.
  // Categories that it does not know get a warning. Errors: a network that was not trained on a
  // table; those of data::CsvTable.
  data::CsvTable table_of(const std::string& csv) const;
  // The rows of such a file as the network takes them, [N, F] f32. Errors: those of table_of() and
  // data::CsvEncoder::inputs_of().
  Tensor rows_of(const std::string& csv) const;
  // Rows of numbers as the network takes them, [N, F] f32, in their order. Errors: another shape or
  // dtype; a network of other inputs.
  void predict_rows(
      const Tensor& rows, const PredictOptions& options,
      const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const;

  // Samples as arrays, in their order: rows [N, F] f32 (of a table, as its file has them: this
  // standardizes them), pictures [N, H, W, C] f32 in [0, 1] of the
  // network's size, which this normalizes, or token ids [N, T] i64 of at most text.max_length.
  // Errors: another shape or dtype; a number that is not finite, or beyond [0, 1] for a network
  // that has learned from bytes; a network that gives more than one answer for a sample; a table
  // with columns of categories.
  void predict_arrays(
      const Tensor& samples, const PredictOptions& options,
      const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const;

  // The probabilities of a batch as the network's data give it: [N, classes] f32 on the host. If a
  // sample may have several labels, each has its own probability; otherwise a row sums to 1.
  // Errors: a network that predicts numbers.
  Tensor probabilities(Batch batch) const;
  // The best of one row of probabilities.
  Prediction best_of(const float* probabilities, int64_t count, int64_t top) const;

  Module& network() const { return *network_; }
  const ModelDescription& description() const { return description_; }

 private:
  Tensor outputs(Batch batch) const;
  void predict_samples(
      const Tensor& samples, const PredictOptions& options,
      const std::function<bool(int64_t index, const Answer& answer)>& on_answer) const;
  void check_arrays(const Tensor& samples) const;
  Batch batch_of_arrays(const Tensor& samples, int64_t begin, int64_t count) const;
  Batch batch_of(std::vector<float> pixels, int64_t count) const;
  Tensor of_views(const std::vector<const float*>& views, size_t crops, data::Views how) const;
  void check_pictures() const;
  void check_texts() const;
  void each_picture(const std::vector<std::string>& inputs, const PredictOptions& options,
                    const std::function<bool(int64_t, const Answer&)>& on_answer) const;
  void each_mask(const std::vector<std::string>& inputs, const PredictOptions& options,
                 const std::function<bool(int64_t, const Answer&)>& on_answer) const;
  std::vector<uint8_t> classes_of(const data::Picture& picture,
                                  const PredictOptions& options) const;
  data::Picture mask_of(const data::Picture& picture, std::vector<uint8_t> classes) const;
  void check_size_of_pictures() const;
  void each_text(const std::vector<std::string>& inputs, const PredictOptions& options,
                 const std::function<bool(int64_t, const Answer&)>& on_answer) const;
  Prediction only_answer(const std::vector<const float*>& views,
                         const PredictOptions& options) const;

  std::shared_ptr<Module> network_;
  ModelDescription description_;
};

struct LoadRunOptions {
  std::string weights = "best";  // "best", "last", or a safetensors file
  std::string device = "";       // "cpu", "cuda" or "cuda:1"; empty: where the run was trained
};

// The network of a run of `frugal train`. The folder is enough: it holds the configuration, what
// the network takes, names of classes, the tokenizer and the weights. "last" are the weights of the
// run's last evaluation. Defined in the library Frugal::run, which reads configurations.
// Errors: a folder that is no run; those of its files; a device that is not there.
Model load(const std::string& folder, const LoadRunOptions& options = {});

}  // namespace frugal::train
