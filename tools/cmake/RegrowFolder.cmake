# One target per top-level folder, and C++ from the folder's Cap'n Proto schemas.

# Generated code lands here and is included from the root like ours: "journal/schema/event.capnp.h".
set(REGROW_GENERATED_DIR "${PROJECT_BINARY_DIR}/gen")

# regrow_capnp(<target> <schema>...) compiles schemas into <target>. A schema may import the schemas of
# other folders from the root: using Event = import "/journal/schema/event.capnp".Event;
function(regrow_capnp target)
  # Any schema may import any other; there are few, so each depends on all.
  file(GLOB all_schemas CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/*/schema/*.capnp")
  foreach(schema IN LISTS ARGN)
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${schema}")
    set(source "${REGROW_GENERATED_DIR}/${name}.c++")
    set(header "${REGROW_GENERATED_DIR}/${name}.h")
    add_custom_command(
      OUTPUT "${source}" "${header}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${REGROW_GENERATED_DIR}"
      COMMAND "${REGROW_CAPNP}" compile "--src-prefix=${PROJECT_SOURCE_DIR}"
              "-I${PROJECT_SOURCE_DIR}" "-o${REGROW_CAPNPC_CXX}:${REGROW_GENERATED_DIR}" "${schema}"
      DEPENDS ${all_schemas} VERBATIM
      COMMENT "Cap'n Proto ${name}")
    set_source_files_properties("${source}" PROPERTIES
      COMPILE_OPTIONS "-w" SKIP_PRECOMPILE_HEADERS ON GENERATED ON)
    target_sources(${target} PRIVATE "${source}" "${header}")
  endforeach()
  target_include_directories(${target} SYSTEM PUBLIC "${REGROW_GENERATED_DIR}")
  target_link_libraries(${target} PUBLIC CapnProto::capnp)
endfunction()

# regrow_folder(<name> [dependency...]) makes target regrow_<name> from every *.cpp below the current
# folder (but examples/ and rank_client/, which are programs and a library of their own) and from
# schema/*.capnp. A folder without a source yet becomes an interface library.
function(regrow_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/(examples|rank_client)/")
  file(GLOB schemas CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/schema/*.capnp")

  set(target regrow_${name})
  if(sources OR schemas)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC regrow_options ${ARGN})
    if(schemas)
      regrow_capnp(${target} ${schemas})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE regrow_options ${ARGN})
  endif()
endfunction()

# regrow_pch(<target> <header>...) precompiles headers for a target that has sources.
function(regrow_pch target)
  get_target_property(type ${target} TYPE)
  if(REGROW_PCH AND NOT type STREQUAL "INTERFACE_LIBRARY")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
