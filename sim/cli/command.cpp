#include "sim/cli/command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "sim/base/error.h"
#include "sim/base/escape.h"
#include "sim/base/output_names.h"

namespace shardsim {
namespace {

[[noreturn]] void fail_write(const std::string& path, int error) {
  throw Error(fmt::format("cannot be written: {}", std::strerror(error)), {path});
}

bool is_regular_or_new(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  return status.type() == std::filesystem::file_type::not_found ||
         status.type() == std::filesystem::file_type::regular;
}

// A regular file is written beside the old one and renamed, so its folder must take a new file.
void require_writable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail_write(path, EISDIR);
  if (::access(path.c_str(), F_OK) == 0 && !is_regular_or_new(path)) {
    if (::access(path.c_str(), W_OK) != 0) fail_write(path, errno);
    return;
  }
  if (::access(path.c_str(), F_OK) != 0 && errno != ENOENT) fail_write(path, errno);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access((folder / ".").c_str(), W_OK | X_OK) != 0) fail_write(path, errno);
}

void write_all(std::FILE* file, std::string_view text, const std::string& path) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0)
    fail_write(path, errno);
}

}  // namespace

void add_file_to_write(CLI::App& command, const std::string& option, std::string& path,
                       const std::string& description) {
  command
      .add_option_function<std::string>(
          option,
          [&path, option](const std::string& given) {
            if (given.empty())
              throw CLI::ValidationError(option.substr(0, option.find(',')),
                                         "expected a file's name, got ''");
            require_writable(given);
            name_output(option.substr(0, option.find(',')), given);
            path = given;
          },
          description)
      ->type_name("FILE");
}

void add_output_options(CLI::App& command, Context& context) {
  command
      .add_option_function<std::string>(
          "--format",
          [&context](const std::string& word) {
            if (word == "table")
              context.format = Format::table;
            else if (word == "json")
              context.format = Format::json;
            else if (word == "csv")
              context.format = Format::csv;
            else
              throw CLI::ValidationError(
                  "--format", fmt::format("expected table, json or csv, got '{}'", word));
          },
          "How the result is written (default table)")
      ->type_name("table|json|csv");
  add_file_to_write(command, "-o,--output", context.output, "Write the result to this file");
}

void write_file(const Context& context, const std::string& path, std::string_view text) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // A device, a pipe or a link is written in place: it cannot be replaced by a rename.
  const bool replace = is_regular_or_new(path);
  const std::string target = replace ? fmt::format("{}.{}.tmp", path, ::getpid()) : path;
  if (std::filesystem::is_directory(path)) fail_write(path, EISDIR);
  if (replace && context.interrupt != nullptr) context.interrupt->begin_file(target);
  try {
    std::unique_ptr<std::FILE, Close> file(std::fopen(target.c_str(), "wb"));
    if (!file) fail_write(path, errno);
    // A file that is replaced stays as private as it was.
    if (struct stat before{}; replace && ::stat(path.c_str(), &before) == 0)
      ::fchmod(::fileno(file.get()), before.st_mode & 07777);
    write_all(file.get(), text, path);
    file.reset();
    if (replace && std::rename(target.c_str(), path.c_str()) != 0) fail_write(path, errno);
  } catch (const Error&) {
    if (replace) std::remove(target.c_str());
    if (context.interrupt != nullptr) context.interrupt->end_file();
    throw;
  }
  if (context.interrupt != nullptr) context.interrupt->end_file();
}

void write_output(const Context& context, std::string_view result) {
  // JSON has escapes of its own.
  const std::string text =
      context.format == Format::json ? std::string(result) : printable(result, true);
  if (context.output.empty())
    write_all(stdout, text, "stdout");
  else
    write_file(context, context.output, text);
}

void refuse_overwrite(const Context& context, const std::string& input) {
  refuse_overwrite("-o", context.output, input);
}

void refuse_overwrite(const std::string& option, const std::string& output,
                      const std::string& input) {
  if (!output.empty() && !input.empty() && same_file(output, input))
    throw Error(option + " is the input itself, which would be lost", {output},
                "give another file");
}

bool use_color(int file_descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && ::isatty(file_descriptor) == 1;
}

}  // namespace shardsim
