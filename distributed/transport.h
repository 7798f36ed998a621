// Transport: messages between ranks. Internal to distributed.
#pragma once
#include <cstdint>
#include <string>

namespace frugal::distributed {

// Nothing here waits. Messages from one rank to another with one tag arrive in the order in which
// they were sent. Thread safety: one thread makes all calls.
class Transport {
 public:
  using Request = int64_t;
  static constexpr int kTags = 30000;  // tags are below

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The bytes stay where they are until the request is done.  REQUIRES: bytes < 2^31.
  virtual Request send(int to, int tag, const void* data, int64_t bytes) = 0;
  virtual Request receive(int from, int tag, void* data, int64_t bytes) = 0;
  // Whether it is done; then the request is forgotten.  Errors: a message of another length.
  virtual bool test(Request request) = 0;
  // Ends all ranks.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace frugal::distributed
