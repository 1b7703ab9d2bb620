// The files that a command will write, by the options that name them: none of them is also read, and no
// two options name one file.
// Worked example: name_output("-o", "a.yaml"); InputFile("./a.yaml") is an Error: -o is the input itself.
#pragma once

#include <string>

namespace shardsim {

// Before any work: Error where another option names the file already. Devices and pipes may be named
// twice.
void name_output(const std::string& option, const std::string& path);

// For whoever opens a file to read: Error where an option names it, under any name.
void refuse_named_output(const std::string& path);

// One file, by any of its names; also one that is not there yet.
bool same_file(const std::string& a, const std::string& b);

}  // namespace shardsim
