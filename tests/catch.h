// Catch2 in both its versions: Debian 12 ships v2 (one header), Debian 13 and Ubuntu 24.04 v3.
//
//   #include "tests/catch.h"
//   TEST_CASE("a stale exit report changes nothing") { REQUIRE(...); }
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
// Names that v3 moved into a namespace.
using Catch::Approx;
#else
#define CATCH_CONFIG_ENABLE_CHRONO_STRINGMAKER
#include <catch2/catch.hpp>
#endif
