#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "apps/cli/command_line.h"
#include "apps/cli/commands.h"
#include "apps/cli/predict_boxes.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/data/data_kinds.h"
#include "apps/config/data/make_data.h"
#include "apps/config/data/tensor_data.h"
#include "apps/config/keys/value_named.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/stored_run.h"
#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"
#include "data/formats/npy.h"
#include "data/image/picture.h"
#include "data/tables/tensor_file.h"
#include "data/tensor_dataset.h"
#include "data/text/json_lines.h"
#include "data/text/unicode.h"

namespace frugal::apps {

data::Views views_named(const std::string& name) {
  using data::Views;
  return value_named<Views>(
      name, {{"none", Views::centre}, {"flip", Views::flip}, {"ten_crop", Views::ten_crop}});
}

namespace {

namespace fs = std::filesystem;
using train::Answer;
using train::Prediction;

constexpr size_t kColumns = 80;
constexpr const char* kJsonLines[] = {".jsonl", ".jsonl.gz"};

// What is predicted for: a file or a text, and how its mask is named, without an ending.
struct Input {
  std::string text, name;
};

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && relative != "." && *relative.begin() != "..";
}

// Names are paths below the folder. Masks of an earlier call are no pictures: what lies in `out`, a
// folder below this one, is left out.
void add_pictures_in(const std::string& folder, const std::string& out,
                     std::vector<Input>& inputs) {
  std::vector<fs::path> found;
  try {
    const fs::path masks = out.empty() ? fs::path() : fs::weakly_canonical(out);
    const bool below = !out.empty() && lies_in(masks, fs::weakly_canonical(folder));
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && data::has_picture_name(entry.path().string()) &&
          !(below && lies_in(fs::weakly_canonical(entry.path()), masks)))
        found.push_back(entry.path());
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("[predict] cannot read the folder {}: {}", in_quotes(folder),
                            e.code().message()));
  }
  FRUGAL_CHECK(!found.empty(),
               "[predict] expected pictures (.jpg, .jpeg, .png, .webp, .bmp) in {}, got none",
               in_quotes(folder));
  std::sort(found.begin(), found.end(),
            [](const fs::path& x, const fs::path& y) { return x.string() < y.string(); });
  for (const fs::path& path : found)
    inputs.push_back({path.string(), path.lexically_relative(folder).replace_extension().string()});
}

void add_lines_of(const std::string& path, std::vector<Input>& inputs) {
  const std::vector<uint8_t> bytes = data::read_file("predict", path);
  std::string line;
  int64_t number = 0;
  const auto end_line = [&] {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
    if (!line.empty() && line.back() == '\r') line.pop_back();
    data::expect_utf8(
        line,
        [&](size_t at) {
          return fmt::format("[predict] {}, line {}, column {}", in_quotes(path), number, at + 1);
        },
        data::kMakeUtf8);
    if (!line.empty()) inputs.push_back({line, ""});
    line.clear();
  };
  for (const uint8_t byte : bytes) {
    if (byte == '\n')
      end_line();
    else
      line += static_cast<char>(byte);
  }
  end_line();
}

bool has_name_of_lines(const std::string& name) {
  return std::any_of(std::begin(kJsonLines), std::end(kJsonLines),
                     [&](const char* end) { return name.ends_with(end); });
}

// The texts of a file of JSON lines, in the fields that the run's data have them in.
void add_json_lines_of(const std::string& path, const DataConfig& data,
                       std::vector<Input>& inputs) {
  must_be_there("INPUT", path);
  const std::string second = data.second_text.value_or("");
  const auto lines = at_section("data", [&] {
    return data::read_json_lines(path, {data.text, second, ""});
  });
  for (const data::JsonLine& line : lines)
    inputs.push_back({second.empty() ? line.text : line.text + "\t" + line.second, ""});
}

// Files and texts in the order of the arguments: a folder is its pictures, a file of a network that
// reads text is its lines.
std::vector<Input> inputs_of(const PredictArguments& arguments, BatchSpec::Kind kind,
                             const DataConfig& data) {
  std::vector<Input> inputs;
  for (const std::string& argument : arguments.inputs) {
    const size_t before = inputs.size();
    if (kind == BatchSpec::Kind::images && is_folder(argument))
      add_pictures_in(argument, arguments.out, inputs);
    else if (kind == BatchSpec::Kind::sequences && has_name_of_lines(argument))
      add_json_lines_of(argument, data, inputs);
    else if (kind == BatchSpec::Kind::sequences && data::is_file(argument))
      add_lines_of(argument, inputs);
    else
      inputs.push_back({argument, fs::path(argument).stem().string()});
    if (inputs.size() == before)
      throw ConfigError(
          "", fmt::format("predict: expected inputs in {}, got none", in_quotes(argument)));
  }
  if (inputs.empty()) throw ConfigError("", "predict: expected inputs, got none");
  return inputs;
}

