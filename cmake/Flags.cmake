# Language, warnings and the flags of each instruction set.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the libraries also go into the Python module
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# Results must not depend on the optimisation level or on which file a function is inlined into: the compiler
# never fuses a multiply and an add by itself (docs/decisions/0001-one-arithmetic.md).
add_compile_options(-ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Werror)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

if(FL_SANITIZE)
  add_compile_options(-fsanitize=${FL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FL_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 reports uninitialised or out-of-bounds uses that sanitizer instrumentation itself creates.
    add_compile_options(-Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endif()

find_program(FL_CCACHE ccache)
if(FL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FL_CCACHE})
endif()

# Everything is built for the plain x86-64 baseline except files whose name ends in an instruction set. One
# binary thus runs everywhere and picks its kernels at start.
set(FL_ISAS generic avx2 avx512)
set(FL_ISA_FLAGS_generic "")
set(FL_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(FL_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni -mavx512vbmi
    ${FL_ISA_FLAGS_avx2})
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(FL_KERNEL_FLAGS -O3)
else()
  set(FL_KERNEL_FLAGS "")
endif()

# Gives each of the files named *_<isa>.cc the flags of its instruction set.
function(fl_set_isa_flags)
  foreach(file IN LISTS ARGN)
    foreach(isa IN LISTS FL_ISAS)
      if(file MATCHES "_${isa}\\.cc$")
        set(flags ${FL_KERNEL_FLAGS} ${FL_ISA_FLAGS_${isa}})
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
      endif()
    endforeach()
  endforeach()
endfunction()

# What `firstlight --version` prints about the build.
string(TOUPPER "${CMAKE_BUILD_TYPE}" fl_type)
set(FL_BUILD_FLAGS
    "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_CXX_FLAGS_${fl_type}} -ffp-contract=off")
if(FL_SANITIZE)
  string(APPEND FL_BUILD_FLAGS " -fsanitize=${FL_SANITIZE}")
endif()
string(APPEND FL_BUILD_FLAGS ", kernels ${FL_KERNEL_FLAGS} for ${FL_ISAS}")
string(REPLACE ";" " " FL_BUILD_FLAGS "${FL_BUILD_FLAGS}")  # lists
