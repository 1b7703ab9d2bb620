// Works as the runtimes describe them: what is launched, for which group.
// Worked example: collective(AllGather, 436,224,000 B, bf16, shard, block 0, none, "all_gather").
#pragma once

#include <string_view>

#include "sim/schedule/instruction.h"

namespace shardsim {

// "all_gather".
constexpr std::string_view name_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::Gemm: return "gemm";
    case WorkKind::Kernel: return "kernel";
    case WorkKind::AllGather: return "all_gather";
    case WorkKind::ReduceScatter: return "reduce_scatter";
    case WorkKind::AllReduce: return "all_reduce";
    case WorkKind::Broadcast: return "broadcast";
    case WorkKind::Reduce: return "reduce";
    case WorkKind::CopyH2D: return "copy_h2d";
    case WorkKind::CopyD2H: return "copy_d2h";
    case WorkKind::CopyD2D: return "copy_d2d";
    case WorkKind::Memset: return "memset";
  }
  return "?";
}

inline Work kernel_work(const char* name, KernelClass cls, Bytes bytes, DType t, GroupId group) {
  Work w;
  w.kernel = cls;
  w.bytes = bytes;
  w.dtype = t;
  w.group = group;
  w.name = name;
  return w;
}

inline Work copy_work(WorkKind kind, Bytes bytes, GroupId group, const char* name) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.group = group;
  w.name = name;
  return w;
}

inline Work collective_work(WorkKind kind, Bytes bytes, DType t, CommId comm, GroupId group,
                            ReduceOp op, const char* name) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.dtype = t;
  w.comm = comm;
  w.group = group;
  w.op = op;
  w.name = name;
  return w;
}

}  // namespace shardsim
