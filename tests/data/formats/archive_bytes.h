// Archives as anybody may write them, well or badly.
#pragma once
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/data/formats/bytes.h"

namespace frugal_test {

struct ArchiveEntry {
  std::string name, content;
  char type = '0';  // tar: '0' file, '1' hard link, '2' link, '3' device, '5' folder, '6' pipe
  std::string link = {};
};

inline std::string octal(uint64_t value, size_t width) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*llo", static_cast<int>(width - 1),
                static_cast<unsigned long long>(value));
  return std::string(text) + '\0';
}

// POSIX's interchange format.
inline std::string tar(const std::vector<ArchiveEntry>& entries) {
  std::string out;
  for (const ArchiveEntry& entry : entries) {
    std::string head(512, '\0');
    const auto put = [&](size_t at, const std::string& text) {
      head.replace(at, text.size(), text);
    };
    put(0, entry.name);
    put(100, octal(0777, 8));
    put(108, octal(0, 8));
    put(116, octal(0, 8));
    put(124, octal(entry.content.size(), 12));
    put(136, octal(0, 12));
    put(148, "        ");
    head[156] = entry.type;
    put(157, entry.link);
    put(257, std::string("ustar") + '\0' + "00");
    uint64_t sum = 0;
    for (char c : head) sum += static_cast<uint8_t>(c);
    put(148, octal(sum, 7));
    out += head + entry.content;
    out.resize((out.size() + 511) / 512 * 512);
  }
  return out + std::string(1024, '\0');
}

// Entries without compression; `crc_change` spoils their checksums.
inline std::string stored_zip(const std::vector<ArchiveEntry>& entries, uint32_t crc_change = 0) {
  std::string out, directory;
  for (const ArchiveEntry& entry : entries) {
    const auto crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()),
                                    static_cast<uInt>(entry.content.size())) ^
                              crc_change);
    const bool ascii =
        std::all_of(entry.name.begin(), entry.name.end(), [](char c) { return c >= 0; });
    const uint64_t flags = ascii ? 0 : 1 << 11;  // the name is UTF-8
    const std::string common = little(flags, 2) + little(0, 2) + little(0, 4) + little(crc, 4) +
                               little(entry.content.size(), 4) + little(entry.content.size(), 4) +
                               little(entry.name.size(), 2) + little(0, 2);
    // Made on Unix, with its mode: files, or links.
    const uint64_t mode = entry.type == '2' ? 0120777 : entry.type == '5' ? 040755 : 0100644;
    directory += "PK\1\2" + little(20 | 3 << 8, 2) + little(20, 2) + common + little(0, 2) +
                 little(0, 2) + little(0, 2) + little(mode << 16, 4) + little(out.size(), 4) +
                 entry.name;
    out += "PK\3\4" + little(20, 2) + common + entry.name + entry.content;
  }
  const size_t at = out.size();
  return out + directory + "PK\5\6" + little(0, 4) + little(entries.size(), 2) +
         little(entries.size(), 2) + little(directory.size(), 4) + little(at, 4) + little(0, 2);
}

}  // namespace frugal_test
