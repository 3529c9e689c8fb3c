# What every memlab target is compiled with, and the two ways to declare one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
# Line tables and functions, no variables: what stack traces need, for a third less time to compile.
# The debug preset has all of it.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# For the samples and the GPU suite; without nvcc they are not built.
include(CheckLanguage)
if(NOT MEMLAB_FUZZ)
    check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
        # Machine code for Hopper, PTX that every other supported GPU compiles at load.
        set(CMAKE_CUDA_ARCHITECTURES "75-virtual;90-real")
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endif()

# Several sources of a target are compiled as one: their headers are read once, not for each. Names
# in unnamed namespaces must differ within a target. clang-tidy's build is without (tools/dev lint).
option(CMAKE_UNITY_BUILD "Compile the sources of a target in batches" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Free memory only above 1 GiB, which no source here reaches by much: 8 % less time, and the same code.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes what a batch includes for headers.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

find_program(MEMLAB_CCACHE ccache)
if(MEMLAB_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER "${MEMLAB_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${MEMLAB_CCACHE}")
endif()

# CMake 3.25's FindCUDAToolkit sets a property on this target without asking whether the toolkit still
# has the library; CUDA 13 does not, and configuring would end there. Nothing links it.
if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()

# Scripts of the tests need jsonschema. A virtual environment in front of the system's Python need
# not know it, so the interpreter is chosen by that (tools/dev.d/packages.sh looks at the same two).
if(NOT Python3_EXECUTABLE)
    foreach(candidate python3 /usr/bin/python3)
        execute_process(COMMAND "${candidate}" -c "import jsonschema, sys; print(sys.executable)"
                        OUTPUT_VARIABLE found RESULT_VARIABLE result ERROR_QUIET
                        OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(result EQUAL 0)
            set(Python3_EXECUTABLE "${found}" CACHE FILEPATH "A Python that has jsonschema")
            break()
        endif()
    endforeach()
endif()

add_library(memlab_build_flags INTERFACE)
target_include_directories(memlab_build_flags INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(memlab_build_flags INTERFACE
    # Frame pointers cost nothing measurable here and keep our own frames unwindable everywhere.
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wconversion -Werror -fno-omit-frame-pointer
                                -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)

# What becomes part of libmemlab.so runs on the program's threads, whose stacks may be small.
add_library(memlab_small_frames INTERFACE)
if(NOT MEMLAB_SANITIZER AND NOT MEMLAB_FUZZ AND CMAKE_BUILD_TYPE MATCHES "^Rel")
    target_compile_options(memlab_small_frames INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-Wframe-larger-than=2048>)
endif()

if(MEMLAB_SANITIZER)
    target_compile_options(memlab_build_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C,CXX>:-g1 -fsanitize=${MEMLAB_SANITIZER} -fno-sanitize-recover=all>)
    target_link_options(memlab_build_flags INTERFACE -fsanitize=${MEMLAB_SANITIZER})
endif()
if(MEMLAB_FUZZ)
    target_compile_options(memlab_build_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link,address,undefined
                                    -fno-sanitize-recover=all>)
    target_link_options(memlab_build_flags INTERFACE -fsanitize=address,undefined)
endif()

# memlab_optimize_sanitized(TARGET...): what most tests spend their time in. Without any optimization a sanitizer
# makes it twelve times as slow. It adds code in which GCC sees variables that are not initialized.
function(memlab_optimize_sanitized)
    if(MEMLAB_SANITIZER)
        foreach(target ${ARGN})
            target_compile_options(${target} PRIVATE -O1 -Wno-maybe-uninitialized)
        endforeach()
    endif()
endfunction()

# memlab_library(NAME sources...): a static library of memlab. Include paths are from the project's root.
function(memlab_library name)
    add_library(${name} STATIC ${ARGN})
    target_link_libraries(${name} PUBLIC memlab_build_flags)
endfunction()

# memlab_executable(NAME sources...)
function(memlab_executable name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE memlab_build_flags)
endfunction()

# memlab_leave_out_unused(TARGET...): a library that several programs contain, each a part of it, or whose functions the
# linker orders.
function(memlab_leave_out_unused)
    foreach(target ${ARGN})
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections -fdata-sections -fno-plt>)
    endforeach()
endfunction()

# memlab_compile_quickly(TARGET...): code that runs once for a report, where -O2 costs the one who
# builds a third more time, makes the programs larger, and gains the one who reads nothing.
function(memlab_compile_quickly)
    foreach(target ${ARGN})
        target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Os>)
    endforeach()
endfunction()

# memlab_runs_for_each_event(TARGET SOURCE...): adds to a library of memlab_compile_quickly() what runs for every event
# of a log. Objects of a library of their own: a source with options of its own is in no batch.
function(memlab_runs_for_each_event target)
    set(objects ${target}_events)
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
    target_compile_options(${objects} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_OPTIONS>
                                              $<$<CONFIG:RelWithDebInfo>:-O2>)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# memlab_link_old_glibc(TARGET...): links to glibc's libraries as they were in 2.28, whatever this machine has, and
# statically to the C++ runtime, so that the target loads with any glibc since. What only newer ones have is an
# undefined reference; interpose/driver/glibc_floor.cpp defines what the compiler's own libraries ask for.
set(stubs "${CMAKE_BINARY_DIR}/glibc-2.28")
set(MEMLAB_GLIBC_STUBS "${stubs}/libc.so.6" "${stubs}/libpthread.so.0" "${stubs}/libdl.so.2"
                       "${stubs}/libm.so.6" "${stubs}/ld-linux-x86-64.so.2")
find_program(MEMLAB_PYTHON3 python3 REQUIRED)
mark_as_advanced(MEMLAB_PYTHON3)
add_custom_command(OUTPUT ${MEMLAB_GLIBC_STUBS}
    COMMAND "${MEMLAB_PYTHON3}" -B "${CMAKE_SOURCE_DIR}/cmake/make_glibc_stubs.py" --compiler "${CMAKE_C_COMPILER}"
            --abi "${CMAKE_SOURCE_DIR}/cmake/glibc-2.28.abi" --output "${stubs}"
    DEPENDS "${CMAKE_SOURCE_DIR}/cmake/make_glibc_stubs.py" "${CMAKE_SOURCE_DIR}/cmake/glibc-2.28.abi" VERBATIM)
add_custom_target(memlab_glibc_stubs DEPENDS ${MEMLAB_GLIBC_STUBS})
function(memlab_link_old_glibc)
    foreach(target ${ARGN})
        add_dependencies(${target} memlab_glibc_stubs)
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${MEMLAB_GLIBC_STUBS})
        # By name and folder: of a path CMake would make a RUNPATH. libc_nonshared has what is linked into each
        # library (atexit).
        target_link_options(${target} PRIVATE -nodefaultlibs -Wl,--as-needed "-L${CMAKE_BINARY_DIR}/glibc-2.28")
        target_link_libraries(${target} PRIVATE
            -Wl,--start-group -l:libstdc++.a -l:libgcc_eh.a -lgcc -l:libc_nonshared.a -l:libc.so.6
            -l:libpthread.so.0 -l:libdl.so.2 -l:ld-linux-x86-64.so.2 -Wl,--end-group)
    endforeach()
endfunction()
