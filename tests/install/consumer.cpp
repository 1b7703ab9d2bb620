#include <cstdio>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/model/model.h"

int main(int, char** argv) {
  try {
    const shardsim::Scenario scenario = shardsim::load_scenario(argv[1]);
    std::printf("%s: %lld parameters\n", scenario.name.c_str(),
                static_cast<long long>(shardsim::build_model(scenario.model).numel()));
    return 0;
  } catch (const shardsim::Error& e) {
    std::fprintf(stderr, "%s\n", e.text().c_str());
    return 1;
  }
}
