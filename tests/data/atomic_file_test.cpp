#include "data/atomic_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace fs = std::filesystem;

TEST_CASE("a file appears at commit and not before") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(content_of(path) == "old");
    CHECK(fs::exists(path + ".tmp"));
  }
  CHECK(content_of(path) == "old");
  CHECK(!fs::exists(path + ".tmp"));
  atomic_write(path, "new");
  CHECK(content_of(path) == "new");
  CHECK(!fs::exists(path + ".tmp"));
  atomic_write(folder / "b", "");
  CHECK(fs::file_size(folder / "b") == 0);
}

TEST_CASE("what a killed writer left is overwritten") {
  const TemporaryFolder folder;
  folder.write("a.tmp", "half of something longer");
  atomic_write(folder / "a", "whole");
  CHECK(content_of(folder / "a") == "whole");
  CHECK(!fs::exists(folder / "a.tmp"));
}

TEST_CASE("a full disk is an error that leaves the old file and nothing else") {
  if (access("/dev/full", W_OK) != 0) {
    MESSAGE("skipped: no /dev/full");
    return;
  }
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  fs::create_symlink("/dev/full", path + ".tmp");
  CHECK_THROWS_WITH_AS(atomic_write(path, "new"), doctest::Contains("No space left on device"),
                       Error);
  CHECK(content_of(path) == "old");
  CHECK(!fs::is_symlink(path + ".tmp"));
  CHECK(fs::exists("/dev/full"));
}

TEST_CASE("places that cannot be written are named") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(atomic_write(folder / "none/a", "x"),
                       doctest::Contains("No such file or directory"), Error);
  CHECK_THROWS_WITH_AS(atomic_write(folder / "none/a", "x"), doctest::Contains("none/a"), Error);
  CHECK_THROWS_WITH_AS(atomic_write(folder.path(), "x"), doctest::Contains("regular file"), Error);
  CHECK_THROWS_WITH_AS(atomic_write("/dev/null", "x"), doctest::Contains("device"), Error);
  CHECK_THROWS_WITH_AS(atomic_write("", "x"), doctest::Contains("empty"), Error);
  folder.write("file", "x");
  CHECK_THROWS_WITH_AS(atomic_write(folder / "file/a", "x"), doctest::Contains("Not a directory"),
                       Error);
  if (geteuid() == 0) return;  // root may write anywhere
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THROWS_WITH_AS(atomic_write(folder / "closed/a", "x"),
                       doctest::Contains("Permission denied"), Error);
}

TEST_CASE("two writers of one file do not mix") {
  const TemporaryFolder folder;
  AtomicFile one(folder / "a");
  one.write("one", 3);
  CHECK_THROWS_WITH_AS(AtomicFile(folder / "a"), doctest::Contains("another process"), Error);
  one.commit();
  CHECK(content_of(folder / "a") == "one");
  AtomicFile two(folder / "a");
  two.write("two", 3);
  two.commit();
  CHECK(content_of(folder / "a") == "two");
}
