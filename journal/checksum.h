// XXH64, the 64-bit hash that chains the journal's records and compares states. Any thread; no
// state.
//
// Written from the published specification (xxHash, "XXH64 algorithm description"), so that a
// journal can be checked with any other implementation of it. Not cryptographic: it finds damage,
// not forgery.
//
//   chain = xxh64(message, chain);   // record after record; the first seed is 0
#pragma once

#include <cstdint>
#include <string_view>

namespace regrow {

uint64_t xxh64(std::string_view bytes, uint64_t seed = 0);

}  // namespace regrow
