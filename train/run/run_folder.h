// The files of one run:
//   config.json      the resolved configuration
//   input.json       what the network takes: shapes, the size and normalization of pictures
//   classes.json     names of the classes, where the data have names
//   characters.txt, vocab.txt, vocab.json and merges.txt, or tokenizer.json or tokenizer.model with
//                    what stands beside it    the tokenizer of a network of text
//   metrics.jsonl    a line per log interval, per epoch and for what was measured
//   metrics.csv      the epochs as a table
//   tensorboard/     with train.tensorboard: the same, as event files
//   tensor_times.json  how long the tensors of recorded steps took to pack and unpack
//   columns.json     of tables: how a row becomes an input
//   data.json        what else the run keeps of its data: classes, parts, a digest
//   base.json        of a run that trains adapters: where the frozen weights lie, and their digest
//   summary.json, report.html    when the run has ended
//   checkpoint/state.safetensors   what a run resumes from; checkpoint/seconds: what steps took
//   checkpoint/last.safetensors    the same weights alone, under PyTorch's names
//   checkpoint/last_average.safetensors  with optim.ema: the averages of the weights
//   checkpoint/best_step_N.safetensors  with train.keep_best: weights of the best evaluations
//   checkpoint/best.safetensors    the weights of the best evaluation, or their averages: by its
//                    metric, on the validation set where there is one
//
// With optim.ema evaluations use the averages: `final` in summary.json is measured on
// last_average.safetensors, else on last.safetensors, and `best` on best.safetensors. The files'
// metadata say which of the two they hold ("weights").
//
// A checkpoint is one file, state.safetensors, replaced atomically, so that weights, optimizer and
// position always belong together; last.safetensors and last_average.safetensors are copies of
// its weights, written after it and again on resume. The weights of the best evaluations are
// written when they are found, and appear with the next checkpoint, right before it. metrics.jsonl
// and metrics.csv are appended to. They may run ahead of the checkpoint and are cut back on resume.
// Numbers in metrics.jsonl never depend on time, so that an interrupted run leaves the same bytes
// as one that was not.
//
// Where the network leaves out its frozen parameters (Module::leaves_out_frozen), so do all of
// these files of weights.
//
// Nothing is written through a link in the folder. The folder itself may be one.
#pragma once
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_tensors.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/run/run_state.h"

namespace frugal::data {
class AtomicFile;
}

namespace frugal::train {

struct Checkpoint;  // checkpoint.h

// Is there a run in whose folder this path stands, and that needs what is there? It does not need
// its report, which can be written again.
bool is_needed_by_run(const std::string& path);

class RunFolder {
 public:
  // Makes the folder. Errors: cannot be made or written, another process at work in it; OptionError
  // if it has files and resume is false, files that are not of a run, links, or a checkpoint
  // without its state. What a killed process left of a file that it was writing goes.
  // overwrite: a run that is there stays until replace(), as if it were not there. Errors then
  // also: a folder that is no run.
  RunFolder(const std::string& path, bool resume, bool overwrite = false);
  // A run that never came to keep() leaves nothing that it made, so that the next one can start.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  void keep() { kept_ = true; }

  // With overwrite: removes the run that was there. The trainer calls it when all that a start
  // needs is ready, and before anything is written.
  void replace();

  const std::string& path() const { return path_; }
  bool has_checkpoint() const;

  // What checkpoints say of the run that they belong to, such as its configuration in text form.
  // `check` is given the text of a checkpoint that is to be loaded, and throws if this run is
  // another one. Without a call: no text, and no check.
  void describe(const std::string& text, std::function<void(const std::string& before)> check);

  // Errors: no checkpoint, a corrupt file; those of the check.
  Checkpoint read() const;
  // Called when `model` has the weights of the checkpoint: writes the copies of its weights that a
  // process may have been killed before, and removes weights that it does not name.
  void loaded(const RunState& state, Module& model);
  // optimizer: Optimizer::state(); exchange: GradientExchange::state().
  void save(RunState& state, const CompressionState& compression, Module& model,
            const NamedTensors& optimizer, const NamedTensors& exchange);
  // The next save() lets the file appear.
  void save_best(const RunState& state, Module& model, bool averaged);
  // The file of weights that are kept for step `step`, below checkpoint/.
  static std::string kept_name(int64_t step);
  // As save_best(), under the name of the state's step. save() and load() remove the files of steps
  // that state.kept does not have: until then a run that is cut finds all it needs.
  void save_kept(const RunState& state, Module& model, bool averaged);
  // Call it while the averages are the model's weights.
  void save_average(const RunState& state, Module& model);

  void start_metrics(int64_t bytes);             // cuts the file to `bytes`; Errors: it is shorter
  void append_metrics(const std::string& line);  // ends it; Errors: full disk
  // Other files that grow: start_appending() makes the file or cuts it to `bytes`. save() syncs
  // them. Errors: a name that is not listed above; the file is shorter, or no regular file; full
  // disk.
  void start_appending(const std::string& name, int64_t bytes);
  void append(const std::string& name, std::string_view text);
  // When a file is written to the disk, so that it stays after a power cut. Until the first
  // checkpoint a run has nothing to lose, so what it writes before may wait for that.
  // Errors: a name that is not listed above; full disk.
  enum class Lasting : uint8_t { now, with_checkpoint, never };
  void write(const std::string& name, const std::string& text, Lasting lasting = Lasting::now);

 private:
  void make_folders();
  void remove_leftovers() const;
  void sync_waiting();
  void hold(const std::string& name, Module& model,
            const std::map<std::string, std::string>& metadata);
  void commit_held(const RunState& state);
  void save_last(const RunState& state, Module& model);
  void remove_unkept(const RunState& state) const;
  std::string path_, description_;
  std::function<void(const std::string&)> check_;
  int lock_ = -1;
  struct Appended {
    int file = -1;
    int64_t bytes = 0;
  };
  std::map<std::string, Appended> appended_;  // by name
  // Weights that were found to be good since the last checkpoint, by name in checkpoint/.
  std::map<std::string, std::unique_ptr<data::AtomicFile>> held_;
  std::vector<std::string> waiting_;  // files and folders that save() syncs, the outermost first
  std::vector<std::string> made_;     // folders and files that were not there before, in order
  bool kept_ = false;
  bool replaces_ = false;  // the run that is there is to go
};

}  // namespace frugal::train
