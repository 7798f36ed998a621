// Downloads by HTTP and HTTPS. They go on after cut connections and appear whole or not at all.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace frugal::data {

struct FetchOptions {
  std::string sha256;      // "": not known, so not checked
  int64_t bytes = -1;      // -1: not known
  std::string begin = {};  // bytes that the file must begin with; "": not known
  int64_t max_bytes = int64_t{64} << 30;
  int retries = 5;         // attempts in a row that bring no further byte
  int delay_ms = 500;      // before the first retry; doubles with each further one
  int stall_seconds = 60;  // a connection that brings no byte for this long counts as cut
  // total is -1 if it is not known. libcurl calls this function, so it must not throw.
  std::function<void(int64_t have, int64_t total)> progress = {};
  std::function<void(const std::string&)> say = {};  // why an attempt failed
};

struct Fetched {
  std::string sha256;
  int64_t bytes = 0;
};

bool can_fetch();  // built with libcurl

// Downloads `url` to `path` and makes the folder. Until the file is whole, its bytes are in
// PATH.part, and PATH.part.from says from which address and which version they are. An interrupted
// fetch goes on there, in another process too, unless the server's file has changed. Redirects
// never leave HTTPS. Errors: a url that is not http or https; no libcurl; another fetch of the same
// path; an answer of 4xx at once, and other failures after the retries, with a word on what is
// kept; more than max_bytes; another size than `bytes`; another sum or beginning, which moves the
// file to PATH.bad; files that cannot be written; a PATH.part or PATH.part.from that is a link, not
// an ordinary file, or another user's.
Fetched fetch(const std::string& url, const std::string& path, const FetchOptions& options = {});

}  // namespace frugal::data
