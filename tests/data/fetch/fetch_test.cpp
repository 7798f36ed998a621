#include "data/fetch/fetch.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "data/fetch/sha256.h"
#include "tests/data/fetch/http_server.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using frugal_test::answer;
using frugal_test::content_of;
using frugal_test::HttpRequest;
using frugal_test::HttpServer;
using frugal_test::serve;
using frugal_test::TemporaryFolder;

std::string some_bytes(size_t count) {
  std::string out(count, '\0');
  uint32_t state = 1;
  for (char& c : out) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

// A server, or nothing (with a reason printed) where none can be or there is no libcurl.
std::unique_ptr<HttpServer> start(frugal_test::HttpHandler handler) {
  if (!can_fetch()) {
    MESSAGE("skipped: built without libcurl");
    return nullptr;
  }
  try {
    return std::make_unique<HttpServer>(std::move(handler));
  } catch (const std::exception& e) {
    MESSAGE("skipped: ", e.what());
    return nullptr;
  }
}

FetchOptions quick(const std::string& file = {}) {
  FetchOptions options;
  options.delay_ms = 1;
  options.retries = 2;
  if (!file.empty()) options.sha256 = sha256_hex(file);
  return options;
}

bool exists(const std::string& path) { return fs::exists(path); }

TEST_CASE("sums of texts and of files") {
  const TemporaryFolder folder;
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");  // FIPS 180's example
  // Longer than the piece in which files are read.
  const std::string file = some_bytes(600001);
  CHECK(sha256_of_file(folder.write("a", file)) == sha256_hex(file));
  CHECK_THROWS_WITH_AS(sha256_of_file(folder / "none"), doctest::Contains("[sha256]"), Error);
}

TEST_CASE("a file arrives whole, with its sum") {
  const std::string file = some_bytes(300000);
  const auto server = start([&](const HttpRequest& r) { return serve(r, file, ""); });
  if (!server) return;
  const TemporaryFolder folder;
  const std::string path = folder / "new/folder/file";
  int64_t last = 0, total = 0;
  FetchOptions options = quick(file);
  options.bytes = 300000;
  options.progress = [&](int64_t have, int64_t all) { last = have, total = all; };
  const Fetched got = fetch(server->url("/file"), path, options);
  CHECK(content_of(path) == file);
  CHECK(got.bytes == 300000);
  CHECK(got.sha256 == sha256_hex(file));
  CHECK((last == 300000 && total == 300000));
  CHECK_FALSE(exists(path + ".part"));
  CHECK_FALSE(exists(path + ".part.from"));
  CHECK(fetch(server->url("/file"), folder / "unchecked", quick()).sha256 == sha256_hex(file));
}

TEST_CASE("what a fetch writes follows no link that waits under its name") {
  const std::string file = some_bytes(1000);
  const auto server = start([&](const HttpRequest& r) { return serve(r, file, "\"v1\""); });
  if (!server) return;
  const TemporaryFolder folder;
  const std::string other = folder.write("other", "precious");
  const std::string path = folder / "file";
  const auto get = [&] { fetch(server->url("/file"), path, quick(file)); };
  fs::create_symlink(other, path + ".part");
  CHECK_THROWS_WITH_AS(get(), doctest::Contains("it is a symbolic link"), Error);
  fs::remove(path + ".part");
  fs::create_hard_link(other, path + ".part");
  CHECK_THROWS_WITH_AS(get(), doctest::Contains("an ordinary file of this user"), Error);
  fs::remove(path + ".part");
  REQUIRE(mkfifo((path + ".part").c_str(), 0600) == 0);  // waits for no reader
  CHECK_THROWS_WITH_AS(get(), doctest::Contains("an ordinary file of this user"), Error);
  fs::remove(path + ".part");
  fs::create_symlink(other, path + ".part.from");
  CHECK_THROWS_WITH_AS(get(), doctest::Contains("it is a symbolic link"), Error);
  fs::remove(path + ".part.from");
  // The last step replaces a link, and follows none.
  fs::create_symlink(other, path);
  get();
  CHECK_FALSE(fs::is_symlink(path));
  CHECK(content_of(path) == file);
  CHECK(content_of(other) == "precious");
}

TEST_CASE("an empty file") {
  const auto server = start([](const HttpRequest&) { return answer("200 OK", ""); });
  if (!server) return;
  const TemporaryFolder folder;
  CHECK(fetch(server->url("/"), folder / "file", quick()).bytes == 0);
  CHECK(exists(folder / "file"));
}

TEST_CASE("cut connections go on where they were cut") {
  const std::string file = some_bytes(100000);
  const auto server = start([&](const HttpRequest& r) {
    std::string out = serve(r, file, "\"v1\"");
    const size_t body = out.find("\r\n\r\n") + 4;
    return out.substr(0, std::min(out.size(), body + 30000));
  });
  if (!server) return;
  const TemporaryFolder folder;
  int said = 0;
  FetchOptions options = quick(file);
  options.retries = 1;  // in a row; each attempt brings something
  options.say = [&](const std::string&) { ++said; };
  fetch(server->url("/file"), folder / "file", options);
  CHECK(content_of(folder / "file") == file);
  CHECK(said == 3);
  const auto requests = server->requests();
  REQUIRE(requests.size() == 4);
  CHECK(requests[0].header("Range").empty());
  CHECK(requests[1].header("Range") == "bytes=30000-");
  CHECK(requests[1].header("If-Range") == "\"v1\"");
  CHECK(requests[3].header("Range") == "bytes=90000-");
}

TEST_CASE("another process goes on, unless the file is another one") {
  const std::string file = some_bytes(50000), other(40000, 'x');
  std::atomic<bool> cut = true, changed = false;
  const auto server = start([&](const HttpRequest& r) {
    const std::string out = changed ? serve(r, other, "\"v2\"") : serve(r, file, "\"v1\"");
    return cut ? out.substr(0, out.find("\r\n\r\n") + 4 + 20000) : out;
  });
  if (!server) return;
  const TemporaryFolder folder;
  FetchOptions options = quick();
  options.retries = 0;
  const auto interrupt = [&](const std::string& path) {
    cut = true;
    CHECK_THROWS_WITH_AS(fetch(server->url("/file"), path, options),
                         doctest::Contains("20000 bytes are kept in"), Error);
    cut = false;
    CHECK_FALSE(exists(path));
    CHECK(fs::file_size(path + ".part") == 20000);
  };
  interrupt(folder / "a");
  fetch(server->url("/file"), folder / "a", options);
  CHECK(server->requests().back().header("Range") == "bytes=20000-");
  CHECK(content_of(folder / "a") == file);
  // Another version: the server sends it whole.
  interrupt(folder / "b");
  changed = true;
  fetch(server->url("/file"), folder / "b", options);
  CHECK(content_of(folder / "b") == other);
  changed = false;
  // Another address: what lies there is not asked about.
  interrupt(folder / "c");
  fetch(server->url("/elsewhere"), folder / "c", options);
  CHECK(server->requests().back().header("Range").empty());
  CHECK(content_of(folder / "c") == file);
}

TEST_CASE("servers without ranges, versions or lengths") {
  const std::string file = some_bytes(50000);
  std::atomic<int> calls = 0;
  const auto server = start([&](const HttpRequest& r) {
    if (r.path == "/unknown-length") return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + file;
    if (r.path == "/whole") return serve(r, file, "\"v\"");
    const std::string out = answer("200 OK", file);
    return calls++ == 0 ? out.substr(0, out.size() - 10000) : out;
  });
  if (!server) return;
  const TemporaryFolder folder;
  fetch(server->url("/no-ranges"), folder / "a", quick());  // begins again
  CHECK(content_of(folder / "a") == file);
  CHECK(calls == 2);
  int64_t total = 0;
  FetchOptions options = quick(file);
  options.progress = [&](int64_t, int64_t all) { total = all; };
  fetch(server->url("/unknown-length"), folder / "b", options);
  CHECK(content_of(folder / "b") == file);
  CHECK(total == -1);
  // All bytes had come, and only the rename was missing; or too many lie there.
  for (const std::string& rest : {std::string(), std::string("more")}) {
    folder.write("c.part", file + rest);
    folder.write("c.part.from", server->url("/whole") + "\n\"v\"\n");
    fetch(server->url("/whole"), folder / "c", quick(file));
    CHECK(content_of(folder / "c") == file);
  }
}

TEST_CASE("a part that is not the one asked for") {
  const auto server = start([](const HttpRequest& r) {
    return r.header("Range").empty()
               ? answer("200 OK", std::string(100, 'a'), "ETag: \"v\"\r\n").substr(0, 150)
               : answer("206 Partial Content", "b", "Content-Range: bytes 7-7/100\r\n");
  });
  if (!server) return;
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "a", quick()),
                       doctest::Contains("got one from 7"), Error);
}

