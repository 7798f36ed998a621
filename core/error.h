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
