#include "data/formats/archive.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "tests/data/files.h"
#include "tests/data/formats/archive_bytes.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;
using frugal_test::content_of;
using frugal_test::gzip;
using frugal_test::stored_zip;
using frugal_test::tar;
using frugal_test::TemporaryFolder;
using Entry = frugal_test::ArchiveEntry;

std::vector<std::string> listing(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    out.push_back(fs::relative(entry.path(), folder).string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST_CASE("archives of each kind") {
  const std::vector<Entry> entries{
      {"set/", "", '5'}, {"set/a.txt", "alpha"}, {"./set/sub/b", std::string(3000, 'b')}};
  const std::string plain = tar(entries), packed = gzip(plain), zipped = stored_zip(entries);
  for (const std::string& bytes : {plain, packed, zipped}) {
    const TemporaryFolder folder;
    const std::string archive = folder.write("archive", bytes);
    unpack(archive, folder / "deep/all");
    CHECK(listing(folder / "deep") == std::vector<std::string>{"all", "all/set", "all/set/a.txt",
                                                               "all/set/sub", "all/set/sub/b"});
    unpack(archive, folder / "data", "set");
    CHECK(listing(folder / "data") == std::vector<std::string>{"a.txt", "sub", "sub/b"});
    CHECK(content_of(folder / "data/a.txt") == "alpha");
    CHECK(content_of(folder / "data/sub/b") == std::string(3000, 'b'));
    CHECK((fs::status(folder / "data/a.txt").permissions() & fs::perms::owner_exec) ==
          fs::perms::none);
    CHECK((fs::status(folder / "data").permissions() & fs::perms::others_exec) != fs::perms::none);
    CHECK_THROWS_WITH_AS(unpack(archive, folder / "data", "set"),
                         doctest::Contains("got one that holds something"), Error);
    CHECK_THROWS_WITH_AS(unpack(archive, folder / "x", "other"),
                         doctest::Contains("expected all of"), Error);
    fs::create_directory(folder / "empty");
    unpack(archive, folder / "empty/", "set");
    CHECK(exists(fs::path(folder / "empty/a.txt")));
    for (const std::string& name : listing(folder.path()))
      CHECK(name.find(".unpack-") == std::string::npos);
  }
}

TEST_CASE("names beyond ASCII, in the locale that a program has at its start") {
  const std::vector<Entry> entries{{"größe/länge.txt", "alpha"}, {"größe/π.txt", "beta"}};
  for (const std::string& bytes : {tar(entries), stored_zip(entries)}) {
    const TemporaryFolder folder;
    unpack(folder.write("archive", bytes), folder / "all");
    CHECK(listing(folder / "all") ==
          std::vector<std::string>{"größe", "größe/länge.txt", "größe/π.txt"});
    CHECK(content_of(folder / "all/größe/π.txt") == "beta");
  }
}

TEST_CASE("hostile archives leave nothing") {
  const auto refuses = [](const std::string& bytes, const char* why,
                          const UnpackLimits& limits = {}) {
    CAPTURE(why);
    const TemporaryFolder folder;
    fs::create_directory(folder / "in");
    const std::string archive = folder.write("archive", bytes);
    CHECK_THROWS_WITH_AS(unpack(archive, folder / "in/out", "", limits), doctest::Contains(why),
                         Error);
    CHECK(listing(folder.path()) == std::vector<std::string>{"archive", "in"});
  };
  const char* names = "names below the archive's folder";
  for (const char* name :
       {"../evil", "a/../../evil", "..", "/etc/evil", "a\\..\\evil", "a\nb", "a/.."}) {
    refuses(tar({{"ok", "x"}, {name, "x"}}), names);
    refuses(stored_zip({{"ok", "x"}, {name, "x"}}), names);
  }
  refuses(tar({{"ok", "x"}, {"link", "", '2', "/etc"}}), "the link \"link\"");
  refuses(tar({{"ok", "x"}, {"link", "", '2', "ok"}, {"link/a", "x"}}), "the link");
  refuses(tar({{"ok", "x"}, {"hard", "", '1', "ok"}}), "the link \"hard\"");
  refuses(stored_zip({{"ok", "x"}, {"link", "/etc/passwd", '2'}}), "the link");
  refuses(tar({{"device", "", '3'}}), "the device or pipe");
  refuses(tar({{"pipe", "", '6'}}), "the device or pipe");
  refuses(tar({{"a", "x"}, {"a", "y"}}), "came before");
  refuses(tar({{"a", "x"}, {"a/b", "y"}}), "cannot make the folder");
  refuses(tar({{"a/b", "x"}, {"a", "y"}}), "cannot write \"a\"");
  refuses(tar({{"a", "x"}, {"b", "x"}, {"c", "x"}}), "at most 2 entries", {.entries = 2});
  refuses(tar({{"a", std::string(600, 'x')}, {"b", std::string(600, 'x')}}), "at most 1000 bytes",
          {.bytes = 1000});
  // Zeros of 24 MiB in 24 KiB.
  refuses(gzip(tar({{"a", std::string(24 << 20, '\0')}})), "bytes from", {.ratio = 10});
  refuses("", "");
  refuses("no archive at all, but some text", "");
  refuses(tar({}), "expected files in");
  refuses(tar({{"a", "", '5'}}), "expected files in");
  // Cut or changed.
  const std::string good = tar({{"a", std::string(100000, 'a')}}), packed = gzip(good);
  refuses(good.substr(0, 50000), "cannot read");
  refuses(packed.substr(0, packed.size() / 2), "cannot read");
  refuses(stored_zip({{"a", "content"}}, 1), "cannot read");
  std::string head = good;
  head[0] = 'b';  // against the header's sum
  refuses(head, "");
  CHECK_THROWS_AS(unpack("/no/such/archive", "/no/such/folder"), Error);
}

}  // namespace
}  // namespace frugal::data
