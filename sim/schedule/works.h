// Works as the runtimes describe them: what is launched, for which group.
// Worked example: collective(AllGather, 436,224,000 B, bf16, shard, block 0, none, "all_gather").
#pragma once

#include "sim/schedule/instruction.h"

namespace shardsim {

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
