// Downloads by HTTP and HTTPS that survive cut connections and appear whole or not at all.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace frugal::data {

struct FetchOptions {
  std::string sha256;      // "": not known, so not checked
  int64_t bytes = -1;      // -1: not known
  std::string begin = {};  // what the file begins with, at least; "": not known
  int64_t max_bytes = int64_t{64} << 30;
  int retries = 5;         // in a row without a byte more than before
  int delay_ms = 500;      // before the first of them; twice as long before each further one
  int stall_seconds = 60;  // without a byte: the connection counts as cut
  // total is -1 if it is not known. Called from inside libcurl: must not throw.
  std::function<void(int64_t have, int64_t total)> progress = {};
  std::function<void(const std::string&)> say = {};  // why an attempt failed
};

struct Fetched {
  std::string sha256;
  int64_t bytes = 0;
};

bool can_fetch();  // built with libcurl

// Gets `url` into `path`, whose folder is made. What has come so far lies in PATH.part, beside
// PATH.part.from, which says from where and which version; an interrupted fetch goes on there, also
// in another process, unless the server's file has changed. Redirects never leave HTTPS.
// Errors: a url that is not http or https; no libcurl; another fetch of the same path; an answer of
// 4xx at once, other failures after the retries, with what is kept; more than max_bytes, or not
// `bytes`; another sum or beginning, which moves the file to PATH.bad; files that cannot be
// written; a PATH.part or PATH.part.from that is a link, no ordinary file, or another user's.
Fetched fetch(const std::string& url, const std::string& path, const FetchOptions& options = {});

}  // namespace frugal::data
