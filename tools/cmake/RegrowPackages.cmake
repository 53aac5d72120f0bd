# Third-party libraries, under names that do not depend on the distribution:
#   CAF::core  regrow::rocksdb  CapnProto::*  spdlog::spdlog  regrow::yaml  nlohmann_json::nlohmann_json
#   CLI11::CLI11  regrow::readline  regrow::re2  OpenSSL::SSL  Threads::Threads  Catch2::Catch2 (tests)
# tools/setup installs all of them.

# regrow_alias(<ours> <theirs>...): <ours> forwards to the first target of the list that exists.
function(regrow_alias ours)
  foreach(theirs IN LISTS ARGN)
    if(TARGET ${theirs})
      add_library(${ours} INTERFACE IMPORTED GLOBAL)
      target_link_libraries(${ours} INTERFACE ${theirs})
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${ours}: the package defines none of: ${ARGN}")
endfunction()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(CAF 0.17...<0.18 REQUIRED)
find_package(CapnProto CONFIG REQUIRED)
# Debian's configuration names both programs by a path that does not exist.
find_program(REGROW_CAPNP capnp REQUIRED)
find_program(REGROW_CAPNPC_CXX capnpc-c++ REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)

find_package(RocksDB CONFIG REQUIRED)
regrow_alias(regrow::rocksdb RocksDB::rocksdb-shared RocksDB::rocksdb)

find_package(yaml-cpp CONFIG REQUIRED)
regrow_alias(regrow::yaml yaml-cpp::yaml-cpp yaml-cpp)

# Debian 12's re2 has no CMake configuration.
find_package(re2 CONFIG QUIET)
if(NOT re2_FOUND)
  pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
endif()
regrow_alias(regrow::re2 re2::re2 PkgConfig::RE2)

pkg_check_modules(READLINE REQUIRED IMPORTED_TARGET readline)
regrow_alias(regrow::readline PkgConfig::READLINE)

if(REGROW_TESTS)
  find_package(Catch2 3 CONFIG QUIET)
  if(NOT Catch2_FOUND)
    find_package(Catch2 2 CONFIG REQUIRED)
  endif()
endif()
