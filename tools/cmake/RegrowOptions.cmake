# Compiler flags of our own code. Targets take them by linking regrow_options (never global flags, so
# that the shim can stay static and small whatever the rest is built with).

option(REGROW_TESTS "Build the tests" ON)
option(REGROW_WERROR "Treat warnings as errors" ON)
option(REGROW_CCACHE "Use ccache when it is installed" ON)
option(REGROW_PCH "Precompile the heavy third-party headers" ON)
set(REGROW_SANITIZE "" CACHE STRING "Empty, address (with undefined behaviour) or thread")
set_property(CACHE REGROW_SANITIZE PROPERTY STRINGS "" address thread)
set(REGROW_LINKER "auto" CACHE STRING "auto, mold, lld or default")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(THREADS_PREFER_PTHREAD_FLAG ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# What the tests run: quick to build, asserts on.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

add_library(regrow_warnings INTERFACE)
# Designated initializers leave members out on purpose.
# GCC cannot see through kj::Maybe and takes its unset value for used.
target_compile_options(regrow_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  -Wno-maybe-uninitialized)
if(REGROW_WERROR)
  target_compile_options(regrow_warnings INTERFACE -Werror)
endif()

add_library(regrow_options INTERFACE)
target_link_libraries(regrow_options INTERFACE regrow_warnings)
target_include_directories(regrow_options INTERFACE "${PROJECT_SOURCE_DIR}")

if(REGROW_SANITIZE STREQUAL "address")
  # `null` is off for CAF's init_fun_factory.hpp, `vptr` for libraries built without type information.
  set(flags -fsanitize=address,undefined -fno-sanitize=null,vptr -fno-sanitize-recover=all
            -fno-omit-frame-pointer)
elseif(REGROW_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(REGROW_SANITIZE)
  message(FATAL_ERROR "REGROW_SANITIZE is \"${REGROW_SANITIZE}\"; it knows address and thread")
else()
  set(flags)
endif()
if(flags AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's flow analysis loses its way in instrumented code and warns about the standard library.
  list(APPEND flags -Wno-maybe-uninitialized)
endif()
target_compile_options(regrow_options INTERFACE ${flags})
target_link_options(regrow_options INTERFACE ${flags})

if(REGROW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE_PROGRAM ccache)
  if(CCACHE_PROGRAM)
    # Sloppiness as ccache asks for with precompiled headers; base directory so that two clones share.
    set(launcher "${CMAKE_COMMAND}" -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 "${CCACHE_PROGRAM}")
    set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(regrow_options INTERFACE -fpch-preprocess)
    endif()
  endif()
endif()

include(CheckLinkerFlag)
if(REGROW_LINKER STREQUAL "auto")
  foreach(linker mold lld)
    find_program(REGROW_LINKER_${linker} NAMES ${linker} ld.${linker})
    if(REGROW_LINKER_${linker})
      check_linker_flag(CXX -fuse-ld=${linker} REGROW_CAN_LINK_WITH_${linker})
      if(REGROW_CAN_LINK_WITH_${linker})
        add_link_options(-fuse-ld=${linker})
        break()
      endif()
    endif()
  endforeach()
elseif(NOT REGROW_LINKER STREQUAL "default")
  add_link_options(-fuse-ld=${REGROW_LINKER})
endif()
