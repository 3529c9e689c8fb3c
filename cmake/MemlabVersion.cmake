# Writes the source with memlab's version, if it is another one than before.
#
#   cmake -DSOURCE=FOLDER -DFALLBACK=1.2.3 -DGIT=PROGRAM -DOUTPUT=FILE -P MemlabVersion.cmake
#
# The version is that of the newest tag v1.2.3 behind the commit in SOURCE: 1.2.3 at the tag itself, 1.2.3+4.g0123abc
# four commits later, which Semantic Versioning, Debian and PEP 440 read alike. Without a tag (a shallow clone), a
# repository (an archive) or git it is FALLBACK, the version of project().
cmake_minimum_required(VERSION 3.25)

set(version "${FALLBACK}")
# A repository around an unpacked archive is another project's.
if(GIT AND EXISTS "${SOURCE}/.git")
    # An explicit repository may belong to another user, as in a container.
    execute_process(
        COMMAND "${GIT}" "--git-dir=${SOURCE}/.git" describe --tags --abbrev=7 --match "v[0-9]*.[0-9]*.[0-9]*"
                --exclude "*-*"
        OUTPUT_VARIABLE described RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0 AND described MATCHES "^v([0-9]+\\.[0-9]+\\.[0-9]+)(-([0-9]+)-(g[0-9a-f]+))?$")
        set(version "${CMAKE_MATCH_1}")
        if(CMAKE_MATCH_2)
            string(APPEND version "+${CMAKE_MATCH_3}.${CMAKE_MATCH_4}")
        endif()
    endif()
endif()

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "own_version.hpp"

const char* const memlab::own_version = "@version@";
]])
