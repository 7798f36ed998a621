#include "core/device.h"

#include <charconv>

namespace frugal {

std::string Device::str() const {
  switch (type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::meta:
      return "meta";
    case DeviceType::cuda:
      break;
  }
  return fmt::format("cuda:{}", index);
}

Device Device::parse(const std::string& text) {
  if (text == "cpu") return kCpu;
  if (text == "meta") return kMeta;
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    Device device{DeviceType::cuda, 0};
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + 5, end, device.index);
    if (parsed.ec == std::errc{} && parsed.ptr == end && device.index >= 0) return device;
  }
  throw Error(fmt::format("[device] expected cpu, cuda, cuda:N or meta, got '{}'", text));
}

}  // namespace frugal
