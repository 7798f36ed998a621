// What a person sees while training: a live bar on a terminal, plain lines elsewhere; on stderr.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "train/planning/bytes.h"

namespace frugal::apps {

using train::readable_bytes;

std::string readable_seconds(double seconds);  // "1:02:03", "4:05"

int64_t terminal_columns();  // of stderr; 80 where that is no terminal

struct ProgressLine {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t step = 0, steps = 0;
  double loss = 0, accuracy = 0;
  std::string unit = "images";
  double units_per_second = 0;
  int64_t memory = 0;       // peak bytes
  double seconds_left = 0;  // by the same steps as units_per_second
};

// "epoch 1/2  step 3/40  loss ...  120 images/s  20.2 MiB  0:31 left".
std::string progress_text(const ProgressLine& line);
// The same within so many columns, with a bar where there is room: first the bar goes, then memory,
// accuracy, the epoch, the loss and the rate; the step and the time left stay.
std::string progress_text(const ProgressLine& line, int64_t columns);

class Progress {
 public:
  Progress();
  ~Progress();  // leaves the cursor on a new line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool live() const { return live_; }
  void show(
      const ProgressLine& line);      // on a terminal: redrawn in place, at most 10 times a second
  void say(const std::string& text);  // a line that stays

 private:
  void clear();
  bool live_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace frugal::apps
