# What an installation holds; the archives are made from it (tools/dev.d/package.py). All install rules
# are here, so that the layout can be seen at a glance; each one waits for its target, so that a partial
# build (no tools, no samples) installs what it has.
#
#   bin/memlab-run, bin/memlab-ctl, bin/memlab-top, bin/memlab-report
#   lib/libmemlab.so              not lib/<architecture>/: memlab-run looks in ../lib beside itself,
#                                 which keeps the prefix movable, and `LD_PRELOAD=libmemlab.so` finds
#                                 it by name in a package's /usr/lib
#   include/memlab/memlab.h       the optional C API
#   share/memlab/                 the documents' JSON Schemas
#   share/memlab/prometheus/      alert rules and a dashboard for the metrics of memlab-top
#   share/memlab/python/          the Python package, for programs whose environment does not have it
#   share/bash-completion/, share/zsh/, share/fish/, share/man/
#                                 completion and man pages, of all tools
#   share/doc/memlab/

include(GNUInstallDirs)

if(TARGET memlab)
    install(TARGETS memlab LIBRARY DESTINATION lib)
endif()
foreach(tool memlab-run memlab-ctl memlab-top memlab-report)
    if(TARGET ${tool})
        install(TARGETS ${tool} RUNTIME DESTINATION bin)
    endif()
endforeach()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/interpose/include/memlab" DESTINATION include
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${MEMLAB_SCHEMAS}/" DESTINATION share/memlab FILES_MATCHING PATTERN "memlab-*.schema.json")
install(DIRECTORY python/memlab DESTINATION share/memlab/python FILES_MATCHING PATTERN "*.py" PATTERN "py.typed"
        PATTERN "__pycache__" EXCLUDE)
# Where memlab-run of the build tree finds it.
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share/memlab")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/python" "${CMAKE_BINARY_DIR}/share/memlab/python" SYMBOLIC)
install(DIRECTORY samples/prometheus DESTINATION share/memlab)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION share/doc/memlab)
if(MEMLAB_HTML_LICENSES)
    install(FILES "${MEMLAB_HTML_LICENSES}" DESTINATION share/doc/memlab/licenses
            RENAME html-page.txt OPTIONAL)
endif()
install(DIRECTORY docs/ DESTINATION share/doc/memlab/docs FILES_MATCHING PATTERN "*.md")

# Completion and man pages are the tools' own words.
function(memlab_install_text name folder tool)
    set(file "${CMAKE_BINARY_DIR}/generated/share/${name}")
    list(JOIN ARGN "\" \"" arguments)
    install(CODE "
        file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/generated/share\")
        execute_process(COMMAND \"$<TARGET_FILE:${tool}>\" \"${arguments}\" OUTPUT_FILE \"${file}\"
                        COMMAND_ERROR_IS_FATAL ANY)
        file(INSTALL \"${file}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/${folder}\")")
endfunction()
if(TARGET memlab-run AND TARGET memlab-report)
    foreach(tool memlab-run memlab-ctl memlab-top memlab-report)
        set(print --completion)
        if(tool STREQUAL "memlab-report")
            set(print completion)
        endif()
        memlab_install_text(${tool} bash-completion/completions ${tool} ${print} bash)
        memlab_install_text(_${tool} zsh/site-functions ${tool} ${print} zsh)
        memlab_install_text(${tool}.fish fish/vendor_completions.d ${tool} ${print} fish)
        memlab_install_text(${tool}.1 man/man1 ${tool} ${print} man)
    endforeach()
endif()
