// One published measurement of training, as a table states it: the columns of measured_training.csv
// (tokens_per_s_per_gpu per GPU always, micro_batch per data-parallel rank, global_batch_tokens per
// optimizer step). Empty fields are what the source did not say.
// Worked example: id "ttG-001" is torchtitan's Llama-3-8B on 8 H100 of 95 GB, sequence 8192, batch 1,
// 5,605 tokens/s: 1.4615 s a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/config/csv.h"

namespace shardsim {

struct MeasuredRow {
  int line = 0;
  std::string id, source, gpu, interconnect, framework, date, model, notes;
  std::string strategy, reshard, checkpointing, param_dtype, reduce_dtype, compute_dtype, compile;
  std::string tier;
  std::optional<double> gpus, gpus_per_node, layers, hidden, heads, kv_heads, ffn, vocab, params;
  std::optional<double> seq_len, micro_batch, grad_accum, global_batch_tokens;
  double tensor = 1, pipeline = 1, context = 1;
  std::optional<double> tokens_per_s;  // of one GPU
  std::optional<double> step_s;        // stated; otherwise derived from the rate

  // "ttG" of "ttG-001"; the source where the id has no dash.
  std::string group() const;
  // Of a step with so many tokens on one GPU: by its rate, or as stated. Throws Error where that is not
  // above 0.
  double seconds(double tokens) const;
};

// True where the header has the columns that a measured step needs. Error, with the columns that are
// missing, where it has half of them and more: no other table has.
bool is_training_table(const CsvTable& table);
// "id, gpu, n_gpus, ...", for messages.
std::string training_columns();

std::vector<MeasuredRow> measured_rows(const CsvTable& table);

}  // namespace shardsim
