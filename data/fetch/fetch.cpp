#include "data/fetch/fetch.h"

#ifdef FRUGAL_CURL
#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>

#include "core/words/quoted.h"
#include "data/fetch/sha256.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"
#endif

#include "core/error.h"
#include "core/words/nouns.h"

namespace frugal::data {

#ifndef FRUGAL_CURL

bool can_fetch() { return false; }

Fetched fetch(const std::string& url, const std::string& path, const FetchOptions&) {
  FRUGAL_CHECK(false,
               "[fetch] expected a build with libcurl (Debian: libcurl4-openssl-dev), got one "
               "without; build again with it, or put {} at {}",
               url, path);
  return {};
}

#else

namespace {

namespace fs = std::filesystem;

struct FreeHandle {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

bool begins_with(const std::string& path, const std::string& beginning) {
  std::string begins(beginning.size(), '\0');
  const FileHandle file = open_file("fetch", path);
  return std::fread(begins.data(), 1, begins.size(), file.get()) == begins.size() &&
         begins == beginning;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

int64_t number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? value : -1;
}

// Opens a file whose name others can guess. Links, pipes and files of other users are refused,
// because the content would go elsewhere. -1: no such file.
int open_own(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (file < 0 && errno == ENOENT) return -1;
  FRUGAL_CHECK(file >= 0, "[fetch] cannot open {}: {}", path,
               errno == ELOOP ? "it is a symbolic link; move it away" : std::strerror(errno));
  struct stat found;
  const bool own = fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink <= 1 &&
                   found.st_uid == geteuid();
  if (!own) close(file);
  FRUGAL_CHECK(
      own,
      "[fetch] expected {} to be an ordinary file of this user under one name, got another "
      "kind; move it away",
      path);
  return file;
}

// The beginning of a small file; empty if there is none.
std::string content_of(const std::string& path) {
  const int file = open_own(path, O_RDONLY);
  if (file < 0) return {};
  std::string text(size_t{1} << 14, '\0');
  const ssize_t got = read(file, text.data(), text.size());
  close(file);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// The file that grows. It is locked, so that only one process writes it.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {
    file_ = open_own(path_, O_RDWR | O_CREAT);
    const bool locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
    // If the file was renamed between open and lock, it is the finished file of another process.
    struct stat here, there;
    const bool same = locked && fstat(file_, &here) == 0 && lstat(path_.c_str(), &there) == 0 &&
                      here.st_ino == there.st_ino && here.st_dev == there.st_dev;
    if (!same) close(file_);
    FRUGAL_CHECK(same, "[fetch] expected no other fetch of {}, got one at work", path_);
    have_ = lseek(file_, 0, SEEK_END);
  }
  ~PartFile() { close(file_); }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  int64_t have() const { return have_; }
  bool clear() {
    have_ = 0;
    return ftruncate(file_, 0) == 0 && lseek(file_, 0, SEEK_SET) == 0;
  }
  bool append(const char* data, size_t bytes) {
    while (bytes > 0) {
      const ssize_t wrote = write(file_, data, bytes);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return false;
      data += wrote;
      bytes -= static_cast<size_t>(wrote);
      have_ += wrote;
    }
    return true;
  }
  void sync() const {
    FRUGAL_CHECK(fsync(file_) == 0, "[fetch] cannot write {}: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int file_ = -1;
  int64_t have_ = 0;
};

// One fetch. curl calls its callbacks, which must not throw.
class Download {
 public:
  Download(const std::string& url, const std::string& path, const FetchOptions& options)
      : url_(url),
        path_(path),
        note_(path + ".part.from"),
        options_(options),
        part_(path + ".part") {
    limit_ = options.bytes >= 0 ? std::min(options.bytes, options.max_bytes) : options.max_bytes;
    std::istringstream note(content_of(note_));
    std::string from;
    if (std::getline(note, from) && from == url_) std::getline(note, version_);
    // Without a sum or a version, the halves of two different files could be joined.
    if (from != url_ || (version_.empty() && options.sha256.empty())) restart();
  }

  void run() {
    int failures = 0;
    int64_t most = part_.have();
    while (true) {
      const std::string why = attempt();
      if (why.empty()) return;
      failures = part_.have() > most ? 1 : failures + 1;
      most = std::max(most, part_.have());
      FRUGAL_CHECK(failures <= options_.retries,
                   "[fetch] cannot get {}: {} ({}); {} bytes are kept in {}.part, and the "
                   "next fetch goes on there",
                   url_, why, with_noun(failures, "attempt"), part_.have(), path_);
      const auto delay =
          std::min<int64_t>(int64_t{options_.delay_ms} << std::min(failures - 1, 16), 30000);
      if (options_.say)
        options_.say(fmt::format("{} at {} bytes; again in {:.1f} s", why, part_.have(),
                                 static_cast<double>(delay) / 1000));
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    }
  }

  Fetched finish() {
    part_.sync();
    const std::string part = path_ + ".part";
    FRUGAL_CHECK(options_.bytes < 0 || part_.have() == options_.bytes,
                 "[fetch] expected {} bytes from {}, got {}: {}", options_.bytes, url_,
                 part_.have(), set_aside());
    FRUGAL_CHECK(begins_with(part, options_.begin),
                 "[fetch] expected a file from {} that begins with {}, got another, perhaps a page "
                 "that says why: {}",
                 url_, in_quotes(options_.begin), set_aside());
    const Fetched result{sha256_of_file(part), part_.have()};
    FRUGAL_CHECK(options_.sha256.empty() || result.sha256 == options_.sha256,
                 "[fetch] wrong checksum of {}: expected SHA-256 {}, got {}: {}", url_,
                 options_.sha256, result.sha256, set_aside());
    move_to(path_);
    return result;
  }

 private:
  void restart() {
    version_.clear();
    FRUGAL_CHECK(part_.clear(), "[fetch] cannot write {}.part: {}", path_, std::strerror(errno));
  }

  std::string set_aside() {
    move_to(path_ + ".bad");
    return "the file is kept as " + path_ + ".bad";
  }

  void move_to(const std::string& target) const {
    std::error_code error;
    fs::rename(path_ + ".part", target, error);
    FRUGAL_CHECK(!error, "[fetch] cannot rename {}.part to {}: {}", path_, target, error.message());
    fs::remove(note_, error);
  }

  // The reason of a failure that a retry may mend; empty after success. Throws other failures.
  std::string attempt() {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    const std::unique_ptr<CURL, FreeHandle> curl(curl_easy_init());
    FRUGAL_CHECK(started == CURLE_OK && curl, "[fetch] cannot start libcurl");
    handle_ = curl.get();
    begin_ = part_.have();
    status_ = 0;
    body_ = false;
    failure_.clear();
    char detail[CURL_ERROR_SIZE] = "";
    std::unique_ptr<curl_slist, FreeList> headers;
    const auto set = [&](CURLoption option, auto value) {
      FRUGAL_CHECK(curl_easy_setopt(handle_, option, value) == CURLE_OK,
                   "[fetch] libcurl refuses option {} for {}", static_cast<int>(option), url_);
    };
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_ERRORBUFFER, &detail[0]);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, lower(url_).starts_with("https:") ? "https" : "http,https");
    set(CURLOPT_CONNECTTIMEOUT, 30L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_seconds));
    set(CURLOPT_USERAGENT, "frugal");
    set(CURLOPT_HEADERFUNCTION, &Download::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Download::on_body);
    set(CURLOPT_WRITEDATA, this);
    const std::string range = std::to_string(begin_) + "-";
    if (begin_ > 0) {
      set(CURLOPT_RANGE, range.c_str());
      if (!version_.empty()) {
        headers.reset(curl_slist_append(nullptr, ("If-Range: " + version_).c_str()));
        set(CURLOPT_HTTPHEADER, headers.get());
      }
    }
    const CURLcode code = curl_easy_perform(handle_);
    long status = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    FRUGAL_CHECK(failure_.empty(), "[fetch] {} from {}: {}", failure_, url_,
                 "what came is kept in " + path_ + ".part");
    if (code == CURLE_OK) {
      if (!body_ && status == 200) restart();  // an empty file
      return {};
    }
    if (status == 416 && begin_ > 0) {  // the server has no bytes beyond those that are here
      restart();
      return "the server has nothing behind what is here";
    }
    const bool final_answer = code == CURLE_HTTP_RETURNED_ERROR && status >= 400 && status < 500 &&
                              status != 408 && status != 429;
    const std::string why = printable(detail[0] != '\0' ? detail : curl_easy_strerror(code), 300);
    FRUGAL_CHECK(!final_answer && code != CURLE_URL_MALFORMAT &&
                     code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_TOO_MANY_REDIRECTS &&
                     code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE,
                 "[fetch] cannot get {}: {}", url_, why);
    return why;
  }

