// What a person sees while training: a live bar on a terminal, plain lines elsewhere; on stderr.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "train/planning/bytes.h"

namespace frugal::apps {

using train::readable_bytes;

std::string readable_seconds(double seconds);  // "1:02:03", "4:05"

int64_t terminal_columns();  // stderr's columns; 80 where that is no terminal

struct ProgressLine {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t step = 0, steps = 0;
  double loss = 0;
  std::optional<double> accuracy = {};  // none: numbers are predicted, and none is ever right
  std::string metric = {};              // what is shown instead, and its last value on the test set
  std::optional<double> measured = {};  // none: nothing is shown
  std::string unit = "images";
  double units_per_second = 0;              // 0: not measured yet, nor is seconds_left
  int64_t memory_now = 0, memory_peak = 0;  // the most bytes of the last step, and of the run
  double bits = 0;                          // StepReport::mean_bits
  double seconds_left = 0;                  // follows from the steps of units_per_second
};

// "epoch 1/2  step 3/40  loss ...  acc ...  120 images/s  mem 18.1 MiB  peak 20.2 MiB  4.31 bits
// 0:31 left", on one line. What is not known is left out.
std::string progress_text(const ProgressLine& line);
// Makes this line fit into so many columns, with a bar where there is room. Where there is none,
// parts leave in this order: the bar, the peak, the bits, the memory, the accuracy, the epoch, the
// loss, the rate. The step and the time left stay.
std::string progress_text(const ProgressLine& line, int64_t columns);

class Progress {
 public:
  Progress();
  ~Progress();  // leaves the cursor on a new line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool live() const { return live_; }
  // On a terminal: redrawn in place, at most 10 times a second, in the columns that it has then.
  void show(const ProgressLine& line);
  void say(const std::string& text);  // a line that stays

 private:
  void clear();
  bool live_ = false;
  int64_t drawn_ = 0;  // characters of the line on the terminal
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace frugal::apps
