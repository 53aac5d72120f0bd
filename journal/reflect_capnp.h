// Converts any reflected struct (REGROW_FIELDS) to and from a Cap'n Proto struct that has a field
// for each of its members, under the camelCase name.
//
//   struct Event { uint64_t seq; Time time; std::vector<EnvVar> env; REGROW_FIELDS(...) };
//   schema:  struct Event { seq @0 :UInt64; time @1 :Int64; env @2 :List(EnvVar); }
//
//   encode(event, message.initRoot<schema::Event>());
//   Event back = decode<Event>(message.getRoot<schema::Event>());
//
//   bool, integers, double   the same type and width
//   REGROW_ENUM              an enum with the same names in the same order, or UInt8, or UInt16
//   StrongId, Duration, Time, EntityId    what they wrap (Int64 microseconds, Text)
//   std::string              Text or Data. Bytes are kept as they are, valid UTF-8 or not
//   std::vector<T>           List(T)
//   reflected struct         struct or group
//   std::variant<A, B>       a struct or group whose union has members "a" and "b", named after the
//                            types; an alternative without fields may be Void. A first alternative
//                            std::monostate takes what a newer writer wrote and we do not know.
//
// A field that an older writer did not have reads as the C++ member's own default only if that is
// also the schema's default: write non-zero defaults in both.
//
// Names are looked up once per (C++ type, schema); after that a field is a load and a store. Any
// thread. Throws std::logic_error if the schema does not fit (check_schema says why: test it), and
// kj::Exception for damaged messages.
#pragma once

#include <capnp/any.h>
#include <capnp/schema.h>

#include <string>
#include <type_traits>
#include <vector>

#include "journal/reflect_capnp_layout.h"
#include "journal/reflect_capnp_value.h"

namespace regrow {

// Writes `value` into a fresh builder of a generated struct type.
template <class T, class Builder>
void encode(const T& value, Builder&& to) {
  using Schema = capnp::FromBuilder<std::remove_cvref_t<Builder>>;
  capnp_layout::Target target{capnp::AnyStruct::Builder(kj::mv(to))};
  capnp_layout::encode_struct<T>(value, capnp_layout::layout_of<T, Schema>(), target);
}

template <class T, class Reader>
void decode_into(T& value, const Reader& from) {
  using Schema = capnp::FromReader<Reader>;
  capnp_layout::decode_struct<T>(value, capnp_layout::layout_of<T, Schema>(),
                                 capnp_layout::Source(capnp::AnyStruct::Reader(Reader(from))));
}
template <class T, class Reader>
T decode(const Reader& from) {
  T value{};
  decode_into(value, from);
  return value;
}

// A whole list at once. `init` makes the list builder for a size:
//   encode_all(reports, [&](unsigned n) { return params.initReports(n); });
template <class T, class Init>
void encode_all(const std::vector<T>& values, Init&& init) {
  auto list = init(static_cast<unsigned>(values.size()));
  for (unsigned i = 0; i < list.size(); ++i) encode(values[i], list[i]);
}
template <class T, class ListReader>
std::vector<T> decode_all(const ListReader& list) {
  std::vector<T> values(list.size());
  for (unsigned i = 0; i < list.size(); ++i) decode_into(values[i], list[i]);
  return values;
}

// Every way in which T and the schema differ, one sentence each; empty if they match. Schema fields
// that T does not have end in "(extra)".
template <class T>
std::vector<std::string> check_schema(capnp::StructSchema schema) {
  capnp_layout::Problems problems;
  capnp_layout::build<T>(schema, capnp_layout::type_name<T>(), problems);
  return problems.list;
}

}  // namespace regrow
