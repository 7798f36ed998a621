// `frugal data` as a person uses it, against a server in this process.
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>

#include "apps/json.h"
#include "data/fetch/fetch.h"
#include "data/fetch/sha256.h"
#include "tests/apps/run.h"
#include "tests/data/fetch/http_server.h"

namespace frugal::apps {
namespace {

using frugal_test::answer;
using frugal_test::HttpRequest;
using frugal_test::HttpServer;

TEST_CASE("data list tells what there is and what is there") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "text");
  write_file(folder / "text/tinyshakespeare.txt", "To be");
  const Ran text = frugal("data list --dir " + (folder / ""));
  CHECK(text.status == 0);
  CHECK(has(text.out, "fashion_mnist"));
  CHECK(has(text.out, "no checksums"));  // flickr
  const Ran ran = frugal("data list --json --dir " + (folder / ""));
  CHECK(ran.status == 0);
  const Json json = Json::parse(ran.out);
  for (const Json& entry : json) {
    if (entry["name"] == "tiny_shakespeare") {
      CHECK(entry["state"] == "there");
      CHECK(entry["files"][0]["bytes"] == 1115394);
    }
    if (entry["name"] == "flickr") CHECK(entry["files"][0]["sha256"].is_null());
    if (entry["name"] == "cora") CHECK(entry["state"] == "missing");
  }
}

TEST_CASE("data check compares with the table") {
  const TempFolder folder;
  const std::string dir = " --dir " + (folder / "");
  const Ran none = frugal("data check" + dir);
  CHECK(none.status == 1);
  CHECK(has(none.err, "got none of those that are known"));
  std::filesystem::create_directory(folder / "text");
  write_file(folder / "text/tinyshakespeare.txt", "To be");
  const Ran all = frugal("data check" + dir);
  CHECK(all.status == 1);
  CHECK(has(all.out, "tinyshakespeare.txt: different: expected 1115394 bytes, got 5"));
  CHECK(lacks(all.out, "cora"));
  const Ran cora = frugal("data check Cora" + dir);
  CHECK(cora.status == 1);
  CHECK(has(cora.out, "cora: planetoid/ind.cora.x: missing"));
  CHECK(has(cora.err, ": 8 files"));
  const Ran wrong = frugal("data check nothing" + dir);
  CHECK(wrong.status == 2);
  CHECK(has(wrong.err, "expected one of fashion_mnist"));
}

TEST_CASE("data fetch: mistakes of the command line") {
  const TempFolder folder;
  const std::string dir = " --dir " + (folder / "");
  const auto fails = [&](const std::string& arguments, int status, const std::string& why) {
    const Ran ran = frugal("data " + arguments + dir);
    CAPTURE(ran.err);
    CHECK(ran.status == status);
    CHECK(has(ran.err, why));
  };
  fails("fetch", 2, "NAME");
  fails("fetch nothing", 2, "expected one of");
  fails("fetch cora citeseer --url http://127.0.0.1:1/", 2, "expected one NAME");
  fails("fetch cora --sha256 " + std::string(64, '0'), 2, "a dataset of one file");
  fails("fetch tiny_shakespeare --sha256 xyz", 2, "expected 64 digits");
  fails("fetch cora --url http://127.0.0.1:1/file", 2, "ends in / for the 8 files");
  CHECK(frugal("data" + dir).status == 2);
  if (data::can_fetch())
    fails("fetch tiny_shakespeare --url ftp://127.0.0.1/file", 1, "http:// or https://");
}

TEST_CASE("data fetch brings files, or says why not") {
  if (!data::can_fetch()) {
    MESSAGE("skipped: built without libcurl");
    return;
  }
  const std::string play = "To be, or not to be";
  std::unique_ptr<HttpServer> server;
  try {
    server = std::make_unique<HttpServer>([&](const HttpRequest& request) {
      return request.path == "/play" ? answer("200 OK", play) : answer("404 Not Found", "");
    });
  } catch (const std::exception& e) {
    MESSAGE("skipped: ", e.what());
    return;
  }
  const TempFolder folder;
  const std::string fetch = "data fetch tiny_shakespeare --dir " + (folder / "new") + " --url ";
  const std::string file = folder / "new/text/tinyshakespeare.txt";
  const Ran wrong = frugal(fetch + server->url("/play") + " --sha256 " + std::string(64, 'a'));
  CHECK(wrong.status == 1);
  CHECK(has(wrong.err,
            "expected SHA-256 " + std::string(64, 'a') + ", got " + data::sha256_hex(play)));
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(read_file(file + ".bad") == play);
  const Ran gone = frugal(fetch + server->url("/gone"));
  CHECK(gone.status == 1);
  CHECK(has(gone.err, "404"));
  const Ran none = frugal(fetch + server->url("/play") + " --sha256 none");
  CHECK(none.status == 0);
  CHECK(has(none.err, "computed SHA-256 " + data::sha256_hex(play)));
  CHECK(read_file(file) == play);
  std::filesystem::remove(file);
  const Ran good = frugal(fetch + server->url("/play") + " --sha256 " + data::sha256_hex(play));
  CHECK(good.status == 0);
  CHECK(read_file(file) == play);
  CHECK(lacks(good.err, "computed"));
  const Ran again = frugal(fetch + server->url("/play"));
  CHECK(again.status == 1);  // the table knows another file
  CHECK(has(again.err, "move it away first"));
}

}  // namespace
}  // namespace frugal::apps
