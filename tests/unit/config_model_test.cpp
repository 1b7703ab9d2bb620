#include "sim/config/model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "sim/config/document.h"
#include "sim/model/model.h"

namespace shardsim {
namespace {

Architecture preset(std::string_view name) {
  for (const ModelPreset& p : model_presets())
    if (p.name == name) return read_hf_config(p.config, "config.json", std::string(name));
  throw Error("no such preset");
}

Architecture parse(const std::string& json) { return read_hf_config(json, "config.json", "m"); }

std::string error_of(const std::string& json) {
  try {
    parse(json);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

// Totals from public files: safetensors headers of the Hugging Face checkpoints (llama-2-70b,
// llama-3.1-405b, llama-3.2-1b, qwen2.5-7b) and the same number in KerasHub's presets for the
// others; 70,553,706,496 is Meta-Llama-3-70B's safetensors total.
TEST(ModelConfig, PresetsHaveThePublishedNumberOfParameters) {
  const std::map<std::string_view, int64_t> totals{
      {"gpt2", 124'439'808},           {"llama-2-70b", 68'976'648'192},
      {"llama-2-7b", 6'738'415'616},   {"llama-3-70b", 70'553'706'496},
      {"llama-3-8b", 8'030'261'248},   {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400}, {"mistral-7b-v0.3", 7'248'023'552},
      {"qwen2.5-7b", 7'615'616'512},   {"qwen3-0.6b", 596'049'920},
      {"qwen3-8b", 8'190'735'360},     {"mixtral-8x7b", 46'702'792'704},
      {"gemma-7b", 8'537'680'896},     {"mpt-7b", 6'649'286'656},
      {"t5-base", 222'903'552}};
  EXPECT_EQ(model_presets().size(), totals.size());
  for (const auto& [name, total] : totals)
    EXPECT_EQ(build_model(preset(name)).numel(), total) << name;
}

TEST(ModelConfig, PresetsAreTheShippedFiles) {
  const std::filesystem::path folder = SHARDSIM_SOURCE_DIR "/scenarios/models";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string text = read_text_file((entry.path() / "config.json").string());
    bool found = false;
    for (const ModelPreset& p : model_presets())
      found = found || (p.name == entry.path().filename().string() && p.config == text);
    EXPECT_TRUE(found) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, model_presets().size());
}

TEST(ModelConfig, Fields) {
  const Architecture q = preset("qwen3-0.6b");
  EXPECT_EQ(q.family, Family::llama);
  EXPECT_EQ(q.head_dim, 128);  // given: not hidden 1024 / heads 16
  EXPECT_TRUE(q.qk_norm);
  EXPECT_TRUE(q.tied);
  EXPECT_FALSE(q.qkv_bias);
  EXPECT_EQ(q.norm, NormForm::fused);
  EXPECT_EQ(q.rope, RopeForm::complex);
  EXPECT_EQ(q.naming, Naming::hugging_face);

  const Architecture q2 = preset("qwen2.5-7b");
  EXPECT_TRUE(q2.qkv_bias);
  EXPECT_FALSE(q2.o_bias);

  const Architecture g = preset("gpt2");
  EXPECT_EQ(g.family, Family::gpt2);
  EXPECT_EQ(g.ffn, 4 * 768);
  EXPECT_EQ(g.max_positions, 1024);
  EXPECT_EQ(g.rope, RopeForm::none);
}

TEST(ModelConfig, Defaults) {
  const Architecture a = parse(
      R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": null,
          "attention_bias": true, "mlp_bias": true, "rope_scaling": {"factor": 8.0},
          "torch_dtype": "bfloat16", "_name_or_path": "x", "hidden_act": "silu"})");
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.head_dim, 16);
  EXPECT_FALSE(a.tied);
  EXPECT_TRUE(a.qkv_bias && a.o_bias && a.mlp_bias);
}

TEST(ModelConfig, Refusals) {
  EXPECT_EQ(
      error_of(R"({"model_type": "falcon"})"),
      "config.json:1:16: error: model_type: expected a model_type that this build knows, got "
      "'falcon'\n  hint: known are gemma, gpt2, llama, mistral, mixtral, mpt, qwen2, qwen3, t5");
  EXPECT_EQ(error_of("{\"model_type\": \"llama\",\n  \"vocab_size\": 1e30}"),
            "config.json:2:17: error: vocab_size: expected a whole number from 1 to 16777216, got "
            "'1e30', which is too large");
  EXPECT_NE(error_of(R"({"model_type": 5})"), "");
  EXPECT_NE(error_of(R"({"model_type": "stack", "hidden_size": 4, "blocks": [[[4, 4]]]})"), "");
}

}  // namespace
}  // namespace shardsim
