#include <string>

#include "sim/base/error.h"
#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

void linear(OpCode& c, const OpShape& s, const OpContext& x) {
  const Weight weight = weight_of(x, 0), bias = weight_of(x, 1);
  const DType t = weight.type;
  if (x.in[0] != t)
    throw Error::at("training.precision",
                    "a linear's weight is " + std::string(name_of(t)) + " and its input " +
                        std::string(name_of(x.in[0])),
                    "PyTorch raises RuntimeError (mat1 and mat2 must have the same dtype); what "
                    "decides: storage, compute, cast_forward_inputs, input_dtype; with fsdp2 also "
                    "keep and fsdp2.ignored_params");
  const int64_t e = bytes_of(t);
  c.out = t;
  Writer f(c.forward);
  f.alloc(0, e * s.rows * s.out);
  const bool adds_bias = x.function_linear && s.bias && !s.matrix_input;
  f.gemm(x, t, "linear", s.out, s.rows, s.in, s.bias && !adds_bias);
  if (adds_bias) f.pointwise("bias", 2 * e * s.rows * s.out, e * s.rows * s.out);
  // addmm names what it keeps mat1, mat2; mm self, mat2: they go in the order of their names.
  const bool keeps_weight = weight.is_input && x.in_grad[0];
  if (!s.bias && keeps_weight) c.saved.push_back(input(1));
  if (weight.grad || x.function_linear) c.saved.push_back(input(0));
  if (s.bias && keeps_weight) c.saved.push_back(input(1));
  c.saves_parameter = !weight.is_input && x.in_grad[0];
  c.gradient_is_view = !s.matrix_input && !x.function_linear;
  Writer b(c.backward);
  // An expanded gradient is made dense before each product that reads it.
  const auto dense = [&](auto&& product) {
    if (x.expanded_grad) {
      b.alloc(temp(0), e * s.rows * s.out);
      b.pointwise("copy", 2 * e * s.rows * s.out, e * s.rows * s.out, KernelClass::strided);
    }
    product();
    if (x.expanded_grad) b.free(temp(0));
  };
  const auto weight_gradient = [&] {
    if (!weight.grad) return;
    b.alloc(weight.grad_slot, e * s.in * s.out);
    dense([&] {
      if (s.conv1d)
        b.gemm(x, t, "linear_dw", s.out, s.in, s.rows);
      else
        b.gemm(x, t, "linear_dw", s.in, s.out, s.rows);
    });
  };
  const auto input_gradient = [&] {
    if (!x.in_grad[0]) return;
    b.alloc(0, e * s.rows * s.in);
    dense([&] { b.gemm(x, t, "linear_dx", s.in, s.rows, s.out); });
  };
  if (!s.bias && !x.function_linear) {
    weight_gradient();
    input_gradient();
    return;
  }
  input_gradient();
  weight_gradient();
  if (!s.bias || !bias.grad) return;
  // Under autocast a sum is fp32, and autograd casts it back to the bias's type.
  const bool wide = x.autocast_backward && e < 4;
  const uint8_t sum = wide ? temp(3) : bias.grad_slot;
  b.alloc(sum, (wide ? 4 : e) * s.out);
  if (x.expanded_grad)
    b.kernel("bias_grad", KernelClass::reduction, e * s.rows * s.out, s.rows * s.out);
  else
    column_sum(b, "bias_grad", s.rows, s.out, e, x.sms, temp(1));
  if (!wide) return;
  b.alloc(bias.grad_slot, e * s.out);
  b.kernel("cast", KernelClass::pointwise, (4 + e) * s.out);
  b.free(sum);
}

}  // namespace shardsim::op
