// Inside journal/reflect_capnp.h: loads and stores members at the places that a layout names.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "journal/reflect_capnp_layout.h"

namespace regrow::capnp_layout {

// The sections of a struct, fetched once per struct.
struct Source {
  kj::ArrayPtr<const kj::byte> data;
  capnp::List<capnp::AnyPointer>::Reader pointers;
  explicit Source(capnp::AnyStruct::Reader s)
      : data(s.getDataSection()), pointers(s.getPointerSection()) {}
  Source() = default;
};
struct Target {
  kj::ArrayPtr<kj::byte> data;
  capnp::List<capnp::AnyPointer>::Builder pointers;
  explicit Target(capnp::AnyStruct::Builder s)
      : data(s.getDataSection()), pointers(s.getPointerSection()) {}
};

static_assert(std::endian::native == std::endian::little, "capnp data sections are little-endian");

template <class U>
U load(const Source& from, uint32_t offset, uint64_t mask) {
  U bits = 0;
  if (offset + sizeof(U) <= from.data.size())
    std::memcpy(&bits, from.data.begin() + offset, sizeof(U));
  return static_cast<U>(bits ^ static_cast<U>(mask));
}
template <class U>
void store(Target& to, uint32_t offset, uint64_t mask, U value) {
  U bits = static_cast<U>(value ^ static_cast<U>(mask));
  if (offset + sizeof(U) <= to.data.size()) std::memcpy(to.data.begin() + offset, &bits, sizeof(U));
}
template <size_t N>
using Bits = std::conditional_t<
    N == 1, uint8_t,
    std::conditional_t<N == 2, uint16_t, std::conditional_t<N == 4, uint32_t, uint64_t>>>;

template <class T>
void encode_struct(const T& value, const Struct& layout, Target& to);
template <class T>
void decode_struct(T& value, const Struct& layout, const Source& from);

inline capnp::Data::Reader as_data(const std::string& value) {
  return {reinterpret_cast<const kj::byte*>(value.data()), value.size()};
}
inline capnp::Text::Reader as_text(const std::string& value) {
  return {value.c_str(), value.size()};
}
template <class Blob>  // Text or Data
void assign_bytes(std::string& value, const Blob& blob) {
  value.assign(reinterpret_cast<const char*>(blob.begin()), blob.size());
}

// The capnp type whose list holds T on the wire.
template <class E>
using ListElement = std::conditional_t<std::is_enum_v<E>, uint16_t,
                                       std::conditional_t<std::is_same_v<E, bool>, bool, E>>;

template <class E>
void encode_list(const std::vector<E>& value, const Field& field, capnp::AnyPointer::Builder to) {
  using P = Plain<E>;
  auto count = static_cast<unsigned>(value.size());
  constexpr Shape shape = shape_of<E>();
  if constexpr (shape == Shape::record || shape == Shape::choice) {
    auto list =
        to.initAsListOfAnyStruct(field.nested->data_words, field.nested->pointer_count, count);
    for (unsigned i = 0; i < count; ++i) {
      Target element(list[i]);
      encode_struct<P>(value[i], *field.nested, element);
    }
  } else if constexpr (shape == Shape::text) {
    if (field.is_blob) {
      auto list = to.initAs<capnp::List<capnp::Data>>(count);
      for (unsigned i = 0; i < count; ++i) list.set(i, as_data(plain(value[i])));
    } else {
      auto list = to.initAs<capnp::List<capnp::Text>>(count);
      for (unsigned i = 0; i < count; ++i) list.set(i, as_text(plain(value[i])));
    }
  } else {
    if (std::is_enum_v<P> && field.width == 1) {
      auto list = to.initAs<capnp::List<uint8_t>>(count);
      for (unsigned i = 0; i < count; ++i) list.set(i, static_cast<uint8_t>(plain(value[i])));
      return;
    }
    auto list = to.initAs<capnp::List<ListElement<P>>>(count);
    for (unsigned i = 0; i < count; ++i) list.set(i, static_cast<ListElement<P>>(plain(value[i])));
  }
}

template <class E>
void decode_list(std::vector<E>& value, const Field& field, capnp::AnyPointer::Reader from) {
  using P = Plain<E>;
  constexpr Shape shape = shape_of<E>();
  auto assign = [&](auto list, auto convert) {
    value.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i) convert(value[i], list[i]);
  };
  if constexpr (shape == Shape::record || shape == Shape::choice) {
    assign(structs_in(from), [&](E& element, capnp::AnyStruct::Reader raw) {
      decode_struct<P>(element, *field.nested, Source(raw));
    });
  } else if constexpr (shape == Shape::text) {
    auto convert = [](E& element, const auto& raw) { assign_bytes(plain(element), raw); };
    if (field.is_blob)
      assign(from.getAs<capnp::List<capnp::Data>>(), convert);
    else
      assign(from.getAs<capnp::List<capnp::Text>>(), convert);
  } else if constexpr (std::is_same_v<P, bool>) {
    auto list = from.getAs<capnp::List<bool>>();
    value.assign(list.begin(), list.end());
  } else {
    auto convert = [](E& element, auto raw) { plain(element) = static_cast<P>(raw); };
    if (std::is_enum_v<P> && field.width == 1) {
      assign(from.getAs<capnp::List<uint8_t>>(), convert);
    } else {
      assign(from.getAs<capnp::List<ListElement<P>>>(), convert);
    }
  }
}

