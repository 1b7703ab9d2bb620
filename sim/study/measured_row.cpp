#include "sim/study/measured_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iterator>

#include "sim/base/error.h"

namespace shardsim {
namespace {

constexpr std::string_view kNeeded[] = {"id",      "gpu",         "n_gpus",   "framework", "model",
                                        "seq_len", "micro_batch", "strategy", "act_ckpt"};

}  // namespace

std::string MeasuredRow::group() const {
  const size_t dash = id.rfind('-');
  return dash == std::string::npos || dash == 0 ? source : id.substr(0, dash);
}

bool is_training_table(const CsvTable& table) {
  std::vector<std::string_view> missing;
  for (std::string_view name : kNeeded)
    if (!table.column(name)) missing.push_back(name);
  const bool timed = table.column("tokens_per_s_per_gpu") || table.column("step_time_s");
  if (missing.empty() && timed) return true;
  if (2 * missing.size() > std::size(kNeeded)) return false;
  if (!timed) missing.push_back("tokens_per_s_per_gpu (or step_time_s)");
  throw Error(
      fmt::format("a table of measured steps needs the {} {} too",
                  missing.size() == 1 ? "column" : "columns", fmt::join(missing, ", ")),
      {table.file, 1, 0},
      "scenarios/README.md, Calibrations, says what each column means; fields may be empty");
}

std::string training_columns() {
  return fmt::format("{} and tokens_per_s_per_gpu or step_time_s", fmt::join(kNeeded, ", "));
}

double MeasuredRow::seconds(double tokens) const {
  const double s = tokens_per_s ? tokens / *tokens_per_s : step_s.value_or(0);
  if (!(s > 0 && std::isfinite(s))) throw Error("its rate or time is not above 0");
  return s;
}

std::vector<MeasuredRow> measured_rows(const CsvTable& table) {
  for (std::string_view name : kNeeded) table.need(name);
  std::vector<MeasuredRow> rows;
  rows.reserve(table.rows.size());
  for (const CsvRow& row : table.rows) {
    const auto text = [&](std::string_view name) {
      const std::optional<size_t> i = table.column(name);
      return i ? row.fields[*i] : std::string();
    };
    const auto number = [&](std::string_view name) -> std::optional<double> {
      const std::optional<size_t> i = table.column(name);
      return i ? number_of(table, row, *i) : std::nullopt;
    };
    MeasuredRow m;
    m.line = row.line;
    m.id = text("id");
    m.source = text("source");
    m.gpu = text("gpu");
    m.interconnect = text("interconnect");
    m.framework = text("framework");
    m.date = text("version_date");
    m.model = text("model");
    m.notes = text("notes");
    m.strategy = text("strategy");
    m.reshard = text("reshard_after_forward");
    m.checkpointing = text("act_ckpt");
    m.param_dtype = text("param_dtype");
    m.reduce_dtype = text("reduce_dtype");
    m.compute_dtype = text("compute_dtype");
    m.compile = text("compile");
    m.tier = text("tier");
    m.gpus = number("n_gpus");
    m.gpus_per_node = number("gpus_per_node");
    m.params = number("params");
    m.layers = number("n_layers");
    m.hidden = number("d_model");
    m.heads = number("n_heads");
    m.kv_heads = number("n_kv_heads");
    m.ffn = number("d_ff");
    m.vocab = number("vocab");
    m.seq_len = number("seq_len");
    m.micro_batch = number("micro_batch");
    m.grad_accum = number("grad_accum");
    m.global_batch_tokens = number("global_batch_tokens");
    m.tensor = number("tp").value_or(1);
    m.pipeline = number("pp").value_or(1);
    m.context = number("cp").value_or(1);
    m.tokens_per_s = number("tokens_per_s_per_gpu");
    m.step_s = number("step_time_s");
    rows.push_back(std::move(m));
  }
  return rows;
}

}  // namespace shardsim
