// Writes a stage's forward as Python would: operators on variables, and where variables go out of scope.
// Worked example, y = gelu(x) + x with the temporary gone at once:
//   ClassBuilder b; t = b.run(gelu, s, {0}); y = b.run(add, s, {t, 0}); b.drop({t}); b.finish(y)
#pragma once

#include <initializer_list>
#include <utility>

#include "sim/model/program.h"

namespace shardsim {

// Builds one class. Variables are slots; each may be given a module's scope.
class ClassBuilder {
 public:
  // Slots 1 to `externals` are values that stages share.
  explicit ClassBuilder(int16_t externals = 0) {
    c_.externals = externals;
    c_.slots = static_cast<int16_t>(1 + externals);
  }

  int16_t slot() { return c_.slots++; }

  int16_t run(OpKind op, const OpShape& shape, std::array<int16_t, 3> in,
              std::array<int32_t, 2> param = {-1, -1}) {
    Step s;
    s.op = op;
    s.shape = shape;
    s.in = in;
    s.param = param;
    s.out[0] = slot();
    if (op == OpKind::split_qkv) {
      s.out[1] = slot();
      s.out[2] = slot();
    }
    c_.steps.push_back(s);
    return s.out[0];
  }
  void drop(std::initializer_list<int16_t> slots) {
    for (int16_t v : slots) {
      Step s;
      s.what = Step::What::drop;
      s.out[0] = v;
      c_.steps.push_back(s);
    }
  }
  void enter(uint32_t module, int16_t in) { hook(Step::What::enter, module, in); }
  void exit(uint32_t module, int16_t out) { hook(Step::What::exit, module, out); }
  StageClass finish(int16_t output, bool cuttable = false) {
    c_.output = output;
    c_.cuttable = cuttable;
    return std::move(c_);
  }

 private:
  void hook(Step::What what, uint32_t module, int16_t v) {
    Step s;
    s.what = what;
    s.module = module;
    (what == Step::What::enter ? s.in : s.out)[0] = v;
    c_.steps.push_back(s);
  }
  StageClass c_;
};

struct Sizes {
  int64_t batch = 0, seq = 0, tokens = 0;
};

OpShape features(int64_t rows, int64_t in, int64_t out);

// RMSNorm as transformers writes it: fp32 inside, cast back, then times the weight.
int16_t written_out_norm(ClassBuilder& b, const OpShape& s, int16_t x, int32_t weight);
int16_t rms_norm(ClassBuilder& b, const OpShape& s, int16_t x, int32_t weight);

// Attention written out on q, k, v; whether k and v lie contiguous is in the program.
struct EagerAttention {
  int64_t batch = 0, seq = 0, heads = 0, head_dim = 0;
  bool contiguous_kv = false;
  bool scaled = true;  // by 1 / sqrt(head_dim)
  bool causal = true;  // a mask made on the spot
  int16_t bias = -1;   // added to the scores
  double dropout = 0;
};
int16_t eager_attention(ClassBuilder& b, const EagerAttention& a, int16_t q, int16_t k, int16_t v);

}  // namespace shardsim
