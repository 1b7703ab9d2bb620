#include "sim/study/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/study/published_gpu.h"

namespace shardsim {
namespace {

constexpr std::string_view kColumns[] = {"kind",   "gpu",      "dtype",  "M",
                                         "N",      "K",        "shape",  "time_us",
                                         "tflops", "gbytes_s", "source", "note"};
constexpr double kLargestSize = 1e9;

struct MemoryName {
  std::string_view text;
  MemoryKernel kernel;
  int tensors;  // read and written, of the named size each
};

constexpr MemoryName kMemoryKernels[] = {
    {"residual add", MemoryKernel::vec, 3}, {"add", MemoryKernel::vec, 3},
    {"copy", MemoryKernel::vec, 2},         {"cast", MemoryKernel::vec, 2},
    {"SwiGLU act", MemoryKernel::gated, 3}, {"RMSNorm", MemoryKernel::rms_norm, 2},
};

// flash-attention's benchmark, which some sources quote without heads: a model of 2048 features.
constexpr int64_t kBenchmarkWidth = 2048;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<int64_t> size_of(std::string_view text) {
  const Parsed<int64_t> n = parse_whole(text);
  if (!n.ok() || n.value < 1 || static_cast<double>(n.value) > kLargestSize) return std::nullopt;
  return n.value;
}

std::optional<DType> dtype_of(std::string_view text) {
  if (text == "bf16" || text == "fp16/bf16") return DType::bf16;
  if (text == "fp16") return DType::fp16;
  if (text == "fp8") return DType::fp8;
  if (text == "fp32") return DType::fp32;
  return std::nullopt;
}

class RowReader {
 public:
  explicit RowReader(const CsvTable& table) : table_(table) {
    for (size_t i = 0; i < std::size(kColumns); ++i) column_[i] = table.need(kColumns[i]);
  }

  KernelRow read(const CsvRow& row) {
    row_ = &row;
    KernelRow out;
    out.line = row.line;
    out.kind = text("kind");
    out.gpu_text = text("gpu");
    out.source = text("source");
    // Every number of the row is looked at, whatever becomes of it.
    const std::optional<double> time = positive("time_us"), tflops = positive("tflops"),
                                gbytes = positive("gbytes_s");
    const std::array<std::optional<int64_t>, 3> mnk{size("M"), size("N"), size("K")};
    out.left_out = fill(out, mnk);
    if (!out.left_out.empty()) return out;
    if (time)
      out.time_us = *time;
    else if (tflops && out.kernel.kind != SingleKernel::Kind::memory_bound)
      out.time_us = out.kernel.flops() / (*tflops * 1e6);
    else if (gbytes && out.kernel.bytes > 0)
      out.time_us = static_cast<double>(out.kernel.bytes) / (*gbytes * 1e3);
    else
      out.left_out = "neither a time nor a rate";
    return out;
  }

 private:
  const std::string& text(std::string_view name) const {
    const auto* at = std::find(std::begin(kColumns), std::end(kColumns), name);
    return row_->fields[column_[static_cast<size_t>(at - std::begin(kColumns))]];
  }
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const {
    throw Error(fmt::format("{}: expected {}, got '{}'", name, expected, text(name)),
                table_.place(*row_));
  }
  std::optional<double> positive(std::string_view name) const {
    const std::optional<double> value = number_of(table_, *row_, table_.need(name));
    if (value && *value <= 0) fail(name, "a number above 0");
    return value;
  }
  std::optional<int64_t> size(std::string_view name) const {
    if (text(name).empty()) return std::nullopt;
    if (const std::optional<int64_t> n = size_of(text(name))) return n;
    fail(name, "a whole number from 1 to 1e9");
  }

  // Why the row cannot be said, or nothing.
  std::string fill(KernelRow& out, const std::array<std::optional<int64_t>, 3>& mnk) const {
    SingleKernel& k = out.kernel;
    out.shape = text("shape");
    if (const std::string why = find(out); !why.empty()) return why;
    const std::optional<DType> dtype = dtype_of(text("dtype"));
    if (!dtype) return fmt::format("no constants for the type '{}'", text("dtype"));
    k.dtype = *dtype;
    if (out.kind == "gemm") {
      if (!mnk[0] || !mnk[1] || !mnk[2]) return "a rate without the sizes of a product";
      k.kind = SingleKernel::Kind::product;
      k.m = *mnk[0], k.n = *mnk[1], k.k = *mnk[2];
      out.shape = fmt::format("{}x{}x{}", k.m, k.n, k.k);
      return "";
    }
    if (out.kind == "attn_fwd" || out.kind == "attn_bwd") return attention(out);
    if (out.kind == "membound") return memory_bound(out);
    return fmt::format("no kernel of kind '{}' is modelled", out.kind);
  }

