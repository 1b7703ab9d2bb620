#include "sim/config/settings.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace shardsim {
namespace {

TEST(Settings, AreKeysAsWritten) {
  const std::string path = (std::filesystem::temp_directory_path() / "settings_test.yaml").string();
  std::ofstream(path)
      << "shardsim: 1\nname: x\ntraining:\n  fsdp2: {reshard_after_forward: false}\n"
         "  wrap: {}\n  frozen: [\"*.mlp.*\", a]\n";
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(settings_in(path), (Pairs{{"training.fsdp2.reshard_after_forward", "false"},
                                      {"training.wrap", "{}"},
                                      {"training.frozen", "[\"*.mlp.*\", a]"}}));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace shardsim
