#include "data/formats/atomic_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "core/error.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace fs = std::filesystem;

namespace {

// How many files a folder has.
int files_in(const TemporaryFolder& folder) {
  const auto all = fs::directory_iterator(folder.path());
  return static_cast<int>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("a file appears at commit and not before") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  for (const bool unnamed : {true, false}) {
    CAPTURE(unnamed);
    {
      AtomicFile file(path, unnamed);
      file.write("new", 3);
      CHECK(content_of(path) == "old");
      CHECK(files_in(folder) == (unnamed ? 1 : 2));
    }
    CHECK(content_of(path) == "old");
    CHECK(files_in(folder) == 1);
    AtomicFile file(path, unnamed);
    file.write("new", 3);
    file.commit();
    CHECK(content_of(path) == "new");
    CHECK(files_in(folder) == 1);
    atomic_write(path, "old");
  }
  atomic_write(folder / "b", "");
  CHECK(fs::file_size(folder / "b") == 0);
}

TEST_CASE("what lies where a temporary file could be is neither followed nor changed") {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", "mine");
  fs::create_symlink(secret, folder / "a.tmp");
  folder.write("b.tmp", "mine, too");
  for (const bool unnamed : {true, false})
    for (const char* name : {"a", "b"}) {
      AtomicFile file(folder / name, unnamed);
      file.write("whole", 5);
      file.commit();
      CHECK(content_of(folder / name) == "whole");
    }
  CHECK(content_of(secret) == "mine");
  CHECK(fs::is_symlink(folder / "a.tmp"));
  CHECK(content_of(folder / "b.tmp") == "mine, too");
}

TEST_CASE("a link in the place of the file is replaced, not followed") {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", "mine");
  fs::create_symlink(secret, folder / "a");
  atomic_write(folder / "a", "whole");
  CHECK(content_of(secret) == "mine");
  CHECK(!fs::is_symlink(folder / "a"));
  CHECK(content_of(folder / "a") == "whole");
}

TEST_CASE("temporary names are new at each time and are known again") {
  const TemporaryFolder folder;
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const AtomicFile file(folder / "a", false);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename();
      names.insert(name);
      CHECK(is_temporary_of(name, "a"));
      CHECK(!is_temporary_of(name, "ab"));
    }
  }
  CHECK(names.size() == 3);
  CHECK(!is_temporary_of("a.tmp", "a"));
  CHECK(!is_temporary_of("a.0123456789abcdeg.tmp", "a"));
  CHECK(is_temporary_of("a.0123456789abcdef.tmp", "a"));
}

TEST_CASE("a full disk is an error that leaves the old file and nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const bool unnamed : {true, false}) {
    AtomicFile file(path, unnamed);
    struct rlimit small = before;
    small.rlim_cur = 2;
    setrlimit(RLIMIT_FSIZE, &small);
    std::string said;
    try {
      file.write("new", 3);
    } catch (const Error& e) {
      said = e.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(said ==
          fmt::format("[write] cannot write a temporary file for {}: File too large", path));
  }
  std::signal(SIGXFSZ, handler);
  CHECK(content_of(path) == "old");
  CHECK(files_in(folder) == 1);
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
  AtomicFile one(folder / "a"), two(folder / "a", false);
  one.write("one", 3);
  two.write("two", 3);
  two.commit();
  CHECK(content_of(folder / "a") == "two");
  one.commit();
  CHECK(content_of(folder / "a") == "one");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("a folder that is not there cannot be synced, and the message names it") {
  const TemporaryFolder folder;
  sync_path(folder.path());
  CHECK_THROWS_WITH_AS(sync_path(folder / "none"), doctest::Contains("/none: No such file"), Error);
}
