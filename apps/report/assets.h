// The style sheet and the script of a report: page.css and page.js, which CMake embeds.
#pragma once

namespace frugal::apps {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace frugal::apps
