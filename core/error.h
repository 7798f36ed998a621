// Errors. FRUGAL_CHECK is for mistakes of the user and throws Error. FRUGAL_ASSERT is for mistakes
// in Frugal and throws InternalError. Messages read "[op] expected ..., got ...".
#pragma once
#include <spdlog/fmt/fmt.h>

#include <stdexcept>
#include <string>

namespace frugal {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// An option with a value that it cannot have, alone or beside the others.
class OptionError : public Error {
 public:
  // path: the option, joined by dots ("compression.memory_budget"); empty: no single one.
  OptionError(const std::string& path, const std::string& what)
      : Error(path.empty() ? what : path + ": " + what), path_(path), reason_(what) {}
  const std::string& path() const { return path_; }
  const std::string& reason() const { return reason_; }  // the message without the path

 private:
  std::string path_, reason_;
};

}  // namespace frugal

#define FRUGAL_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) throw ::frugal::Error(fmt::format(__VA_ARGS__)); \
  } while (false)

#define FRUGAL_ASSERT(condition)                                                       \
  do {                                                                                 \
    if (!(condition))                                                                  \
      throw ::frugal::InternalError(                                                   \
          fmt::format("{}:{}: assertion failed: {}", __FILE__, __LINE__, #condition)); \
  } while (false)
