#include "apps/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace frugal::apps {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int64_t kBar = 24;  // characters

int64_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string numbers(const ProgressLine& line) {
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  acc {:.2f}%  {:.0f}/s  {}  {} left",
                     line.epoch, line.epochs, line.step, line.steps, line.loss, 100 * line.accuracy,
                     line.samples_per_second, readable_bytes(line.memory),
                     readable_seconds(line.seconds_left));
}

}  // namespace

std::string readable_bytes(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < (1 << 10)) return fmt::format("{} B", bytes);
  if (bytes < (1 << 20)) return fmt::format("{:.1f} KiB", b / (1 << 10));
  if (bytes < (1 << 30)) return fmt::format("{:.1f} MiB", b / (1 << 20));
  return fmt::format("{:.2f} GiB", b / (1 << 30));
}

std::string readable_seconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
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
  const int64_t full = line.steps > 0 ? kBar * line.step / line.steps : 0;
  std::string text;
  for (int64_t i = 0; i < kBar; ++i) text += i < full ? '#' : '.';
  text = "[" + text + "] " + numbers(line);
  const int64_t room = columns() - 1;
  if (static_cast<int64_t>(text.size()) > room) text = numbers(line);  // narrow: without the bar
  text = text.substr(0, static_cast<size_t>(room));
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
