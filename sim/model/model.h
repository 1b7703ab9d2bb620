// A model as PyTorch sees it: a tree of modules with fully qualified names, and every parameter's
// shape. Modules stand in pre-order, so a subtree is the id range [m, modules[m].end), and so are
// the parameters below it. Names are put together on demand: nothing here holds a string per module.
// Worked number: Llama-3-8B has 32 blocks of 9 parameters, 291 in all, 8,030,261,248 elements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/model/architecture.h"

namespace shardsim {

// Up to three dimensions; unused ones are 1.
struct Shape {
  std::array<int64_t, 3> dim{1, 1, 1};
  int rank = 0;

  static Shape of(int64_t a) { return {{a, 1, 1}, 1}; }
  static Shape of(int64_t a, int64_t b) { return {{a, b, 1}, 2}; }
  int64_t numel() const { return dim[0] * dim[1] * dim[2]; }
  int64_t rest() const { return dim[1] * dim[2]; }  // elements of one row of dimension 0
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Param {
  ModuleId module;
  const char* name = "weight";  // static text
  int32_t index = -1;           // an element of a ParameterList: "p.3"
  Shape shape;
  ParamId alias;        // valid: this name shares the storage of an earlier parameter (tied)
  bool frozen = false;  // requires no gradient
  std::optional<DType> dtype = std::nullopt;  // other than the one that training.precision stores
};

struct Module {
  ModuleId parent;
  const char* name = "";  // static text; with index >= 0 the index is the name
  int32_t index = -1;
  uint32_t end = 0;                         // one past the last module of the subtree
  uint32_t first_param = 0, end_param = 0;  // own parameters and those of the subtree
  uint32_t own_params = 0;                  // the first of them are the module's own
  // What wrapping looks at: the lists have no forward, and the size policy does not enter
  // torch.nn.MultiheadAttention.
  enum class Kind : uint8_t { plain, module_list, parameter_list, multihead_attention };
  Kind kind = Kind::plain;
  bool callable() const { return kind == Kind::plain || kind == Kind::multihead_attention; }
};

struct Model {
  Architecture architecture;
  std::vector<Module> modules;  // modules[0] is the root
  std::vector<Param> params;
  std::vector<ModuleId> blocks;     // the repeated layers, in order
  std::vector<ModuleId> embedding;  // modules that run before the blocks and own parameters
  std::vector<ModuleId> head;       // final norm and head
  std::vector<ModuleId> relative;   // t5: the tables of the encoder's and the decoder's bias
  ModuleId encoder_norm;            // t5

  std::string module_name(ModuleId m) const;
  ModuleId child(ModuleId m, std::string_view name) const;  // none if it has none of that name
  std::string param_name(ParamId p) const;
  int64_t numel() const;  // elements, each tied parameter counted once
};

// Throws Error where an architecture makes no model (no layers, a size of zero, heads that do not
// divide). Sizes are expected to have been bounded by sim/config.
// What the model holds besides parameters.
Bytes buffer_bytes(const Architecture& architecture);

Model build_model(const Architecture& architecture);

// True if `name` matches `pattern`, where * stands for any run of characters, dots included.
bool matches(std::string_view pattern, std::string_view name);
// A type of its own for every parameter whose name matches the pattern.
void set_dtype(Model& model, const std::string& pattern, DType dtype);
// requires_grad_(False) on every parameter whose name matches a pattern. Throws Error at a pattern
// that matches none.
void freeze(Model& model, const std::vector<std::string>& patterns);

}  // namespace shardsim
