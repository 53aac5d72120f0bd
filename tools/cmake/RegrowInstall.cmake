# cmake --install build/release --prefix /usr/local
#
#   bin/regrow   libexec/regrow/regrow-shim   lib/systemd/system/*.service   share/doc/regrow/
# The rank library installs itself (transport/rank_client/CMakeLists.txt).

if(TARGET regrow)
  install(TARGETS regrow RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(TARGET regrow-shim)
  install(TARGETS regrow-shim RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/regrow")
endif()

# The units name the program by the prefix that is known only when it is installed.
foreach(unit controller agent)
  install(CODE "
    set(CMAKE_INSTALL_FULL_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    set(CMAKE_INSTALL_FULL_DOCDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
    configure_file(\"${PROJECT_SOURCE_DIR}/tools/systemd/regrow-${unit}.service\"
                   \"${PROJECT_BINARY_DIR}/systemd/regrow-${unit}.service\" @ONLY)")
  install(FILES "${PROJECT_BINARY_DIR}/systemd/regrow-${unit}.service"
          DESTINATION lib/systemd/system)
endforeach()

install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs")
install(DIRECTORY recipes/examples DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        PATTERN "__pycache__" EXCLUDE)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
