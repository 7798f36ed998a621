// Reads TensorBoard's event files strictly: every checksum, every field.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frugal::apps {

// CRC-32C, bit by bit: the polynomial 0x1EDC6F41, reflected.
inline uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
  }
  return ~crc;
}

inline uint64_t number_at(std::string_view bytes, size_t at, size_t count) {
  if (bytes.size() < at + count) throw std::runtime_error("a record is cut");
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i)
    number |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return number;
}

// The records of a TFRecord file. Throws at a wrong checksum and at a cut record.
inline std::vector<std::string> records_of(std::string_view file) {
  const auto check = [](std::string_view bytes, uint64_t masked) {
    const uint32_t crc = crc32c(bytes);
    if ((std::rotr(crc, 15) + 0xa282ead8U) != masked) throw std::runtime_error("a wrong checksum");
  };
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const uint64_t length = number_at(file, at, 8);
    check(file.substr(at, 8), number_at(file, at + 8, 4));
    const uint64_t crc = number_at(file, at + 12 + length, 4);
    check(file.substr(at + 12, length), crc);
    records.emplace_back(file.substr(at + 12, length));
    at += 16 + length;
  }
  return records;
}

struct WireField {
  int number = 0, type = 0;
  uint64_t value = 0;  // value of a number
  std::string bytes;   // bytes of a text or message
};

inline std::vector<WireField> fields_of(std::string_view message) {
  std::vector<WireField> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = number_at(message, at++, 1);
      number |= (byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
    throw std::runtime_error("a number without end");
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    WireField field;
    field.number = static_cast<int>(key >> 3), field.type = static_cast<int>(key & 7);
    if (field.type == 0) {
      field.value = varint();
    } else if (field.type == 1 || field.type == 5) {
      const size_t size = field.type == 1 ? 8 : 4;
      field.value = number_at(message, at, size);
      at += size;
    } else if (field.type == 2) {
      const uint64_t size = varint();
      if (size > message.size() - at) throw std::runtime_error("a text is cut");
      field.bytes = message.substr(at, size);
      at += size;
    } else {
      throw std::runtime_error("an unknown type");
    }
    fields.push_back(field);
  }
  return fields;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  bool starts = false;  // a SessionLog with the status START
  std::vector<std::pair<std::string, float>> scalars;
};

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

inline std::vector<ReadEvent> events_of(std::string_view file) {
  std::vector<ReadEvent> events;
  for (const std::string& record : records_of(file)) {
    ReadEvent event;
    for (const WireField& field : fields_of(record)) {
      if (field.number == 1 && field.type == 1) {
        event.wall_time = std::bit_cast<double>(field.value);
      } else if (field.number == 2 && field.type == 0) {
        event.step = static_cast<int64_t>(field.value);
      } else if (field.number == 3 && field.type == 2) {
        event.version = field.bytes;
      } else if (field.number == 5 && field.type == 2) {
        for (const WireField& value : fields_of(field.bytes)) {
          expect(value.number == 1 && value.type == 2, "an unknown field of a summary");
          const auto parts = fields_of(value.bytes);
          expect(parts.size() == 2 && parts[0].number == 1 && parts[0].type == 2 &&
                     parts[1].number == 2 && parts[1].type == 5,
                 "expected a tag and a value");
          event.scalars.emplace_back(parts[0].bytes,
                                     std::bit_cast<float>(static_cast<uint32_t>(parts[1].value)));
        }
      } else if (field.number == 7 && field.type == 2) {
        const auto parts = fields_of(field.bytes);
        expect(
            parts.size() == 1 && parts[0].number == 1 && parts[0].type == 0 && parts[0].value == 1,
            "expected the status START");
        event.starts = true;
      } else {
        throw std::runtime_error("an unknown field of an event");
      }
    }
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace frugal::apps
