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
  std::vector<Part> parts = {{5, fmt::format("epoch {}/{}", line.epoch, line.epochs)},
                             {0, fmt::format("step {}/{}", line.step, line.steps)},
                             {6, fmt::format("loss {:.4f}", line.loss)}};
  if (line.accuracy)
    parts.push_back({4, fmt::format("acc {:.2f}%", 100 * *line.accuracy)});
  else if (line.measured)
    parts.push_back({4, fmt::format("{} {:.4f}", line.metric, *line.measured)});
  const bool timed = line.units_per_second > 0;
  if (timed) parts.push_back({7, rate(line)});
  parts.push_back({3, "mem " + readable_bytes(line.memory_now)});
  parts.push_back({1, "peak " + readable_bytes(line.memory_peak)});
  if (line.bits > 0) parts.push_back({2, fmt::format("{:.2f} bits", line.bits)});
  if (timed) parts.push_back({0, readable_seconds(line.seconds_left) + " left"});
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
  for (int leaves = 1; static_cast<int64_t>(text.size()) > columns && leaves <= 7; ++leaves) {
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
  if (drawn_ > 0) std::fputs("\n", stderr);
}

// A terminal that became narrower since has broken the line into rows.
void Progress::clear() {
  if (drawn_ == 0) return;
  std::string codes;
  for (int64_t row = (drawn_ - 1) / terminal_columns(); row > 0; --row) codes += "\x1b[A";
  std::fputs((codes + "\r\x1b[J").c_str(), stderr);
  drawn_ = 0;
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
  drawn_ = static_cast<int64_t>(text.size());
}

void Progress::say(const std::string& text) {
  clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace frugal::apps
