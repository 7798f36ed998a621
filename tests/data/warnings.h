// What a test logs, as text.
#pragma once
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/log.h"

namespace frugal_test {

// Takes what is logged while it lives, at the level of warnings and above.
class Warnings {
 public:
  Warnings() : before_(frugal::log().sinks()), level_(frugal::log().level()) {
    frugal::log().sinks() = {std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)};
    frugal::log().set_level(spdlog::level::warn);
  }
  ~Warnings() {
    frugal::log().sinks() = before_;
    frugal::log().set_level(level_);
  }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::string text() const { return text_.str(); }
  bool has(const std::string& part) const { return text().find(part) != std::string::npos; }

 private:
  std::ostringstream text_;
  std::vector<spdlog::sink_ptr> before_;
  spdlog::level::level_enum level_;
};

}  // namespace frugal_test
