#include "data/fetch/sources.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "data/fetch/fetch.h"
#include "data/fetch/sha256.h"
#include "data/formats/archive.h"
#include "data/formats/file_bytes.h"
#include "tests/data/fetch/http_server.h"
#include "tests/data/files.h"
#include "tests/data/formats/archive_bytes.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using frugal_test::answer;
using frugal_test::content_of;
using frugal_test::HttpRequest;
using frugal_test::HttpServer;
using frugal_test::TemporaryFolder;

TEST_CASE("the table is sound") {
  std::set<std::string> names, paths;
  for (const Source& source : sources()) {
    CAPTURE(source.name);
    CHECK(names.insert(source.name).second);
    CHECK_FALSE(source.what.empty());
    CHECK_FALSE(source.files.empty());
    CHECK_FALSE(source.results().empty());
    CHECK((!source.is_archive() || (source.files.size() == 1 && !source.top.empty())));
    for (const SourceFile& file : source.files) {
      CHECK_FALSE(file.urls.empty());
      for (const std::string& url : file.urls)
        CHECK((url.starts_with("https://") || !file.sha256.empty()));  // unsafe without a sum
      CHECK((file.urls.size() < 2 || !file.sha256.empty()));           // copies may differ
    }
    for (const auto* files : {&source.files, &source.contents})
      for (const SourceFile& file : *files) {
        CHECK(paths.insert(file.path).second);
        CHECK((file.sha256.empty() ||
               (file.sha256.size() == 64 &&
                file.sha256.find_first_not_of("0123456789abcdef") == std::string::npos)));
        CHECK(file.bytes != 0);
      }
    for (const SourceFile& file : source.contents)
      CHECK(file.path.starts_with(source.folder + "/"));
  }
  for (const char* name : {"fashion_mnist", "mnist", "cifar10", "cifar100", "cora", "citeseer",
                           "pubmed", "ogbn_arxiv", "flickr", "reddit", "yelp", "amazon", "sst2",
                           "cola", "mrpc", "rte", "qnli", "mnli", "tiny_shakespeare"})
    CHECK(find_source(name).name == name);
  for (const auto& [other, name] : {std::pair{"fashion-mnist", "fashion_mnist"},
                                    {"CIFAR-10", "cifar10"},
                                    {"SST-2", "sst2"},
                                    {"tiny-shakespeare", "tiny_shakespeare"}})
    CHECK(find_source(other).name == name);
  CHECK_THROWS_WITH_AS(find_source("imagenet"), doctest::Contains("one of fashion_mnist, mnist"),
                       Error);
}

std::vector<FileState> states(const Source& source, const std::string& folder) {
  std::vector<FileState> out;
  for (const FileCheck& check : check_source(source, folder)) out.push_back(check.state);
  return out;
}

TEST_CASE("what a folder has") {
  const TemporaryFolder folder;
  Source source{"set", "a set"};
  source.files = {{"a", {}, 5, sha256_hex("alpha")}, {"b", {}, 4}, {"c", {}, -1, sha256_hex("c")}};
  CHECK(states(source, folder.path()) == std::vector<FileState>(3, FileState::missing));
  folder.write("a", "alpha");
  folder.write("b", "beta");
  folder.write("c", "d");
  CHECK(states(source, folder.path()) ==
        std::vector<FileState>{FileState::good, FileState::unchecked, FileState::different});
  CHECK(check_source(source, folder.path())[2].detail ==
        "expected SHA-256 " + sha256_hex("c") + ", got " + sha256_hex("d"));
  folder.write("b", "be");
  CHECK(check_source(source, folder.path())[1].detail == "expected 4 bytes, got 2");
}

struct Fixture {
  Fixture() {
    if (!can_fetch()) {
      MESSAGE("skipped: built without libcurl");
      return;
    }
    try {
      server = std::make_unique<HttpServer>([this](const HttpRequest& request) {
        const auto at = pages.find(request.path);
        return at == pages.end() ? answer("404 Not Found", "") : answer("200 OK", at->second);
      });
    } catch (const std::exception& e) {
      MESSAGE("skipped: ", e.what());
    }
    options.delay_ms = 1;
    options.retries = 0;
    options.say = [this](const std::string& text) { said += text + "\n"; };
  }
  void get(const Source& source) {
    said.clear();
    fetch_source(source, folder.path(), options);
  }
  bool exists(const std::string& name) const { return fs::exists(folder / name); }

  TemporaryFolder folder;
  std::map<std::string, std::string> pages;
  FetchSourceOptions options;
  std::string said;
  std::unique_ptr<HttpServer> server;
};

