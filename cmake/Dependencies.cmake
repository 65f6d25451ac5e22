# Libraries from the distribution; nothing is downloaded. cmake/debian-packages.txt lists the packages.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

if(NOT FL_FUZZ)
  pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
  find_package(CLI11 REQUIRED)
  # Always the distribution's interpreter: python3-jinja2 lives there, and whatever else is on PATH may be
  # another version.
  set(FL_PYTHON /usr/bin/python3)
  set(PYBIND11_FINDPYTHON ON)
  set(Python_EXECUTABLE ${FL_PYTHON})
  set(Python3_EXECUTABLE ${FL_PYTHON})
  find_package(pybind11 2.10 REQUIRED)
  find_package(GTest REQUIRED)
  find_package(ZLIB REQUIRED)
  find_package(benchmark QUIET)
endif()