// Its end, which tells files apart.
std::string shortened(const std::string& text, size_t most) {
  const std::string shown = printable(text, 4096);
  if (shown.size() <= most) return shown;
  size_t at = shown.size() - (most - 3);
  while (at < shown.size() && (static_cast<unsigned char>(shown[at]) & 0xC0) == 0x80) ++at;
  return "..." + shown.substr(at);
}

std::string guess_text(const train::Guess& guess) {
  return fmt::format("{:6.2f} %  {}", 100 * guess.probability,
                     shortened(guess.name, kColumns - 14));
}

Json answer_json(const std::string& input, const Answer& answer) {
  if (!answer.error.empty()) return {{"input", input}, {"error", answer.error}};
  Json top = Json::array();
  for (const auto& guess : answer.prediction)
    top.push_back(
        {{"class", guess.index}, {"name", guess.name}, {"probability", guess.probability}});
  if (!answer.values.empty()) return {{"input", input}, {"values", answer.values}};
  return {{"input", input}, {"top", top}};
}

// Where the masks of `inputs` are written. Errors: ConfigError for a folder that is missing or
// asked for in vain, for two masks of one name, and for a file that must not be written over.
std::vector<std::string> mask_files(const PredictArguments& arguments,
                                    const std::vector<Input>& inputs, const BatchSpec& spec) {
  if (!spec.target_of_each_pixel()) return {};
  if (arguments.out.empty())
    throw ConfigError("", "--out: expected a folder for the masks of this network, got none");
  std::vector<std::string> files;
  std::map<std::string, std::string> taken;
  for (const auto& [input, name] : inputs) {
    const std::string file = arguments.out + "/" + name + ".png";
    const auto [known, added] = taken.emplace(file, input);
    if (!added)
      throw ConfigError("",
                        fmt::format("--out: expected pictures of different names, got {} and "
                                    "{}, whose masks would both be {}",
                                    in_quotes(known->second), in_quotes(input), in_quotes(file)));
    files.push_back(file);
  }
  // Whatever the paths look like, also through links, an input is never written over.
  std::set<std::pair<dev_t, ino_t>> read;
  struct stat facts {};
  for (const Input& input : inputs)
    if (stat(input.text.c_str(), &facts) == 0) read.emplace(facts.st_dev, facts.st_ino);
  std::error_code error;
  for (const std::string& file : files) {
    if (!fs::exists(fs::symlink_status(file, error))) continue;
    if (stat(file.c_str(), &facts) == 0 && read.contains({facts.st_dev, facts.st_ino}))
      throw ConfigError("",
                        fmt::format("--out: expected a folder in which no mask would be written "
                                    "over a picture that is read, got one for {}",
                                    in_quotes(file)));
    if (!arguments.overwrite)
      throw ConfigError(
          "", fmt::format("--out: {} exists; --overwrite writes over it", in_quotes(file)));
  }
  for (const std::string& file : files) {
    const std::string folder = fs::path(file).parent_path().string();
    fs::create_directories(folder, error);
    FRUGAL_CHECK(!error, "[predict] cannot make the folder {}: {}", in_quotes(folder),
                 error.message());
  }
  return files;
}

