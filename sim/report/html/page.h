// A page as one HTML file: style, script and data are in it, and nothing is fetched (a
// Content-Security-Policy in its head forbids it).
//
// The files of web/ are its parts: page.css and common.js of every page, <kind>.html (what stands in
// the page before its script runs) and <kind>*.js, in the order of CMakeLists.txt, of each kind. Data come as JSON, in which <, > and &
// are written \u003c, \u003e and \u0026, so that no name can end the element that holds it; a script
// puts names into the page as text, never as markup.
// Worked example: html_page("run", "a<b", "{}", "") has <title>a&lt;b</title> and one element
// <script type="application/json" id="data">{}</script>.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shardsim {

struct PagePart {
  std::string_view name, text;
};
std::span<const PagePart> page_parts();

// `packed` is Packer's text, or empty.
std::string html_page(std::string_view kind, std::string_view title, std::string_view json,
                      std::string_view packed);

}  // namespace shardsim