TEST_CASE_FIXTURE(Fixture, "files: what lacks is fetched, from the first address that has it") {
  if (!server) return;
  pages = {{"/a", "alpha"}, {"/mirror/b", "beta"}, {"/other/a", "other"}, {"/other/b", "beta"}};
  Source source{"set", "a set"};
  source.files = {{"sub/a", {server->url("/a")}, -1},
                  {"sub/b", {server->url("/b"), server->url("/mirror/b")}, 4, sha256_hex("beta")}};
  get(source);
  CHECK(content_of(folder / "sub/a") == "alpha");
  CHECK(content_of(folder / "sub/b") == "beta");
  CHECK(said.find("no checksum known: computed SHA-256 " + sha256_hex("alpha") + ", keep it") !=
        std::string::npos);
  CHECK(said.find("404") != std::string::npos);  // told, and then the mirror
  CHECK(said.find(sha256_hex("beta")) == std::string::npos);
  const size_t asked = server->requests().size();
  get(source);
  CHECK(said == "set is there\n");
  fs::remove(folder / "sub/a");
  options.url = server->url("/other/");
  get(source);
  CHECK(content_of(folder / "sub/a") == "other");
  CHECK(server->requests().size() == asked + 1);
  // A file that is another one stays as it is.
  folder.write("sub/b", "BETA");
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("move it away first"), Error);
  CHECK(content_of(folder / "sub/b") == "BETA");
  options.url = server->url("/other/b");
  fs::remove_all(folder / "sub");
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("ends in / for the 2 files"), Error);
  options = {};
  options.sha256 = std::string(64, '0');
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("a source of one file"), Error);
  // A page in place of a file, and the file.
  pages["/array"] = "<html>try later</html>";
  source = {"arrays", "of no known sums"};
  source.files = {{"sub/feats.npy", {server->url("/array")}}};
  options = {};
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("that begins with \"\\x93NUMPY\""), Error);
  CHECK_FALSE(fs::exists(folder / "sub/feats.npy"));
  pages["/array"] = "\x93NUMPY and so on";
  get(source);
  CHECK(content_of(folder / "sub/feats.npy") == "\x93NUMPY and so on");
}

TEST_CASE_FIXTURE(Fixture, "an archive becomes a folder, or nothing") {
  if (!server) return;
  const std::string good = frugal_test::stored_zip({{"top/a.txt", "alpha"}, {"top/b.txt", "beta"}});
  pages["/set.zip"] = good;
  Source source{"set", "a set"};
  source.files = {{"downloads/set.zip", {server->url("/set.zip")}, -1, sha256_hex(good)}};
  source.folder = "place/set";
  source.top = "top";
  source.contents = {{"place/set/a.txt", {}, 5, sha256_hex("alpha")}, {"place/set/b.txt", {}, -1}};
  get(source);
  CHECK(states(source, folder.path()) ==
        std::vector<FileState>{FileState::good, FileState::unchecked});
  CHECK_FALSE(exists("downloads/set.zip"));
  get(source);
  CHECK(said == "set is there\n");
  fs::remove(folder / "place/set/a.txt");
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("got some; move it away"), Error);
  fs::remove_all(folder / "place");
  // The wrong bytes: nothing is unpacked.
  pages["/set.zip"] = good + "x";
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("wrong checksum"), Error);
  CHECK(exists("downloads/set.zip.bad"));
  CHECK_FALSE(exists("place"));
  // Another sum, and so a hostile archive: refused, and nothing of it stays.
  const std::string evil = frugal_test::stored_zip({{"top/a.txt", "alpha"}, {"../../evil", "x"}});
  pages["/evil.zip"] = evil;
  options.url = server->url("/evil.zip");
  options.sha256 = sha256_hex(evil);
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("names below"), Error);
  CHECK_FALSE(exists("place/set"));
  CHECK_FALSE(exists("evil"));
  // Its bytes still lie in downloads, and are no longer believed.
  options = {};
  pages["/set.zip"] = good;
  get(source);
  CHECK(content_of(folder / "place/set/b.txt") == "beta");
  fs::remove_all(folder / "place");
  const std::string lacking = frugal_test::stored_zip({{"top/a.txt", "alpha"}});
  pages["/set.zip"] = lacking;
  options.sha256 = "none";
  CHECK_THROWS_WITH_AS(get(source), doctest::Contains("expected place/set/b.txt in the archive"),
                       Error);
  CHECK_FALSE(exists("place/set"));  // nothing of it stays but the archive, under another name
  CHECK(fs::is_empty(folder / "place"));
  CHECK_FALSE(exists("downloads/set.zip"));
  CHECK(content_of(folder / "downloads/set.zip.bad") == lacking);
  pages["/set.zip"] = good;
  get(source);
  CHECK(content_of(folder / "place/set/b.txt") == "beta");
}

TEST_CASE("files of FRUGAL_DATA are the table's") {
  const char* root = std::getenv("FRUGAL_DATA");
  if (root == nullptr || !is_file(std::string(root) + "/planetoid/ind.cora.x")) {
    MESSAGE("skipped: no planetoid in $FRUGAL_DATA");
    return;
  }
  for (const char* name :
       {"cora", "citeseer", "mrpc", "tiny_shakespeare", "bert_vocab", "facebook"})
    for (const FileCheck& check : check_source(find_source(name), root)) {
      CAPTURE(check.path);
      CHECK(check.state == FileState::good);
    }
}

}  // namespace
}  // namespace frugal::data
