# What an installation holds, and the archives made from it. All install rules are here, so that the
# layout can be seen at a glance; each one waits for its target, so that a partial build (no tools, no
# samples) installs what it has.
#
#   bin/memlab-run, bin/memlab-report
#   lib/libmemlab.so              not lib/<architecture>/: memlab-run looks in ../lib beside itself,
#                                 which keeps the prefix movable, and `LD_PRELOAD=libmemlab.so` finds
#                                 it by name in a package's /usr/lib
#   include/memlab/memlab.h       the optional C API
#   share/memlab/                 the report's JSON Schema
#   share/doc/memlab/

include(GNUInstallDirs)

if(TARGET memlab)
    install(TARGETS memlab LIBRARY DESTINATION lib)
endif()
foreach(tool memlab-run memlab-report)
    if(TARGET ${tool})
        install(TARGETS ${tool} RUNTIME DESTINATION bin)
    endif()
endforeach()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/interpose/include/memlab" DESTINATION include
        FILES_MATCHING PATTERN "*.h")
install(FILES report/schema/memlab-report-v1.schema.json report/schema/memlab-run-v1.schema.json
              report/schema/memlab-run-summary-v1.schema.json report/schema/memlab-merge-v1.schema.json
              report/schema/memlab-run-diff-v1.schema.json
        DESTINATION share/memlab)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION share/doc/memlab)
if(MEMLAB_HTML_LICENSES)
    install(FILES "${MEMLAB_HTML_LICENSES}" DESTINATION share/doc/memlab RENAME html-page-licenses.txt)
endif()
install(DIRECTORY docs/ DESTINATION share/doc/memlab/docs FILES_MATCHING PATTERN "*.md")

set(CPACK_PACKAGE_NAME memlab)
set(CPACK_PACKAGE_VENDOR "memlab")
set(CPACK_PACKAGE_CONTACT "the memlab maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
    "Preload libmemlab.so into any CUDA program to serve its GPU memory from a caching pool and to
record every allocation with its call site; memlab-report shows the peaks, the timeline, the
fragmentation, what holds the memory and what was never freed.")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME "memlab-${PROJECT_VERSION}-linux-x86_64")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR TGZ DEB)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
# Dependencies are read off the programs where Debian's own tool is there to do it.
find_program(MEMLAB_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(MEMLAB_SHLIBDEPS)
if(MEMLAB_SHLIBDEPS)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
else()
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libstdc++6, libdw1")
endif()
include(CPack)
