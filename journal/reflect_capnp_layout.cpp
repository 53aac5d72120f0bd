#include "journal/reflect_capnp_layout.h"

#include <kj/debug.h>

#include <algorithm>
#include <stdexcept>

namespace regrow::capnp_layout {

namespace {

using Which = capnp::schema::Type::Which;

const char* name_of(Which which) {
  switch (which) {
    case Which::VOID:
      return "Void";
    case Which::BOOL:
      return "Bool";
    case Which::INT8:
      return "Int8";
    case Which::INT16:
      return "Int16";
    case Which::INT32:
      return "Int32";
    case Which::INT64:
      return "Int64";
    case Which::UINT8:
      return "UInt8";
    case Which::UINT16:
      return "UInt16";
    case Which::UINT32:
      return "UInt32";
    case Which::UINT64:
      return "UInt64";
    case Which::FLOAT32:
      return "Float32";
    case Which::FLOAT64:
      return "Float64";
    case Which::TEXT:
      return "Text";
    case Which::DATA:
      return "Data";
    case Which::LIST:
      return "List";
    case Which::ENUM:
      return "an enum";
    case Which::STRUCT:
      return "a struct";
    case Which::INTERFACE:
      return "an interface";
    default:
      return "AnyPointer";
  }
}

uint8_t width_of(Which which) {
  switch (which) {
    case Which::INT8:
    case Which::UINT8:
      return 1;
    case Which::INT16:
    case Which::UINT16:
    case Which::ENUM:
      return 2;
    case Which::INT32:
    case Which::UINT32:
    case Which::FLOAT32:
      return 4;
    case Which::INT64:
    case Which::UINT64:
    case Which::FLOAT64:
      return 8;
    default:
      return 0;
  }
}

uint64_t default_bits(capnp::schema::Value::Reader value) {
  switch (value.which()) {
    case capnp::schema::Value::BOOL:
      return value.getBool();
    case capnp::schema::Value::INT8:
      return static_cast<uint8_t>(value.getInt8());
    case capnp::schema::Value::INT16:
      return static_cast<uint16_t>(value.getInt16());
    case capnp::schema::Value::INT32:
      return static_cast<uint32_t>(value.getInt32());
    case capnp::schema::Value::INT64:
      return static_cast<uint64_t>(value.getInt64());
    case capnp::schema::Value::UINT8:
      return value.getUint8();
    case capnp::schema::Value::UINT16:
      return value.getUint16();
    case capnp::schema::Value::UINT32:
      return value.getUint32();
    case capnp::schema::Value::UINT64:
      return value.getUint64();
    case capnp::schema::Value::FLOAT32:
      return std::bit_cast<uint32_t>(value.getFloat32());
    case capnp::schema::Value::FLOAT64:
      return std::bit_cast<uint64_t>(value.getFloat64());
    case capnp::schema::Value::ENUM:
      return value.getEnum();
    default:
      return 0;
  }
}

Which expected_number(const Leaf& leaf) {
  if (leaf.shape == Shape::floating) return leaf.width == 4 ? Which::FLOAT32 : Which::FLOAT64;
  switch (leaf.width) {
    case 1:
      return leaf.is_signed ? Which::INT8 : Which::UINT8;
    case 2:
      return leaf.is_signed ? Which::INT16 : Which::UINT16;
    case 4:
      return leaf.is_signed ? Which::INT32 : Which::UINT32;
    default:
      return leaf.is_signed ? Which::INT64 : Which::UINT64;
  }
}

bool check_enum(capnp::Type type, const Leaf& leaf, const std::string& where, Problems& problems) {
  if (type.isUInt8() || type.isUInt16()) return true;
  if (!type.isEnum()) {
    problems.add(where, std::string("an enum in C++, ") + name_of(type.which()) + " in the schema");
    return false;
  }
  auto enumerants = type.asEnum().getEnumerants();
  for (size_t i = 0; i < std::max<size_t>(enumerants.size(), leaf.enum_names.size()); ++i) {
    std::string ours = i < leaf.enum_names.size() ? camel_case(leaf.enum_names[i]) : "(none)";
    std::string theirs = "(none)";
    for (auto enumerant : enumerants) {
      if (enumerant.getOrdinal() == i) theirs = enumerant.getProto().getName().cStr();
    }
    if (ours != theirs) {
      problems.add(where, "enum value " + std::to_string(i) + " is " + ours + " in C++ and " +
                              theirs + " in the schema");
    }
  }
  return true;
}

}  // namespace

void start_struct(capnp::StructSchema schema, Struct& out) {
  auto proto = schema.getProto().getStruct();
  out.data_words = proto.getDataWordCount();
  out.pointer_count = proto.getPointerCount();
  out.discriminant_offset = proto.getDiscriminantOffset() * 2;
}

bool find_field(capnp::StructSchema schema, const char* member, const std::string& where,
                capnp::StructSchema::Field& out, Problems& problems) {
  std::string name = camel_case(member);
  KJ_IF_MAYBE (field, schema.findFieldByName(name.c_str())) {
    out = *field;
    return true;
  }
  problems.add(where, "no field \"" + name + "\" in the schema");
  return false;
}

void locate(capnp::StructSchema::Field field, Field& out) {
  auto proto = field.getProto();
  out.discriminant = proto.getDiscriminantValue();
  if (proto.isGroup()) {
    out.is_group = true;
    return;
  }
  auto slot = proto.getSlot();
  Which which = field.getType().which();
  out.width = width_of(which);
  out.offset = slot.getOffset() * (out.width > 0 ? out.width : 1);
  out.mask = default_bits(slot.getDefaultValue());
}

bool check_leaf(capnp::Type type, const Leaf& leaf, const std::string& where, Field& out,
                Problems& problems) {
  Which which = type.which();
  out.width = width_of(which);
  switch (leaf.shape) {
    case Shape::boolean:
      if (type.isBool()) return true;
      problems.add(where, std::string("bool in C++, ") + name_of(which) + " in the schema");
      return false;
    case Shape::integer:
    case Shape::floating:
      if (which == expected_number(leaf)) return true;
      problems.add(where, std::string(name_of(expected_number(leaf))) + " in C++, " +
                              name_of(which) + " in the schema");
      return false;
    case Shape::enumeration:
      return check_enum(type, leaf, where, problems);
    default:
      out.is_blob = type.isData();
      if (type.isText() || type.isData()) return true;
      problems.add(where, std::string("a string in C++, ") + name_of(which) + " in the schema");
      return false;
  }
}

bool check_struct_type(capnp::Type type, const std::string& where, capnp::StructSchema& out,
                       Problems& problems) {
  if (!type.isStruct()) {
    problems.add(where,
                 std::string("a struct in C++, ") + name_of(type.which()) + " in the schema");
    return false;
  }
  out = type.asStruct();
  return true;
}

bool check_list_type(capnp::Type type, const std::string& where, capnp::Type& element,
                     Problems& problems) {
  if (!type.isList()) {
    problems.add(where,
                 std::string("a vector in C++, ") + name_of(type.which()) + " in the schema");
    return false;
  }
  element = type.asList().getElementType();
  return true;
}

void report_extra_fields(capnp::StructSchema schema, const std::vector<std::string>& known,
                         bool is_union, const std::string& where, Problems& problems) {
  for (auto field : schema.getFields()) {
    std::string name = field.getProto().getName().cStr();
    bool in_union = field.getProto().getDiscriminantValue() != 0xffff;
    if (in_union == is_union && std::find(known.begin(), known.end(), name) == known.end()) {
      problems.add(where, "schema field \"" + name + "\" has no member (extra)");
    }
  }
}

void throw_mismatch(const char* type, const Problems& problems) {
  std::string text = std::string("schema and C++ differ for ") + type + ":";
  for (const auto& problem : problems.list) text += "\n  " + problem;
  throw std::logic_error(text);
}

capnp::List<capnp::AnyStruct>::Reader structs_in(capnp::AnyPointer::Reader pointer) {
  auto list = pointer.getAs<capnp::AnyList>();
  KJ_REQUIRE(list.size() == 0 || list.getElementSize() == capnp::ElementSize::INLINE_COMPOSITE,
             "damaged message: a list of something else where structs belong");
  return list.as<capnp::List<capnp::AnyStruct>>();
}

void throw_unknown_choice(uint16_t discriminant) {
  throw std::runtime_error("message of a kind that this version does not know (number " +
                           std::to_string(discriminant) + "): it was written by a newer regrow");
}

}  // namespace regrow::capnp_layout