  void on_line(std::string_view line) {
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // the first line of each answer, also of redirects
      status_ = 0;
      if (const size_t space = line.find(' '); space != std::string_view::npos)
        status_ = number(line.substr(space + 1));
      length_ = range_ = -1;
      tag_.clear();
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string name = lower(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    if (name == "content-length") length_ = number(value);
    if (name == "content-range" && value.starts_with("bytes ")) range_ = number(value.substr(6));
    if (name == "etag" && !value.starts_with("W/"))
      tag_ = value;  // a weak tag does not stand for equal bytes
    if (name == "last-modified" && tag_.empty()) tag_ = value;
  }

  bool start_body() {
    body_ = true;
    if (status_ == 206) {
      if (range_ == part_.have()) return true;
      failure_ = fmt::format("expected a part from byte {}, got one from {}", part_.have(), range_);
      return false;
    }
    version_ = tag_;  // the whole file, perhaps another one than last time
    if (!part_.clear()) {
      failure_ = fmt::format("cannot write: {}", std::strerror(errno));
      return false;
    }
    try {
      atomic_write(note_, url_ + "\n" + version_ + "\n");
    } catch (const std::exception& error) {  // curl is C
      failure_ = fmt::format("cannot write {}: {}", note_, error.what());
      return false;
    }
    return true;
  }

  bool take(const char* data, size_t bytes) {
    if (!body_ && !start_body()) return false;
    const int64_t total = length_ >= 0 ? length_ + (status_ == 206 ? begin_ : 0) : -1;
    if (std::max(total, part_.have() + static_cast<int64_t>(bytes)) > limit_) {
      failure_ = fmt::format("expected at most {} bytes, got {}", limit_,
                             total >= 0 ? std::to_string(total) : std::string("more"));
      return false;
    }
    if (!part_.append(data, bytes)) {
      failure_ = fmt::format("cannot write: {}", std::strerror(errno));
      return false;
    }
    if (options_.progress) options_.progress(part_.have(), total);
    return true;
  }

  static size_t on_header(char* data, size_t, size_t bytes, void* self) {
    static_cast<Download*>(self)->on_line({data, bytes});
    return bytes;
  }
  static size_t on_body(char* data, size_t, size_t bytes, void* self) {
    return static_cast<Download*>(self)->take(data, bytes) ? bytes : 0;
  }

  std::string url_, path_, note_;
  const FetchOptions& options_;
  PartFile part_;
  int64_t limit_ = 0;
  std::string version_;  // the ETag or date of the bytes in PATH.part

  CURL* handle_ = nullptr;  // this and all members below belong to the current attempt
  int64_t begin_ = 0, status_ = 0, length_ = -1, range_ = -1;
  std::string tag_, failure_;
  bool body_ = false;
};

}  // namespace

bool can_fetch() { return true; }

Fetched fetch(const std::string& url, const std::string& path, const FetchOptions& options) {
  const std::string scheme = lower(url.substr(0, std::min<size_t>(url.find("://"), 8)));
  FRUGAL_CHECK(scheme == "http" || scheme == "https",
               "[fetch] expected a URL that begins with http:// or https://, got {}", url);
  std::error_code error;
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty())
    fs::create_directories(folder, error);
  FRUGAL_CHECK(!error, "[fetch] cannot make the folder of {}: {}", path, error.message());
  Download download(url, path, options);
  download.run();
  return download.finish();
}

#endif

}  // namespace frugal::data
