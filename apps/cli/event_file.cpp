#include "apps/cli/event_file.h"

#include "core/error.h"

#ifdef FRUGAL_EVENTS
#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/words/quoted.h"
#include "data/formats/atomic_file.h"
#endif

namespace frugal::apps {

#ifndef FRUGAL_EVENTS

bool can_write_events() { return false; }

EventFile::EventFile(const std::string& folder, int64_t) {
  throw Error(fmt::format(
      "[events] expected a build with protobuf and ISA-L to write event files to {}; install "
      "libprotobuf-dev and libisal-dev and build again",
      folder));
}
EventFile::~EventFile() = default;
void EventFile::add(int64_t, const Scalars&) {}
void EventFile::append(const std::string&) {}

#else

namespace {

namespace fs = std::filesystem;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// Numbers of the fields of TensorFlow's messages (event.proto, summary.proto).
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2;
}
namespace session_log {
constexpr int kStatus = 1, kStart = 1;
}

constexpr const char* kPrefix = "events.out.tfevents.";

template <class F>
std::string message(F&& write) {
  std::string bytes;
  StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  write(out);
  out.Trim();
  return bytes;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Ref: TensorFlow's core/lib/hash/crc32c.h. Checksums are masked, because a checksum of data that
// hold checksums is a weak one.
uint32_t masked_crc(const std::string& bytes) {
  std::string copy = bytes;  // the library reads it and takes no pointer to const
  const uint32_t crc = ~crc32_iscsi(reinterpret_cast<unsigned char*>(copy.data()),
                                    static_cast<int>(copy.size()), 0xffffffffU);
  return std::rotr(crc, 15) + 0xa282ead8U;
}

std::string little_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

// The seconds in a file's name, or 0. TensorBoard reads files in the order of their names.
int64_t seconds_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  int64_t seconds = 0;
  for (size_t i = std::strlen(kPrefix); i < name.size() && name[i] >= '0' && name[i] <= '9'; ++i)
    seconds = std::min(seconds * 10 + (name[i] - '0'), int64_t{1} << 40);
  return seconds;
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "host";
  std::string text = name;
  std::erase_if(text, [](char c) { return c == '/' || static_cast<unsigned char>(c) <= ' '; });
  return text;
}

[[noreturn]] void fail(const char* doing, const std::string& path) {
  throw Error(
      fmt::format("[events] cannot {} {}: {}", doing, in_quotes(path), std::strerror(errno)));
}

}  // namespace

bool can_write_events() { return true; }

EventFile::EventFile(const std::string& folder, int64_t step) {
  auto seconds = static_cast<int64_t>(seconds_now());
  bool first = true;
  data::refuse_links_in_run(folder + "/events");
  try {
    fs::create_directories(folder);
    for (const auto& entry : fs::directory_iterator(folder)) {
      const int64_t older = seconds_of(entry.path().filename().string());
      first = first && older == 0;
      seconds = std::max(seconds, older + 1);
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("[events] cannot use {}: {}", in_quotes(folder), e.code().message()));
  }
  path_ = fmt::format("{}/{}{:010}.{}.{}.v2", folder, kPrefix, seconds, host_name(), getpid());
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail("make", path_);
  data::sync_path(folder);
  append(message([](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(event::kWallTime, seconds_now(), &out);
    WireFormatLite::WriteString(event::kFileVersion, "brain.Event:2", &out);
  }));
  if (first) return;
  const std::string start = message([](CodedOutputStream& out) {
    WireFormatLite::WriteEnum(session_log::kStatus, session_log::kStart, &out);
  });
  append(message([&](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(event::kWallTime, seconds_now(), &out);
    WireFormatLite::WriteInt64(event::kStep, step + 1, &out);
    WireFormatLite::WriteBytes(event::kSessionLog, start, &out);
  }));
}

EventFile::~EventFile() {
  if (file_ >= 0) close(file_);
}

void EventFile::add(int64_t step, const Scalars& scalars) {
  const std::string values = message([&](CodedOutputStream& out) {
    for (const auto& [name, number] : scalars)
      WireFormatLite::WriteBytes(
          summary::kValue, message([&name = name, &number = number](CodedOutputStream& of) {
            WireFormatLite::WriteString(value::kTag, name, &of);
            WireFormatLite::WriteFloat(value::kSimpleValue, static_cast<float>(number), &of);
          }),
          &out);
  });
  append(message([&](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(event::kWallTime, seconds_now(), &out);
    WireFormatLite::WriteInt64(event::kStep, step, &out);
    WireFormatLite::WriteBytes(event::kSummary, values, &out);
  }));
}

// A record: the length, its checksum, the data, their checksum.
void EventFile::append(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  const std::string record =
      length + little_endian(masked_crc(length), 4) + event + little_endian(masked_crc(event), 4);
  for (size_t done = 0; done < record.size();) {
    const ssize_t wrote = ::write(file_, record.data() + done, record.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write", path_);
    done += static_cast<size_t>(wrote);
  }
}

#endif

}  // namespace frugal::apps