TEST_CASE("wrong sums and sizes") {
  const std::string file = some_bytes(1000);
  const auto server = start([&](const HttpRequest& r) { return serve(r, file, "\"v\""); });
  if (!server) return;
  const TemporaryFolder folder;
  FetchOptions options = quick("something else");
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "a", options),
                       doctest::Contains(("expected SHA-256 " + options.sha256 + ", got " +
                                          sha256_hex(file) + ": the file is kept as")
                                             .c_str()),
                       Error);
  CHECK_FALSE(exists(folder / "a"));
  CHECK_FALSE(exists(folder / "a.part"));
  CHECK(content_of(folder / "a.bad") == file);
  options = quick();
  options.bytes = 1001;
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "b", options),
                       doctest::Contains("expected 1001 bytes"), Error);
  CHECK_FALSE(exists(folder / "b"));
  options.bytes = 999;
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "c", options),
                       doctest::Contains("at most 999 bytes, got 1000"), Error);
  options = quick();
  options.max_bytes = 500;
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "d", options),
                       doctest::Contains("at most 500 bytes"), Error);
  CHECK_FALSE(exists(folder / "d"));
}

TEST_CASE("a server that never ends is stopped at the limit") {
  const auto server = start([](const HttpRequest&) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(5000000, 'x');
  });
  if (!server) return;
  const TemporaryFolder folder;
  FetchOptions options = quick();
  options.max_bytes = 100000;
  CHECK_THROWS_WITH_AS(fetch(server->url("/"), folder / "a", options),
                       doctest::Contains("at most 100000 bytes, got more"), Error);
  CHECK(fs::file_size(folder / "a.part") <= 100000);
}

