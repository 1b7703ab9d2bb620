// A scenario from a YAML file; scenarios/README.md is the reference of its keys.
// Every mistake is an Error at its line and column. Sizes are bounded one by one and then together
// (limits.h), so that nothing computed from a scenario overflows.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sim/config/document.h"
#include "sim/plan/scenario.h"

namespace shardsim {

Scenario load_scenario(const std::string& path);
// `file` is where paths in it start from, and what messages name.
Scenario parse_scenario(std::string_view text, const std::string& file);
Scenario read_scenario(std::shared_ptr<const Document> document, const std::string& file);

}  // namespace shardsim
