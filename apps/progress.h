// What a person sees while training: a live bar on a terminal, plain lines elsewhere; on stderr.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace frugal::apps {

std::string readable_bytes(int64_t bytes);     // "12.3 MiB"
std::string readable_seconds(double seconds);  // "1:02:03", "4:05"

struct ProgressLine {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t step = 0, steps = 0;
  double loss = 0, accuracy = 0;
  double samples_per_second = 0;
  int64_t memory = 0;  // peak bytes
  double seconds_left = 0;
};

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
