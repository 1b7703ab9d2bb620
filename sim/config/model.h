// Architectures from text: a preset, a Hugging Face config.json, or the same fields inline in YAML.
//
// The fields and their defaults are those of the transformers configuration classes of each
// model_type: llama, mistral, qwen2, qwen3, gpt2. Two more types are this project's own: stack
// (blocks of plain linears) and bag (blocks of bare parameters).
// Fields of a config.json that change neither shapes nor kernels here (rope_scaling, sliding_window,
// dropout, token ids, ...) are read over; the list is in model.cpp. Any other field is an Error.
// What a config.json does not say is how the model is written: norm, rope, repeat_kv. The default is
// torchtitan's form: F.rms_norm, complex RoPE, enable_gqa.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/config/reader.h"
#include "sim/model/architecture.h"

namespace shardsim {

struct ModelPreset {
  std::string_view name;
  std::string_view config;  // the text of scenarios/models/<name>/config.json
};

// Sorted by name; generated from scenarios/models by the build.
std::span<const ModelPreset> model_presets();

// The file that a scenario's `models/x/config.json` is: beside the scenario, or in one of the three
// folders above it. Error where there is none.
std::string find_beside(const Value& value, const std::string& scenario);
// The same for a path; nullopt where there is no file.
std::optional<std::string> file_beside(const std::string& path, const std::string& scenario);

// Error, with the nearest name as a hint, if there is none; `value` names the preset.
Architecture read_preset(const Value& value);
// `name` is for people.
Architecture read_hf_config(std::string_view text, const std::string& file,
                            const std::string& name);
// The `model` map of a scenario in `file`.
Architecture read_model(const Value& value, const std::string& file);

}  // namespace shardsim