  static std::string find(KernelRow& out) {
    const std::optional<PublishedGpu> known = published_gpu(out.gpu_text);
    if (!known) return fmt::format("'{}' is no GPU of the catalogue", out.gpu_text);
    out.gpu = known->gpu;
    out.assumed = known->assumed;
    return "";
  }

  // "B=2;H=16;S=8192;D=128;causal=1" and "FA3; causal inferred from the baseline level".
  std::string attention(KernelRow& out) const {
    SingleKernel& k = out.kernel;
    k.kind = SingleKernel::Kind::attention;
    k.backward = out.kind == "attn_bwd";
    std::string_view rest = out.shape;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view part = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const size_t equal = part.find('=');
      if (equal == std::string_view::npos) return "no sizes of attention in its shape";
      const std::string_view key = part.substr(0, equal), value = part.substr(equal + 1);
      const std::optional<int64_t> n = size_of(value);
      if (key == "causal")
        k.causal = value == "1";
      else if (key == "B")
        k.batch = n.value_or(0);
      else if (key == "H")
        k.heads = n.value_or(0);
      else if (key == "S")
        k.length = n.value_or(0);
      else if (key == "D")
        k.head_dim = n.value_or(0);
    }
    if (k.batch == 0 || k.length == 0 || k.head_dim == 0)
      return "no sizes of attention in its shape";
    if (k.heads == 0) {
      k.heads = std::max<int64_t>(1, kBenchmarkWidth / k.head_dim);
      if (!out.assumed.empty()) out.assumed += ", ";
      out.assumed += fmt::format("{} heads", k.heads);
    }
    const std::string& note = text("note");
    if (contains(note, "Triton")) return "attention of a Triton tutorial, which no framework runs";
    for (const auto& [word, name] : {std::pair{"FA2", "fa2"}, std::pair{"FA3", "fa3"},
                                     std::pair{"FA4", "fa4"}, std::pair{"cuDNN", "cudnn"}})
      if (note.starts_with(word)) k.implementation = name;
    if (k.implementation.empty()) return "which implementation of attention ran is not stated";
    if (bytes_of(k.dtype) != 2)
      return fmt::format("no constants for attention in {}", text("dtype"));
    return "";
  }

  // "RMSNorm 4096x8192".
  std::string memory_bound(KernelRow& out) const {
    SingleKernel& k = out.kernel;
    k.kind = SingleKernel::Kind::memory_bound;
    const std::string_view shape = out.shape;
    const size_t space = shape.rfind(' ');
    if (space == std::string_view::npos) return "a rate without sizes";
    const std::string_view sizes = shape.substr(space + 1);
    const size_t times = sizes.find('x');
    if (times == std::string_view::npos) return "a rate without sizes";
    const std::optional<int64_t> rows = size_of(sizes.substr(0, times)),
                                 columns = size_of(sizes.substr(times + 1));
    if (!rows || !columns) return "a rate without sizes";
    for (const MemoryName& name : kMemoryKernels)
      if (name.text == shape.substr(0, space)) {
        k.memory = name.kernel;
        k.bytes = name.tensors * bytes_of(k.dtype) * *rows * *columns;
        return "";
      }
    return fmt::format("no kernel '{}' is modelled", shape.substr(0, space));
  }

  const CsvTable& table_;
  std::array<size_t, std::size(kColumns)> column_{};
  const CsvRow* row_ = nullptr;
};

}  // namespace

bool is_kernel_table(const CsvTable& table) {
  return table.column("kind") && table.column("time_us") && table.column("M") &&
         table.column("shape");
}

std::vector<KernelRow> kernel_rows(const CsvTable& table) {
  for (const std::string& name : table.header)
    if (std::find(std::begin(kColumns), std::end(kColumns), name) == std::end(kColumns))
      throw Error(fmt::format("unknown column '{}'", name), {table.file, 1, 0},
                  fmt::format("a table of kernels has {}", fmt::join(kColumns, ", ")));
  RowReader reader(table);
  std::vector<KernelRow> rows;
  rows.reserve(table.rows.size());
  for (const CsvRow& row : table.rows) rows.push_back(reader.read(row));
  return rows;
}

}  // namespace shardsim
