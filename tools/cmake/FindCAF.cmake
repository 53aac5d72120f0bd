# Finds the core of CAF, the C++ Actor Framework. Debian and Ubuntu ship headers and a shared library
# but no CMake configuration.
#
#   find_package(CAF 0.17 REQUIRED)      ->  target CAF::core, CAF_VERSION
#
# CAF 0.18 changed the API; regrow is written for 0.17, so a newer one is refused here with a sentence
# instead of a page of template errors.
find_path(CAF_INCLUDE_DIR NAMES caf/config.hpp)
find_library(CAF_CORE_LIBRARY NAMES caf_core)
mark_as_advanced(CAF_INCLUDE_DIR CAF_CORE_LIBRARY)

if(CAF_INCLUDE_DIR)
  # config.hpp (0.17):  #define CAF_VERSION 1706   = major * 10000 + minor * 100 + patch
  # 0.18 moved the number to build_config.hpp.
  foreach(header config.hpp detail/build_config.hpp)
    if(NOT CAF_VERSION AND EXISTS "${CAF_INCLUDE_DIR}/caf/${header}")
      file(STRINGS "${CAF_INCLUDE_DIR}/caf/${header}" lines
           REGEX "^#[ \t]*define[ \t]+CAF_VERSION[ \t]+[0-9]+")
      if(lines MATCHES "CAF_VERSION[ \t]+([0-9]+)")
        math(EXPR major "${CMAKE_MATCH_1} / 10000")
        math(EXPR minor "${CMAKE_MATCH_1} / 100 % 100")
        math(EXPR patch "${CMAKE_MATCH_1} % 100")
        set(CAF_VERSION "${major}.${minor}.${patch}")
      endif()
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF
  REQUIRED_VARS CAF_CORE_LIBRARY CAF_INCLUDE_DIR
  VERSION_VAR CAF_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "install libcaf-dev (tools/setup does)")

if(CAF_FOUND AND NOT TARGET CAF::core)
  find_package(Threads REQUIRED)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES
    IMPORTED_LOCATION "${CAF_CORE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
