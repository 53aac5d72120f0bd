// Inside journal/reflect_capnp.h: where each member of a C++ type lives in a Cap'n Proto struct,
// found by name once, and every way in which the two do not fit.
#pragma once

#include <capnp/any.h>
#include <capnp/schema.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "journal/reflect_common.h"

namespace regrow::capnp_layout {

// Where one member lives. What the numbers mean follows from the C++ type.
struct Struct;
struct Field {
  uint32_t offset = 0;  // bytes in the data section; bits for a bool; index for pointers
  uint8_t width = 0;    // bytes, for numbers and enums
  uint64_t mask = 0;    // numbers are stored XORed with the schema's default
  bool is_void = false;
  bool is_group = false;  // shares the sections of its parent
  bool is_blob = false;   // Data rather than Text
  uint16_t discriminant = 0;
  std::unique_ptr<Struct> nested;  // of a struct, group, union or list element
};
struct Struct {
  uint16_t data_words = 0;
  uint16_t pointer_count = 0;
  uint32_t discriminant_offset = 0;  // bytes
  std::vector<Field> fields;         // as visit_fields visits them, or as the variant lists them
};

enum class Shape : uint8_t { boolean, integer, floating, enumeration, text, list, record, choice };

template <class T>
constexpr Shape shape_of() {
  using P = Plain<T>;
  if constexpr (std::is_same_v<P, bool>)
    return Shape::boolean;
  else if constexpr (NamedEnum<P>)
    return Shape::enumeration;
  else if constexpr (std::is_integral_v<P>)
    return Shape::integer;
  else if constexpr (std::is_floating_point_v<P>)
    return Shape::floating;
  else if constexpr (std::is_same_v<P, std::string>)
    return Shape::text;
  else if constexpr (is_vector<P>)
    return Shape::list;
  else if constexpr (is_variant<P>)
    return Shape::choice;
  else {
    static_assert(Reflected<P>, "not a type that can be reflected");
    return Shape::record;
  }
}

// What the non-template part has to know about a C++ type to compare it with a schema.
struct Leaf {
  Shape shape;
  uint8_t width;
  bool is_signed;
  std::vector<std::string_view> enum_names;
};
template <class T>
Leaf leaf_of() {
  using P = Plain<T>;
  constexpr Shape shape = shape_of<T>();
  Leaf leaf{shape, 0, false, {}};
  if constexpr (shape == Shape::integer || shape == Shape::floating) {
    leaf.width = sizeof(P);
    leaf.is_signed = std::is_signed_v<P>;
  } else if constexpr (shape == Shape::enumeration) {
    leaf.enum_names.assign(enum_names(P{}).begin(), enum_names(P{}).end());
  }
  return leaf;
}

// Collects differences between a C++ type and a schema, with the path to each.
struct Problems {
  std::vector<std::string> list;
  void add(const std::string& where, const std::string& what) {
    list.push_back(where + ": " + what);
  }
};

void start_struct(capnp::StructSchema schema, Struct& out);
// Finds the field of that name; adds a problem and returns false if there is none.
bool find_field(capnp::StructSchema schema, const char* member, const std::string& where,
                capnp::StructSchema::Field& out, Problems& problems);
// Offset, width and default of a field, whatever its type.
void locate(capnp::StructSchema::Field field, Field& out);
bool check_leaf(capnp::Type type, const Leaf& leaf, const std::string& where, Field& out,
                Problems& problems);
bool check_struct_type(capnp::Type type, const std::string& where, capnp::StructSchema& out,
                       Problems& problems);
bool check_list_type(capnp::Type type, const std::string& where, capnp::Type& element,
                     Problems& problems);
void report_extra_fields(capnp::StructSchema schema, const std::vector<std::string>& known,
                         bool is_union, const std::string& where, Problems& problems);
[[noreturn]] void throw_mismatch(const char* type, const Problems& problems);
[[noreturn]] void throw_unknown_choice(uint16_t discriminant);
// A list whose elements can be read as structs, or kj::Exception.
capnp::List<capnp::AnyStruct>::Reader structs_in(capnp::AnyPointer::Reader pointer);

template <class T>
std::unique_ptr<Struct> build(capnp::StructSchema schema, const std::string& where,
                              Problems& problems);

template <class T>
void build_type(capnp::Type type, const std::string& where, Field& out, Problems& problems) {
  constexpr Shape shape = shape_of<T>();
  if constexpr (shape == Shape::record || shape == Shape::choice) {
    if constexpr (shape == Shape::record) {
      if (type.isVoid()) {
        out.is_void = true;
        out.nested = std::make_unique<Struct>();
        size_t count = 0;
        Plain<T> probe{};
        Plain<T>::visit_fields(probe, [&](const char*, auto&) { ++count; });
        if (count > 0) problems.add(where, "Void in the schema, but the struct has fields");
        return;
      }
    }
    capnp::StructSchema schema;
    if (check_struct_type(type, where, schema, problems)) {
      out.nested = build<Plain<T>>(schema, where, problems);
    }
  } else if constexpr (shape == Shape::list) {
    using E = typename Plain<T>::value_type;
    static_assert(!is_vector<E>, "lists of lists are not supported");
    capnp::Type element;
    if (check_list_type(type, where, element, problems))
      build_type<E>(element, where, out, problems);
  } else {
    check_leaf(type, leaf_of<T>(), where, out, problems);
  }
}

template <class T>
Field build_field(capnp::StructSchema::Field field, const std::string& where, Problems& problems) {
  Field out;
  locate(field, out);
  build_type<T>(field.getType(), where, out, problems);
  return out;
}

template <class V, size_t... I>
void build_choices(capnp::StructSchema schema, const std::string& where, Struct& out,
                   Problems& problems, std::index_sequence<I...>) {
  std::vector<std::string> known;
  auto one = [&]<class A>(std::type_identity<A>) {
    if constexpr (std::is_same_v<A, std::monostate>) {
      out.fields.emplace_back();
    } else {
      capnp::StructSchema::Field field;
      std::string path = where + "." + A::kTypeName;
      known.push_back(camel_case(A::kTypeName));
      if (find_field(schema, A::kTypeName, path, field, problems)) {
        if (field.getProto().getDiscriminantValue() == 0xffff) {
          problems.add(path, "is not a member of the union");
        }
        out.fields.push_back(build_field<A>(field, path, problems));
      }
    }
  };
  (one(std::type_identity<std::variant_alternative_t<I, V>>{}), ...);
  report_extra_fields(schema, known, true, where, problems);
}

template <class T>
std::unique_ptr<Struct> build(capnp::StructSchema schema, const std::string& where,
                              Problems& problems) {
  auto out = std::make_unique<Struct>();
  start_struct(schema, *out);
  if constexpr (is_variant<T>) {
    build_choices<T>(schema, where, *out, problems,
                     std::make_index_sequence<std::variant_size_v<T>>{});
  } else {
    std::vector<std::string> known;
    T probe{};
    T::visit_fields(probe, [&](const char* name, auto& member) {
      capnp::StructSchema::Field field;
      std::string path = where + "." + name;
      known.push_back(camel_case(name));
      if (find_field(schema, name, path, field, problems)) {
        out->fields.push_back(
            build_field<std::remove_cvref_t<decltype(member)>>(field, path, problems));
      }
    });
    report_extra_fields(schema, known, false, where, problems);
  }
  return out;
}

template <class T>
constexpr const char* type_name() {
  if constexpr (is_variant<T>)
    return "variant";
  else
    return T::kTypeName;
}

// Built at first use, then constant.
template <class T, class Schema>
const Struct& layout_of() {
  static const std::unique_ptr<Struct> layout = [] {
    Problems problems;
    auto built = build<T>(capnp::Schema::from<Schema>(), type_name<T>(), problems);
    // A schema may know more than we do (a newer one, a retired field): only what is missing is
    // fatal.
    std::erase_if(problems.list, [](const std::string& p) { return p.ends_with("(extra)"); });
    if (!problems.list.empty()) throw_mismatch(type_name<T>(), problems);
    return built;
  }();
  return *layout;
}

}  // namespace regrow::capnp_layout
