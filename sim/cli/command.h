// What the commands share. A command is one file with one function, `void add_list(CLI::App&,
// Context&)`: it declares the subcommand and its options, and sets `context.run` when the user
// chose it. run returns the exit code; a user's mistake is an Error, caught in main.
//
//   void add_hello(CLI::App& app, Context& context) {
//     struct Options { std::string who; };
//     auto options = std::make_shared<Options>();
//     CLI::App* command = app.add_subcommand("hello", "Greets");
//     command->add_option("who", options->who, "Name")->required();
//     add_output_options(*command, context);
//     command->callback([options, &context] {
//       context.run = [options, &context] {
//         write_output(context, "hello " + options->who + "\n");
//         return kOk;
//       };
//     });
//   }
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/cli/interrupt.h"

namespace shardsim {

inline constexpr int kOk = 0;
inline constexpr int kUserError = 1;    // also a command line that makes no sense
inline constexpr int kCheckFailed = 2;  // a comparison or a gate said no
inline constexpr int kNoDevice = 3;
inline constexpr int kInterrupted = 130;

enum class Format { table, json, csv };

struct Context {
  Format format = Format::table;
  std::string output;  // empty: stdout; never the empty text of -o ""
  Interrupt* interrupt = nullptr;
  std::function<int()> run;
};

// --format and -o.
void add_output_options(CLI::App& command, Context& context);

// An option that names a file to write. That it can be written is looked at while the command line is
// read, before any work is done: Error.
void add_file_to_write(CLI::App& command, const std::string& option, std::string& path,
                       const std::string& description);

// To stderr; one that is closed or full does not end the command.
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// The result of a command, to stdout or to the file of -o. The file appears whole or not at all: it
// is written under another name and renamed.
void write_output(const Context& context, std::string_view text);
// The same for a file that a command names itself, such as a trace.
void write_file(const Context& context, const std::string& path, std::string_view text);

// Before a command reads its input: throws Error where -o names that file, under any name.
void refuse_overwrite(const Context& context, const std::string& input);
void refuse_overwrite(const std::string& option, const std::string& output,
                      const std::string& input);

// Whether escape codes for colour may be written: a terminal, and NO_COLOR is not set.
bool use_color(int file_descriptor);

void add_run(CLI::App& app, Context& context);
void add_explain(CLI::App& app, Context& context);
void add_list(CLI::App& app, Context& context);
void add_conform(CLI::App& app, Context& context);
void add_memory(CLI::App& app, Context& context);
void add_diff(CLI::App& app, Context& context);
void add_ledger(CLI::App& app, Context& context);
void add_layout(CLI::App& app, Context& context);
void add_validate(CLI::App& app, Context& context);
void add_calibrate(CLI::App& app, Context& context);
void add_diagnose(CLI::App& app, Context& context);
void add_compare(CLI::App& app, Context& context);
void add_fit(CLI::App& app, Context& context);
void add_init(CLI::App& app, Context& context);
void add_sweep(CLI::App& app, Context& context);
void add_replay(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);

}  // namespace shardsim
