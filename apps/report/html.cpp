#include "apps/report/html.h"

#include <algorithm>
#include <cmath>

#include "apps/cli/version.h"
#include "apps/report/assets.h"
#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::apps {

std::string escaped(std::string_view text, size_t limit) {
  std::string safe;
  for (const char c : printable(text, limit)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string escaped_lines(std::string_view text) {
  std::string safe;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    safe += escaped(text.substr(begin, end - begin), 2000) + "\n";
    begin = end + 1;
  }
  return safe;
}

std::string script_json(const Json& json) {
  std::string safe;
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

std::string html_page(const std::string& title, const std::string& body, const std::string& made_of,
                      bool scripted) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}"
      "<footer>Made by frugal {} of {}. The page loads nothing.</footer>\n</main>\n{}</body>\n"
      "</html>\n",
      escaped(title), kPageStyle, body, escaped(kVersion), made_of,
      scripted ? fmt::format("<script>\n{}</script>\n", kPageScript) : "");
}

std::string short_number(double value) {
  if (value == 0) return "0";  // -0 becomes "0", too
  const double size = std::abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::string counted(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits.front() == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace frugal::apps