// Writes the mask of a picture, whose classes are then printed with their shares of the pixels.
void write_mask(const std::string& file, const Answer& answer) {
  const std::vector<uint8_t> bytes = data::encode_mask(answer.mask);
  data::atomic_write(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Prints answers as they come, and counts.
class Printer {
 public:
  Printer(const PredictArguments& arguments, size_t count) : json_(arguments.json), count_(count) {}

  void print(const std::string& input, const Answer& answer) {
    check_output();
    ++done_;
    if (!answer.error.empty()) {
      ++failed_;
      std::fflush(stdout);
      // The message names the input.
      std::fprintf(stderr, "error: %s\n", without_controls(answer.error).c_str());
    }
    if (json_) {
      // Bytes of a name that are not UTF-8 become U+FFFD.
      std::printf(
          "%s\n",
          answer_json(input, answer).dump(-1, ' ', true, Json::error_handler_t::replace).c_str());
      return;
    }
    if (!answer.error.empty()) return;
    std::printf("%s\n", shortened(input, kColumns).c_str());
    for (const auto& guess : answer.prediction) std::printf("  %s\n", guess_text(guess).c_str());
    for (const double value : answer.values) std::printf("  %.6g\n", value);
  }

  // Between two answers. Errors: Interrupted.
  void look_at_signals() const {
    if (signal_received() != 0)
      throw Interrupted(signal_received(), fmt::format("behind {} of {} inputs", done_, count_));
  }
  void check_all_read() const {
    FRUGAL_CHECK(failed_ == 0, "[predict] {} of {} inputs have no prediction; each is named above",
                 failed_, count_);
  }

 private:
  bool json_;
  size_t count_, done_ = 0, failed_ = 0;
};

// Nodes of the run's own graph, by their numbers.
void predict_nodes(const PredictArguments& arguments, StoredRun run, const train::Model& model) {
  if (arguments.tta != "none")
    throw ConfigError("", "--tta: expected none with a network that reads a graph");
  resolve_with_data(run, arguments.sets);
  const auto batches = make_batches(run.config, Split::test);
  const Tensor found = model.probabilities(*batches->next());
  Printer printer(arguments, arguments.inputs.size());
  for (const std::string& input : arguments.inputs) {
    printer.look_at_signals();
    int64_t node = -1;
    const auto [end, problem] = std::from_chars(input.data(), input.data() + input.size(), node);
    Answer answer;
    if (problem != std::errc() || end != input.data() + input.size() || node < 0 ||
        node >= found.size(0))
      answer.error = fmt::format("[predict] expected the number of a node, 0 to {}, got {}",
                                 found.size(0) - 1, in_quotes(input));
    else
      answer.prediction =
          model.best_of(found.data<float>() + node * found.size(1), found.size(1), arguments.top);
    printer.print(input, answer);
  }
  printer.check_all_read();
}

// Rows of one file, ready for the network, and how each is named: a row of a table by its line in
// the file, one of an array by its index.
struct Rows {
  Tensor values;
  std::vector<std::string> names;
};

// The array of a file as the run's own arrays become samples.
Tensor samples_in(const Tensor& input, const std::string& file, const StoredRun& run) {
  const BatchSpec& spec = run.description.spec;
  const Shape& sample = spec.sample;
  const auto check = [&](bool fits, const std::string& wanted) {
    FRUGAL_CHECK(fits, "[predict] {}: expected an array input {}, got {}", in_quotes(file), wanted,
                 input.shape());
  };
  check(input.dim() > 0 && input.size(0) > 0, "of at least one sample");
  if (spec.kind == BatchSpec::Kind::rows) {
    check(input.dim() == 2 && input.size(1) == sample[0], fmt::format("[N, {}]", sample[0]));
    const Tensor numbers = data::to_f32(input);
    data::check_finite_samples(file, numbers);
    return numbers;
  }
  if (spec.kind == BatchSpec::Kind::sequences) {
    check(input.dim() == 2 && input.size(1) <= sample[0],
          fmt::format("[N, T] of at most {} tokens", sample[0]));
    const Tensor ids = data::to_i64(file, input);
    const int64_t end = run.config.model.vocab_size.value_or(spec.vocabulary);
    for (int64_t i = 0; i < ids.numel(); ++i)
      FRUGAL_CHECK(ids.data<int64_t>()[i] >= 0 && ids.data<int64_t>()[i] < end,
                   "[predict] {}: expected token ids from 0 to {}, got {} in sample {}",
                   in_quotes(file), end - 1, ids.data<int64_t>()[i], i / ids.size(1));
    return ids;
  }
  const bool first = run.config.data.layout == "nchw";  // the channels
  const Shape wanted = first ? Shape{sample[2], sample[0], sample[1]} : sample;
  const bool grey = !first && sample[2] == 1 && input.dim() == 3;
  check(input.dim() == (grey ? 3 : 4) && input.numel() == input.size(0) * sample.numel() &&
            input.size(1) == wanted[0] && input.size(2) == wanted[1],
        fmt::format("[N, {}, {}, {}]", wanted[0], wanted[1], wanted[2]));
  const auto& known = run.config.data.known;
  const bool is_bytes = input.dtype() == DType::u8;
  const Tensor pictures =
      pictures_like(known != nullptr ? known->of_bytes.value_or(is_bytes) : is_bytes, input,
                    fmt::format("[predict] {}: expected an array input", in_quotes(file)));
  data::SampleTargets none;
  none.labels.resize(static_cast<size_t>(input.size(0)));
  none.classes = 1;
  const data::TensorDataset all(
      file, pictures.view({input.size(0), wanted[0], wanted[1], wanted[2]}), none, first);
  Tensor samples = Tensor::empty({input.size(0), sample[0], sample[1], sample[2]});
  for (int64_t i = 0; i < input.size(0); ++i)
    all.get_into(i, {}, samples.mut<float>() + i * sample.numel());
  return samples;
}

Rows rows_of(const std::string& file, const StoredRun& run, const train::Model& model) {
  must_be_there("INPUT", file);
  Rows rows;
  if (run.description.table != nullptr) {
    const data::CsvTable table = model.table_of(file);
    rows.values = run.description.table->inputs_of(table);
    for (int64_t i = 0; i < table.rows(); ++i)
      rows.names.push_back(fmt::format("{}:{}", file, table.line(i)));
    return rows;
  }
  const data::TensorFile arrays(file);
  rows.values = samples_in(arrays.read("input"), file, run);
  for (int64_t i = 0; i < rows.values.size(0); ++i)
    rows.names.push_back(fmt::format("{}:{}", file, i));
  return rows;
}

// Files of arrays, for a network that learned from such.
bool are_arrays(const std::vector<std::string>& inputs, const StoredRun& run) {
  return run.config.data.name == "tensors" &&
         std::all_of(inputs.begin(), inputs.end(), [](const std::string& input) {
           return input.ends_with(".npz") || input.ends_with(".safetensors");
         });
}

void predict_rows(const PredictArguments& arguments, const StoredRun& run,
                  const train::Model& model) {
  if (arguments.tta != "none")
    throw ConfigError("", "--tta: expected none with a network that reads rows, and with arrays");
  FRUGAL_CHECK(run.config.data.name != "csv" || run.description.table != nullptr,
               "[predict] expected columns.json in {}, which says how a row becomes an input; the "
               "run has none",
               in_quotes(run.folder));
  std::vector<Rows> files;  // all are read before the first row is printed
  size_t count = 0;
  for (const std::string& file : arguments.inputs) {
    files.push_back(rows_of(file, run, model));
    count += files.back().names.size();
  }
  train::PredictOptions options;
  options.top = arguments.top;
  options.batch_size = arguments.batch_size;
  Printer printer(arguments, count);
  for (const Rows& rows : files) {
    const auto print = [&](int64_t index, const Answer& answer) {
      printer.look_at_signals();
      printer.print(rows.names[static_cast<size_t>(index)], answer);
      return true;
    };
    if (run.description.table != nullptr)
      model.predict_rows(rows.values, options, print);  // rows_of() has encoded them
    else
      model.predict_arrays(rows.values, options, print);
  }
}

}  // namespace

void predict_command(const PredictArguments& arguments) {
  const StoredRun run = read_run(arguments.run, arguments.sets);
  if (is_self_supervised(run.config.model))
    throw ConfigError("", fmt::format("predict: expected a network that gives classes, got {}; "
                                      "another run may start from its trunk with model.weights "
                                      "and model.head reset",
                                      run.config.model.name));
  catch_signals();
  const Device device = set_up_computing_device(run.config.run, "predicted");
  try {
    const train::Model model(stored_network(run, arguments.weights, device), run.description);
    const BatchSpec::Kind kind = run.description.spec.kind;
    if (kind != BatchSpec::Kind::images && !arguments.out.empty())
      throw ConfigError("", "--out: expected none with a network that reads no pictures");
    if (run.description.spec.target_of_each_pixel() && arguments.tta != "none")
      throw ConfigError("", "--tta: expected none with a network that gives a class to each pixel");
    if (kind == BatchSpec::Kind::graph) return predict_nodes(arguments, run, model);
    if (kind == BatchSpec::Kind::rows || are_arrays(arguments.inputs, run))
      return predict_rows(arguments, run, model);
    if (kind == BatchSpec::Kind::sequences && arguments.tta != "none")
      throw ConfigError("", "--tta: expected none with a network that reads text");
    if (!run.description.spec.target_of_each_pixel() && !arguments.out.empty())
      throw ConfigError("", "--out: expected none, since the network gives no class to each pixel");
    const std::vector<Input> named = inputs_of(arguments, kind, run.config.data);
    std::vector<std::string> inputs;
    for (const Input& input : named) inputs.push_back(input.text);
    if (run.description.spec.has_boxes()) return predict_boxes(arguments, inputs, run, model);
    train::PredictOptions options;
    options.top = arguments.top;
    options.views = views_named(arguments.tta);
    options.batch_size = arguments.batch_size;
    options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::vector<std::string> masks = mask_files(arguments, named, run.description.spec);
    Printer printer(arguments, inputs.size());
    model.predict_each(inputs, options, [&](int64_t index, const Answer& answer) {
      printer.look_at_signals();
      if (!masks.empty() && answer.error.empty())
        write_mask(masks[static_cast<size_t>(index)], answer);
      printer.print(inputs[static_cast<size_t>(index)], answer);
      return true;
    });
    printer.check_all_read();
  } catch (const OutOfMemory& e) {
    throw Error(fmt::format("{}\nto need less, give a smaller --batch-size (now {})", e.what(),
                            arguments.batch_size));
  }
}

}  // namespace frugal::apps
