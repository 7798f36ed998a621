// JSON as the apps read and write it: keys keep their order.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace frugal::apps {

using Json = nlohmann::ordered_json;

}  // namespace frugal::apps
