#include "apps/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace frugal::apps {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int64_t kBar = 24;  // characters

// A rate of less than ten has digits that matter.
std::string rate(const ProgressLine& line) {
  return line.units_per_second < 10 ? fmt::format("{:.2f} {}/s", line.units_per_second, line.unit)
                                    : fmt::format("{:.0f} {}/s", line.units_per_second, line.unit);
}

}  // namespace

int64_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string readable_seconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::string progress_text(const ProgressLine& line) { return progress_text(line, INT64_MAX); }

std::string progress_text(const ProgressLine& line, int64_t columns) {
  struct Part {
    int leaves;  // in this order, where there is no room; 0: never
    std::string text;
  };
  std::vector<Part> parts = {{3, fmt::format("epoch {}/{}", line.epoch, line.epochs)},
                             {0, fmt::format("step {}/{}", line.step, line.steps)},
                             {4, fmt::format("loss {:.4f}", line.loss)},
                             {2, fmt::format("acc {:.2f}%", 100 * line.accuracy)},
                             {5, rate(line)},
                             {1, readable_bytes(line.memory)},
                             {0, readable_seconds(line.seconds_left) + " left"}};
  const auto joined = [&] {
    std::string text;
    for (const Part& part : parts) text += (text.empty() ? "" : "  ") + part.text;
    return text;
  };
  std::string text = joined();
  if (columns != INT64_MAX && static_cast<int64_t>(text.size()) + kBar + 3 <= columns) {
    const int64_t full = line.steps > 0 ? kBar * line.step / line.steps : 0;
    return fmt::format("[{}{}] {}", std::string(static_cast<size_t>(full), '#'),
                       std::string(static_cast<size_t>(kBar - full), '.'), text);
  }
  for (int leaves = 1; static_cast<int64_t>(text.size()) > columns && leaves <= 5; ++leaves) {
    std::erase_if(parts, [&](const Part& part) { return part.leaves == leaves; });
    text = joined();
  }
  return text.substr(0, static_cast<size_t>(std::max<int64_t>(columns, 0)));
}

Progress::Progress() {
  const char* terminal = std::getenv("TERM");
  live_ = isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

Progress::~Progress() {
  if (drawn_) std::fputs("\n", stderr);
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

void Progress::show(const ProgressLine& line) {
  if (!live_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kRedraw && line.step < line.steps) return;
  last_ = now;
  const std::string text = progress_text(line, terminal_columns() - 1);
  clear();
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::say(const std::string& text) {
  clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace frugal::apps