TEST_CASE("answers that are none") {
  std::atomic<int> busy = 0;
  const auto server = start([&](const HttpRequest& r) -> std::string {
    if (r.path == "/busy" && ++busy < 3) return answer("503 Busy", "later");
    if (r.path == "/down") return answer("500 Broken", "");
    if (r.path == "/gone") return answer("404 Not Found", "no such page");
    if (r.path == "/moved") return answer("302 Found", "elsewhere", "Location: /there\r\n");
    if (r.path == "/round") return answer("302 Found", "", "Location: /round\r\n");
    if (r.path == "/out") return answer("302 Found", "", "Location: file:///etc/passwd\r\n");
    if (r.path == "/none") return "";
    return answer("200 OK", "content");
  });
  if (!server) return;
  const TemporaryFolder folder;
  const auto get = [&](const char* path) {
    return fetch(server->url(path), folder / "file", quick());
  };
  CHECK(get("/busy").bytes == 7);  // at the third attempt
  CHECK(busy == 3);
  CHECK(get("/moved").bytes == 7);
  const size_t before = server->requests().size();
  CHECK_THROWS_WITH_AS(get("/gone"), doctest::Contains("404"), Error);
  CHECK(server->requests().size() == before + 1);  // asked once
  CHECK_THROWS_WITH_AS(get("/down"), doctest::Contains("(3 attempts)"), Error);
  CHECK_THROWS_AS(get("/none"), Error);
  CHECK_THROWS_AS(get("/round"), Error);
  CHECK_THROWS_AS(get("/out"), Error);
  CHECK(content_of(folder / "file") == "content");  // what was there before
}

TEST_CASE("fetches that cannot begin") {
  if (!can_fetch()) {
    CHECK_THROWS_WITH_AS(fetch("http://127.0.0.1/", "file"), doctest::Contains("libcurl"), Error);
    return;
  }
  const TemporaryFolder folder;
  for (const char* url : {"", "file:///etc/passwd", "ftp://x/y", "/local", "httpx://x"})
    CHECK_THROWS_WITH_AS(fetch(url, folder / "a"), doctest::Contains("http:// or https://"), Error);
  CHECK_FALSE(exists(folder / "a.part"));
  folder.write("plain", "");
  CHECK_THROWS_WITH_AS(fetch("http://127.0.0.1:1/", folder / "plain/a"),
                       doctest::Contains("cannot make the folder"), Error);
  CHECK_THROWS_WITH_AS(fetch("http://127.0.0.1:1/", folder / "a", quick()),
                       doctest::Contains("3 attempts"), Error);  // nobody listens
  CHECK_THROWS_AS(fetch("http://", folder / "a", quick()), Error);
  const int held = open((folder / "b.part").c_str(), O_RDWR | O_CREAT, 0644);
  REQUIRE(flock(held, LOCK_EX) == 0);
  CHECK_THROWS_WITH_AS(fetch("http://127.0.0.1:1/", folder / "b", quick()),
                       doctest::Contains("got one at work"), Error);
  close(held);
}

}  // namespace
}  // namespace frugal::data
