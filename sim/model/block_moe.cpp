#include <vector>

#include "sim/model/blocks.h"

namespace shardsim {

// Every expert takes tokens x topk / experts rows, as with a balanced router.
int16_t experts(ClassBuilder& b, const Architecture& a, int64_t tokens, int16_t x, uint32_t module,
                int32_t param) {
  const int64_t h = a.hidden, chosen = tokens * a.topk, rows = chosen / a.experts;
  const auto matrix = [](int64_t n, int64_t in, int64_t out) {
    OpShape s = features(n, in, out);
    s.matrix_input = true;
    return s;
  };
  // Parameters of an expert in the order of the tree: gate, up, down, or Mixtral's w1, w2, w3.
  const bool mixtral = a.naming == Naming::hugging_face;
  const int32_t up_at = mixtral ? 2 : 1, down_at = mixtral ? 1 : 2;
  const auto linear = [&](uint32_t m, const OpShape& s, int16_t in, int32_t p) {
    b.enter(m, in);
    const int16_t out = b.run(OpKind::linear, s, {in, -1, -1}, {p, -1});
    b.exit(m, out);
    return out;
  };
  const int16_t logits = linear(module + 1, matrix(tokens, h, a.experts), x, param);
  const int16_t weights =
      b.run(OpKind::topk, features(tokens, a.experts, a.topk), {logits, -1, -1});
  b.drop({logits});
  const int16_t out = b.run(OpKind::zeros_like, features(tokens, h, h), {x, -1, -1});
  const int16_t order = b.run(OpKind::sort_ids, features(chosen, 1, 1), {-1, -1, -1});
  const int16_t token = b.run(OpKind::divide_ids, features(chosen, 1, 1), {order, -1, -1});
  int16_t sum = out;
  for (int64_t i = 0; i < a.experts; ++i) {
    const uint32_t m = module + 3 + static_cast<uint32_t>(4 * i);
    const int32_t p = param + 1 + static_cast<int32_t>(3 * i);
    const int16_t mine = b.run(OpKind::gather_rows, features(rows, tokens, h), {x, token, -1});
    b.enter(m, mine);
    const int16_t gate = linear(m + 1, matrix(rows, h, a.ffn), mine, p);
    const int16_t act = b.run(OpKind::silu, features(rows, a.ffn, a.ffn), {gate, -1, -1});
    b.drop({gate});
    const int16_t up =
        linear(m + 1 + static_cast<uint32_t>(up_at), matrix(rows, h, a.ffn), mine, p + up_at);
    const int16_t prod = b.run(OpKind::mul, features(rows, a.ffn, a.ffn), {act, up, -1});
    b.drop({act, up});
    const int16_t made =
        linear(m + 1 + static_cast<uint32_t>(down_at), matrix(rows, a.ffn, h), prod, p + down_at);
    b.drop({prod});
    b.exit(m, made);
    b.drop({mine});
    const int16_t share =
        b.run(OpKind::gather_rows, features(rows, chosen, 1), {weights, order, -1});
    const int16_t weighted = b.run(OpKind::scale_rows, features(rows, h, h), {made, share, -1});
    b.drop({made, share});
    const int16_t next = b.run(OpKind::add_at_rows, features(rows, h, h), {sum, weighted, token});
    b.drop({weighted, sum});
    sum = next;
  }
  b.drop({weights, order, token});
  return sum;
}

}  // namespace shardsim