template <class T>
void encode_member(const T& value, const Field& field, Target& to) {
  using P = Plain<T>;
  constexpr Shape shape = shape_of<T>();
  const P& raw = plain(value);
  if constexpr (shape == Shape::boolean) {
    if (field.offset / 8 < to.data.size()) {
      auto bit = static_cast<kj::byte>(1u << (field.offset % 8));
      kj::byte& byte = to.data[field.offset / 8];
      byte = (raw != (field.mask != 0)) ? byte | bit : byte & ~bit;
    }
  } else if constexpr (shape == Shape::integer || shape == Shape::floating) {
    using U = Bits<sizeof(P)>;
    store<U>(to, field.offset, field.mask, std::bit_cast<U>(raw));
  } else if constexpr (shape == Shape::enumeration) {
    if (field.width == 1)
      store<uint8_t>(to, field.offset, field.mask, static_cast<uint8_t>(raw));
    else
      store<uint16_t>(to, field.offset, field.mask, static_cast<uint16_t>(raw));
  } else if constexpr (shape == Shape::text) {
    if (raw.empty()) return;
    if (field.is_blob)
      to.pointers[field.offset].template setAs<capnp::Data>(as_data(raw));
    else
      to.pointers[field.offset].template setAs<capnp::Text>(as_text(raw));
  } else if constexpr (shape == Shape::list) {
    if (!raw.empty()) encode_list(raw, field, to.pointers[field.offset]);
  } else if (field.is_group) {
    encode_struct<P>(raw, *field.nested, to);
  } else if (!field.is_void) {
    const Struct& nested = *field.nested;
    Target inner(
        to.pointers[field.offset].initAsAnyStruct(nested.data_words, nested.pointer_count));
    encode_struct<P>(raw, nested, inner);
  }
}

template <class T>
void decode_member(T& value, const Field& field, const Source& from) {
  using P = Plain<T>;
  constexpr Shape shape = shape_of<T>();
  P& raw = plain(value);
  if constexpr (shape == Shape::boolean) {
    bool bit = field.offset / 8 < from.data.size() &&
               ((from.data[field.offset / 8] >> (field.offset % 8)) & 1) != 0;
    raw = bit != (field.mask != 0);
  } else if constexpr (shape == Shape::integer || shape == Shape::floating) {
    raw = std::bit_cast<P>(load<Bits<sizeof(P)>>(from, field.offset, field.mask));
  } else if constexpr (shape == Shape::enumeration) {
    raw = static_cast<P>(field.width == 1 ? load<uint8_t>(from, field.offset, field.mask)
                                          : load<uint16_t>(from, field.offset, field.mask));
  } else if (field.is_group) {
    if constexpr (shape == Shape::record || shape == Shape::choice) {
      decode_struct<P>(raw, *field.nested, from);
    }
  } else if (field.is_void) {
    raw = P{};
  } else {
    bool present = field.offset < from.pointers.size();
    if constexpr (shape == Shape::text) {
      if (!present)
        raw.clear();
      else if (field.is_blob)
        assign_bytes(raw, from.pointers[field.offset].template getAs<capnp::Data>());
      else
        assign_bytes(raw, from.pointers[field.offset].template getAs<capnp::Text>());
    } else if constexpr (shape == Shape::list) {
      if (present)
        decode_list(raw, field, from.pointers[field.offset]);
      else
        raw.clear();
    } else {
      Source inner;
      if (present) inner = Source(from.pointers[field.offset].template getAs<capnp::AnyStruct>());
      decode_struct<P>(raw, *field.nested, inner);
    }
  }
}

template <class V, size_t... I>
void decode_choice(V& value, const Struct& layout, const Source& from, std::index_sequence<I...>) {
  auto discriminant = load<uint16_t>(from, layout.discriminant_offset, 0);
  constexpr bool kHasUnknown = std::is_same_v<std::variant_alternative_t<0, V>, std::monostate>;
  auto matches = [&]<size_t J>() {
    if constexpr (kHasUnknown && J == 0)
      return false;
    else {
      if (layout.fields[J].discriminant != discriminant) return false;
      decode_member(value.template emplace<J>(), layout.fields[J], from);
      return true;
    }
  };
  if (!(matches.template operator()<I>() || ...)) {
    if constexpr (kHasUnknown)
      value = std::monostate{};
    else
      throw_unknown_choice(discriminant);
  }
}

template <class T>
void encode_struct(const T& value, const Struct& layout, Target& to) {
  if constexpr (is_variant<T>) {
    const Field& field = layout.fields[value.index()];
    std::visit(
        [&](const auto& choice) {
          if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(choice)>, std::monostate>) {
            store<uint16_t>(to, layout.discriminant_offset, 0, field.discriminant);
            encode_member(choice, field, to);
          }
        },
        value);
  } else {
    const Field* field = layout.fields.data();
    T::visit_fields(value,
                    [&](const char*, const auto& member) { encode_member(member, *field++, to); });
  }
}

template <class T>
void decode_struct(T& value, const Struct& layout, const Source& from) {
  if constexpr (is_variant<T>) {
    decode_choice(value, layout, from, std::make_index_sequence<std::variant_size_v<T>>{});
  } else {
    const Field* field = layout.fields.data();
    T::visit_fields(value,
                    [&](const char*, auto& member) { decode_member(member, *field++, from); });
  }
}

}  // namespace regrow::capnp_layout
