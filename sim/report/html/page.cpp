#include "sim/report/html/page.h"

#include "sim/base/error.h"

namespace shardsim {
namespace {

std::string_view part(std::string_view name) {
  for (const PagePart& p : page_parts())
    if (p.name == name) return p.text;
  SHARDSIM_ASSERT(false, "a page has its parts");
  return "";
}

std::string in_text(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      default: out += c;
    }
  return out;
}

void add_in_script(std::string& out, std::string_view json) {
  for (const char c : json) switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
}

}  // namespace

std::string html_page(std::string_view kind, std::string_view title, std::string_view json,
                      std::string_view packed) {
  const std::string name(kind);
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'none'; "
      "base-uri 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>";
  out += in_text(title);
  out += "</title>\n<style>\n";
  out += part("page.css");
  out += "</style>\n</head>\n<body>\n";
  out += part(name + ".html");
  out += "<script type=\"application/json\" id=\"data\">";
  add_in_script(out, json);
  out += "</script>\n";
  if (!packed.empty()) {
    out += "<script type=\"text/plain\" id=\"packed\">";
    out += packed;
    out += "</script>\n";
  }
  out += "<script>\n\"use strict\";\n";
  out += part("common.js");
  for (const PagePart& p : page_parts())
    if (p.name.starts_with(name) && p.name.ends_with(".js")) out += p.text;
  out += "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace shardsim
