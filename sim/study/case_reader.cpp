#include "sim/study/case_reader.h"

#include "sim/base/error.h"

namespace shardsim {

using nlohmann::json;

void skip(const std::string& key, const json& value) { throw Skip{key + " = " + brief(value)}; }

bool unset(const json& v) {
  return v.is_null() || (v.is_boolean() && !v.get<bool>()) || (v.is_number() && v == 0) ||
         ((v.is_array() || v.is_object() || v.is_string()) && v.empty());
}

void read(const std::string& path, const json& object, const Readers& readers) {
  if (!object.is_object()) skip(path.substr(0, path.size() - 1), object);
  for (const auto& [key, value] : object.items()) {
    const auto it = readers.find(key);
    if (it != readers.end())
      it->second(value);
    else if (!unset(value))
      skip(path + key, value);
  }
}

DType dtype(const std::string& key, const json& v) {
  if (v.is_string())
    if (const auto t = parse_float_dtype(v.get<std::string>())) return *t;
  skip(key, v);
}

int64_t whole(const std::string& key, const json& v, int64_t low, int64_t high) {
  if (!v.is_number_integer() || v < low || v > high) skip(key, v);
  return v.get<int64_t>();
}

const json& list(const std::string& key, const json& v, size_t low, size_t high) {
  if (!v.is_array() || v.size() < low) skip(key, v);
  if (v.size() > high) throw Skip{key + " = a list of " + std::to_string(v.size())};
  return v;
}

std::string word(const std::string& key, const json& object, const std::string& otherwise) {
  const auto it = object.find(key);
  if (it == object.end()) return otherwise;
  if (!it->is_string()) skip(key, *it);
  return it->get<std::string>();
}

bool flag(const std::string& key, const json& v) {
  if (!v.is_boolean()) skip(key, v);
  return v.get<bool>();
}

Reshard reshard(const std::string& key, const json& v) {
  if (v.is_null()) return {};
  if (v.is_boolean()) return {v.get<bool>() ? Reshard::Kind::yes : Reshard::Kind::no, 0};
  return {Reshard::Kind::to, whole(key, v, 1, kMostRanks)};
}

LinearShape linear(const std::string& key, const json& v) {
  if (!v.is_array() || v.size() != 2) skip(key, v);
  return {whole(key, v[0], 1, kMostFeatures), whole(key, v[1], 1, kMostFeatures)};
}

Reader number(const std::string& key, int64_t& to, int64_t low, int64_t high) {
  return [key, &to, low, high](const json& v) { to = whole(key, v, low, high); };
}

Reader truth(const std::string& key, bool& to) {
  return [key, &to](const json& v) { to = flag(key, v); };
}

Reader dtype_or_null(const std::string& key, std::optional<DType>& to) {
  return [key, &to](const json& v) {
    if (!v.is_null()) to = dtype(key, v);
  };
}

Reader nothing() {
  return [](const json&) {};
}

}  // namespace shardsim
